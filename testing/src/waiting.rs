//! Bounded waiting.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The time after which a wait has failed: longer than any busy machine needs.
const PATIENCE: Duration = Duration::from_secs(240);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The result of one look: a `bool`, or an `Option` of the value that is waited for.
pub trait Awaited {
    /// The value that the wait returns.
    type Value;

    /// Returns the value once it is there.
    fn arrived(self) -> Option<Self::Value>;
}

impl Awaited for bool {
    type Value = ();

    fn arrived(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Awaited for Option<T> {
    type Value = T;

    fn arrived(self) -> Self {
        self
    }
}

/// Looks again and again until the value is there, and returns it.
///
/// # Panics
/// After several minutes without the value.
#[track_caller]
pub fn until<A: Awaited>(what: &str, mut look: impl FnMut() -> A) -> A::Value {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look().arrived() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(PAUSE);
    }
}

/// Does the same as [`until()`] on a runtime.
///
/// # Panics
/// After several minutes without the value.
pub async fn until_async<A: Awaited>(what: &str, mut look: impl AsyncFnMut() -> A) -> A::Value {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look().await.arrived() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
