//! The lives of a deploy's instances: one that was started again has to outlive those before.
//!
//! A platform remembers little of them: Kubernetes the last, Docker none. What a driver reports is therefore a bound, which
//! the observations of one process make tighter: lives that ended between two of them lie between two ends. A process
//! that takes over has the bound alone, and is stricter than the one before, never more lenient.

use std::{collections::BTreeMap, time::Duration};

use crate::ports::PastLives;

/// An instance that was started again settles once it has lived for this many times its longest life before.
const OUTLIVES: u32 = 2;
/// The difference that is allowed for, of the clocks of a platform and of this process, and of the latter's before and after
/// it was set.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The longest lives of the instances that have ended before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lives(BTreeMap<String, Known>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    count: u32,
    all: Duration,
    longest: Duration,
}

impl Lives {
    /// Processes what an observation reports this long after the deploy began; `None`: by a clock that was set back since,
    /// which does not tell.
    pub(super) fn observed(&mut self, seen: &[PastLives], elapsed: Option<Duration>) {
        let before = std::mem::take(&mut self.0);
        // An instance that a restore has kept may have ended long before the deploy.
        let longest = elapsed.map_or(Duration::MAX, |elapsed| elapsed + CLOCK_SKEW);
        let of_this_deploy = seen.iter().filter(|lives| lives.ended_ago <= longest);
        self.0 = of_this_deploy
            .map(|lives| {
                let known = before.get(&lives.instance).cloned().unwrap_or_default();
                (lives.instance.clone(), known.and(lives, longest))
            })
            .collect();
    }

    /// Returns for how long the instances have to live without an end before the deploy succeeds.
    pub(super) fn to_outlive(&self) -> Duration {
        self.0.values().map(|known| known.longest).max().unwrap_or_default().saturating_mul(OUTLIVES)
    }
}

impl Known {
    /// Returns what is known with the lives that have ended since; none in a deploy is longer than the deploy.
    fn and(self, lives: &PastLives, deploy: Duration) -> Self {
        let since = lives.all.saturating_sub(self.all);
        let longest = if lives.count == self.count.saturating_add(1) { lives.last.min(since) } else { since };
        Self { count: lives.count, all: lives.all.max(self.all), longest: self.longest.max(longest.min(deploy)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn lives(count: u32, last: u64, all: u64) -> PastLives {
        let instance = "api-1".to_owned();
        PastLives { instance, count, last: seconds(last), all: seconds(all), ended_ago: Duration::ZERO }
    }

    fn watched(seen: &[PastLives]) -> Duration {
        let mut known = Lives::default();
        seen.iter().for_each(|lives| known.observed(std::slice::from_ref(lives), Some(seconds(500))));
        known.to_outlive()
    }

    #[test]
    fn longest_life_counts_and_not_the_last_one() {
        assert_eq!(watched(&[lives(1, 14, 14)]), seconds(28));
        assert_eq!(watched(&[lives(1, 14, 14), lives(2, 3, 27)]), seconds(28));
        assert_eq!(watched(&[lives(1, 3, 3), lives(2, 14, 27)]), seconds(28));
    }

    #[test]
    fn end_that_is_seen_again_changes_nothing() {
        assert_eq!(watched(&[lives(1, 14, 14), lives(1, 14, 14)]), seconds(28));
    }

    #[test]
    fn lives_that_no_observation_saw_are_as_long_as_the_time_that_holds_them() {
        assert_eq!(watched(&[lives(1, 2, 2), lives(3, 1, 12)]), seconds(20), "one of them lived for up to 10 s");
        assert_eq!(watched(&[lives(1, 2, 2), lives(2, 12, 12)]), seconds(20), "its start is not known");
    }

    #[test]
    fn process_that_takes_over_is_no_more_lenient() {
        let all = [lives(1, 2, 2), lives(2, 9, 21), lives(3, 1, 42), lives(4, 6, 88)];
        for taken_over in 0..all.len() {
            assert!(watched(&all[taken_over..]) >= watched(&all), "from observation {taken_over} on");
        }
    }

    #[test]
    fn lives_before_the_deploy_do_not_count() {
        let mut known = Lives::default();
        let long_ago = PastLives { ended_ago: seconds(500_000), ..lives(3, 80_000, 900_000) };
        known.observed(&[long_ago], Some(seconds(2)));
        assert_eq!(known.to_outlive(), Duration::ZERO);
        let just_before = PastLives { ended_ago: seconds(30), ..lives(3, 80_000, 900_000) };
        known.observed(&[just_before], Some(seconds(2)));
        assert_eq!(known.to_outlive(), seconds(2 * (2 + 60)), "no longer than the deploy");
    }

    #[test]
    fn clock_that_was_set_back_makes_no_life_shorter() {
        let mut known = Lives::default();
        known.observed(&[lives(1, 14, 14)], None);
        assert_eq!(known.to_outlive(), seconds(28));
    }

    #[test]
    fn instance_that_is_gone_is_forgotten() {
        let mut known = Lives::default();
        known.observed(&[lives(1, 14, 14)], Some(seconds(20)));
        known.observed(&[], Some(seconds(25)));
        assert_eq!(known.to_outlive(), Duration::ZERO);
    }
}
