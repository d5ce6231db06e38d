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
/// The time after which a greater step is believed: the life of an idempotency key.
const BELIEVED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Returns the wall clock, but one that does not jump ahead by more than an hour: idempotency keys would expire early,
/// and their calls would be accepted again. After a greater step it gains a tenth of the time that passes, by
/// `elapsed`, until it is within an hour of the wall clock. A clock that is set back is followed at once, and so is one
/// that returns from there.
///
/// A step that lasts is believed after a day: keys that were in use before it have lived by then, and those of that day
/// expire early. The first time is believed, as nothing tells of the time before.
///
/// This clock is for stored times and for what expires by them. Heartbeats need the wall clock itself: of two
/// processes, the one that started after a step would take the other one for dead.
pub fn steady(wall: WallClock, elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> WallClock {
    let line = Mutex::new(Line { time: wall(), at: elapsed(), step: None });
    Arc::new(move || line.lock().unwrap_or_else(PoisonError::into_inner).follow(wall(), elapsed()))
}

/// The latest time that a steady clock has believed.
struct Line {
    time: Timestamp,
    /// The process's time of `time`.
    at: Duration,
    /// The step ahead that is not believed yet: the process's time and the wall clock's at the first look after it.
    step: Option<(Duration, Timestamp)>,
}

impl Line {
    /// Returns the time if the wall clock shows `wall` at the process's time `now`.
    fn follow(&mut self, wall: Timestamp, now: Duration) -> Timestamp {
        let passed = now.saturating_sub(self.at);
        let (even, gained) = (self.time.after(passed), self.time.after(passed + passed / GAIN));
        if wall > gained.after(STEP_MAX) && !self.believes(wall, now, gained) {
            return gained;
        }
        self.step = None;
        // One that was set back keeps the line, so that it may return to it.
        if wall.after(STEP_MAX) >= even {
            (self.time, self.at) = (wall, now);
        }
        wall
    }

    /// Returns whether the step that the wall clock is ahead by has lasted: since then the clock was not set again.
    fn believes(&mut self, wall: Timestamp, now: Duration, gained: Timestamp) -> bool {
        let same = |(at, shown): &(Duration, Timestamp)| {
            let expected = shown.after(now.saturating_sub(*at));
            wall.since(expected).max(expected.since(wall)) <= STEP_MAX
        };
        let ahead_s = wall.since(gained).as_secs();
        if let Some((at, _)) = self.step.filter(same) {
            let is_believed = now.saturating_sub(at) >= BELIEVED_AFTER;
            if is_believed {
                tracing::warn!(
                    ahead_s,
                    "the machine's clock has been ahead for a day: stored times follow it from now on"
                );
            }
            return is_believed;
        }
        tracing::warn!(ahead_s, "the machine's clock was set far ahead: stored times follow it slowly for a day");
        self.step = Some((now, wall));
        false
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

    /// The steady clock's time since the start, in seconds, after steps of this time and of these settings of the
    /// clock.
    fn shown(steps: &[(Duration, i64)]) -> Vec<u64> {
        let start = Timestamp::from_millis(1_700_000_000_000);
        let mut line = Line { time: start, at: Duration::ZERO, step: None };
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
    fn clock_that_jumps_ahead_for_less_than_a_day_makes_no_key_expire() {
        let jump = seconds(10 * DAY);
        let looks = [(DAY, 0), (HOUR, jump), (22 * HOUR, 0), (HOUR, -jump), (HOUR, 0)];
        let day = 86_400;
        assert_eq!(shown(&looks), [day, day + 3960, day + 23 * 3960, day + 24 * 3600, day + 25 * 3600]);
    }

    #[test]
    fn step_ahead_is_followed_slowly_and_believed_once_it_has_lasted_a_day() {
        let jump = seconds(400 * DAY);
        let looks: Vec<_> = [(DAY, 0), (HOUR, jump)].into_iter().chain((0..25).map(|_| (HOUR, 0))).collect();
        let times = shown(&looks);
        assert!(times.is_sorted());
        let (day, ahead) = (86_400, 400 * 86_400);
        assert_eq!(times[1..=24], (1..=24).map(|hour| day + hour * 3960).collect::<Vec<_>>(), "keys of before live");
        assert_eq!(times[25..], [day + 25 * 3600 + ahead, day + 26 * 3600 + ahead], "then the time is right");
    }

    #[test]
    fn clock_that_is_set_ahead_again_and_again_is_not_believed_sooner() {
        let jump = seconds(DAY);
        let looks: Vec<_> = (0..48).map(|hour| (HOUR, if hour % 12 == 0 { jump } else { 0 })).collect();
        let times = shown(&looks);
        assert_eq!(times[47], 48 * 3960);
        let at_rest: Vec<_> = looks.into_iter().chain((0..13).map(|_| (HOUR, 0))).collect();
        assert_eq!(shown(&at_rest)[60], 61 * 3600 + 4 * 86_400);
    }
}
