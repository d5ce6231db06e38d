//! The store's clock: the machine's, which all processes that share the file share too.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rollhook_core::time::Timestamp;

/// Tells the store the time.
#[derive(Clone)]
pub struct StoreClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl StoreClock {
    /// The machine's wall clock.
    pub fn system() -> Self {
        Self::new(system_time)
    }

    /// A clock of one's own, such as one that a test moves.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreClock").field(&self.now()).finish()
    }
}

#[allow(clippy::disallowed_methods, reason = "a store's clock is where wall-clock times come from")]
fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
