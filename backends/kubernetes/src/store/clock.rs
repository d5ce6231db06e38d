//! The store's clocks: those of the machine.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rollhook_core::{ports::steady, time::Timestamp};
use tokio::time::Instant;

/// The clocks of the store: the wall clock for stored times, and a steady one for leases.
#[derive(Clone)]
pub struct StoreClock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    lag: Duration,
}

/// The longest time by which a watch lags behind the writes of another replica.
const LAG: Duration = Duration::from_secs(1);

impl StoreClock {
    /// The machine's clocks.
    pub fn system() -> Self {
        let start = Instant::now();
        let now = steady(Arc::new(system_time), move || start.elapsed());
        Self { lag: LAG, ..Self::new(move || now(), move || start.elapsed()) }
    }

    /// Given clocks, such as those of a test: the wall clock, and the time since some fixed point. Timers do not follow
    /// them.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), elapsed: Arc::new(elapsed), lag: Duration::ZERO }
    }

    /// The time that is stored.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }

    /// The delay before a record that the watch has not shown is none, in which the watch may show it.
    #[cfg_attr(not(feature = "management"), expect(dead_code, reason = "it is records that are waited for"))]
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
    SystemTime::now().into()
}
