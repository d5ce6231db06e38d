//! The store's clock: the machine's.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rollhook_core::time::Timestamp;
use tokio::time::Instant;

/// Tells the store the time: the wall clock's for what is stored, and a time that only passes for claims.
#[derive(Clone)]
pub struct StoreClock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    lag: Duration,
}

/// How far a watch may lag behind what another replica has just written.
const LAG: Duration = Duration::from_secs(1);

impl StoreClock {
    /// The machine's clocks.
    pub fn system() -> Self {
        let start = Instant::now();
        Self { lag: LAG, ..Self::new(system_time, move || start.elapsed()) }
    }

    /// Clocks of one's own, such as a test moves: the wall clock, and the time since some fixed point. Nobody waits for
    /// time to pass by them.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), elapsed: Arc::new(elapsed), lag: Duration::ZERO }
    }

    /// These clocks, on which who is refused by memory waits for this long.
    #[cfg(test)]
    pub(crate) fn lagging(self, lag: Duration) -> Self {
        Self { lag, ..self }
    }

    /// The time that is stored.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }

    /// How long who is refused by memory waits for what the watch may bring.
    pub(crate) fn lag(&self) -> Duration {
        self.lag
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreClock").field(&self.now()).finish()
    }
}

/// The time as a date, out of whose range only a broken clock is.
pub(crate) fn calendar(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.as_millis()).unwrap_or_default()
}

#[allow(clippy::disallowed_methods, reason = "a store's clock is where wall-clock times come from")]
fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
