//! Time and randomness, as arguments.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::time::Timestamp;

/// A monotonic clock of this process; wall-clock times come from the store alone.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed point of this process's life; never decreases.
    fn elapsed(&self) -> Duration;

    /// Returns after at least this duration.
    async fn sleep(&self, duration: Duration);
}

/// The clock of a store that has none of its own: it returns the time that is stored.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The step ahead that a [`steady`] clock follows at once.
const STEP_MAX: Duration = Duration::from_secs(3600);
/// A steady clock that is behind gains this fraction of the time that passes.
const GAIN: u32 = 10;

/// Returns the wall clock, but one that does not jump ahead by more than an hour: idempotency keys would expire early, and
/// their calls would be accepted again. After a greater step it gains a tenth of the time that passes, by `elapsed`, until it
/// is within an hour of the wall clock. A clock that is set back is followed at once, and so is one that returns from there.
///
/// The first time is believed, as nothing tells of the time before.
pub fn steady(wall: WallClock, elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> WallClock {
    let line = Mutex::new(Line { time: wall(), at: elapsed(), is_ahead: false });
    Arc::new(move || line.lock().unwrap_or_else(PoisonError::into_inner).follow(wall(), elapsed()))
}

/// The latest time that a steady clock has believed.
struct Line {
    time: Timestamp,
    /// The process's time of `time`.
    at: Duration,
    /// Whether the wall clock was too far ahead at the last look.
    is_ahead: bool,
}

impl Line {
    /// Returns the time if the wall clock shows `wall` at the process's time `now`.
    fn follow(&mut self, wall: Timestamp, now: Duration) -> Timestamp {
        let passed = now.saturating_sub(self.at);
        let (even, gained) = (self.time.after(passed), self.time.after(passed + passed / GAIN));
        let is_ahead = wall > gained.after(STEP_MAX);
        if is_ahead && !self.is_ahead {
            let ahead_s = wall.since(gained).as_secs();
            tracing::warn!(ahead_s, "the machine's clock was set far ahead: stored times follow it slowly");
        }
        self.is_ahead = is_ahead;
        if is_ahead {
            return gained;
        }
        // One that was set back keeps the line, so that it may return to it.
        if wall.after(STEP_MAX) >= even {
            (self.time, self.at) = (wall, now);
        }
        wall
    }
}

/// A source of randomness.
pub trait Rng: Send + Sync {
    /// Fills the bytes with random ones that are fit for secrets.
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Rng + '_ {
    /// Returns 128 random bits.
    pub fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The steady clock's time since the start, in seconds, after steps of this time and of these settings of the clock.
    fn shown(steps: &[(Duration, i64)]) -> Vec<u64> {
        let start = Timestamp::from_millis(1_700_000_000_000);
        let mut line = Line { time: start, at: Duration::ZERO, is_ahead: false };
        let (mut now, mut set) = (Duration::ZERO, 0);
        let mut shown = Vec::new();
        for (passed, by) in steps {
            now += *passed;
            set += by * 1000;
            let wall = Timestamp::from_millis(start.after(now).as_millis() + set);
            shown.push(line.follow(wall, now).since(start).as_secs());
        }
        shown
    }

    fn seconds(duration: Duration) -> i64 {
        i64::try_from(duration.as_secs()).unwrap()
    }

    #[test]
    fn wall_clock_is_followed_through_small_steps_and_back() {
        assert_eq!(shown(&[(HOUR, 0), (HOUR, 0), (30 * DAY, 0)]), [3600, 7200, 7200 + 30 * 86_400]);
        assert_eq!(shown(&[(HOUR, 3000), (HOUR, 3000)]), [6600, 13_200], "less than an hour at once");
        let back = seconds(DAY);
        assert_eq!(shown(&[(2 * DAY, 0), (HOUR, -back), (HOUR, back)]), [172_800, 90_000, 180_000], "and it returns");
    }

    #[test]
    fn clock_that_jumps_a_day_ahead_is_followed_slowly() {
        let jump = seconds(DAY);
        assert_eq!(shown(&[(DAY, 0), (HOUR, jump), (HOUR, 0)]), [86_400, 86_400 + 3960, 86_400 + 7920]);
        let looks: Vec<_> = std::iter::once((DAY, jump)).chain((0..300).map(|_| (HOUR, 0))).collect();
        let times = shown(&looks);
        assert!(times.is_sorted());
        let day_later = times[24] - times[0];
        assert!((86_400..=86_400 + 8640).contains(&day_later), "keys live for nearly as long: {day_later}");
        assert_eq!(times[300], 86_400 + 300 * 3600 + 86_400, "and in the end the time is right");
    }
}
