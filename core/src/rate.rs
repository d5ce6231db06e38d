//! Rates: a number of events at once, and one more per interval.

use std::time::Duration;

/// A number of events at once, and one more per interval (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The interval.
    pub every: Duration,
    /// The number of events at once.
    pub burst: u32,
}

impl Rate {
    /// Returns the time until one more event may happen, where the events before are paid off at `paid`.
    pub fn wait(self, paid: Duration, now: Duration) -> Duration {
        let debt = paid.saturating_sub(now);
        (debt + self.every).saturating_sub(self.every * self.burst)
    }

    /// Returns the time at which one more event, of now, is paid off.
    pub fn spend(self, paid: Duration, now: Duration) -> Duration {
        paid.max(now) + self.every
    }

    /// Returns the time at which one more event is paid off, if it may happen.
    pub fn take(self, paid: Duration, now: Duration) -> Option<Duration> {
        self.wait(paid, now).is_zero().then(|| self.spend(paid, now))
    }
}
