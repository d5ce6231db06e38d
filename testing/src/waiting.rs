//! Bounded waiting.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

/// The time after which a wait has failed: longer than any busy machine needs.
const PATIENCE: Duration = Duration::from_secs(240);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The result of one look: a `bool`, an `Option` of the value that is waited for, or a `Result` whose error says what
/// was seen instead.
pub trait Awaited {
    /// The value that the wait returns.
    type Value;

    /// Returns the value once it is there, and what was seen instead until then.
    ///
    /// # Errors
    /// As long as the value is not there.
    fn arrived(self) -> Result<Self::Value, String>;
}

impl Awaited for bool {
    type Value = ();

    fn arrived(self) -> Result<(), String> {
        self.then_some(()).arrived()
    }
}

impl<T> Awaited for Option<T> {
    type Value = T;

    fn arrived(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: fmt::Debug> Awaited for Result<T, E> {
    type Value = T;

    fn arrived(self) -> Result<T, String> {
        self.map_err(|seen| format!("; seen instead: {seen:?}"))
    }
}

/// Looks again and again until the value is there, and returns it.
#[track_caller]
pub fn until<A: Awaited>(what: &str, mut look: impl FnMut() -> A) -> A::Value {
    let end = Instant::now() + PATIENCE;
    loop {
        match look().arrived() {
            Ok(value) => return value,
            Err(seen) => assert!(Instant::now() < end, "never: {what}{seen}"),
        }
        thread::sleep(PAUSE);
    }
}

/// Does the same as [`until()`] on a runtime.
pub async fn until_async<A: Awaited, F: Future<Output = A>>(what: &str, mut look: impl FnMut() -> F) -> A::Value {
    let end = Instant::now() + PATIENCE;
    loop {
        match look().await.arrived() {
            Ok(value) => return value,
            Err(seen) => assert!(Instant::now() < end, "never: {what}{seen}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
