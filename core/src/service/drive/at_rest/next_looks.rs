//! The times of the next looks at apps, in their order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::app::AppUid;

/// The apps to be looked at, each at a time. Each step takes the logarithm of their number.
#[derive(Default)]
pub(super) struct NextLooks {
    times: BTreeMap<AppUid, Duration>,
    order: BTreeSet<(Duration, AppUid)>,
}

impl NextLooks {
    /// Schedules a look, unless an earlier one is scheduled. Returns whether it is the first of all.
    pub(super) fn put(&mut self, app: AppUid, at: Duration) -> bool {
        let first = self.first();
        match self.times.get(&app) {
            Some(known) if *known <= at => return false,
            Some(later) => drop(self.order.remove(&(*later, app))),
            None => {}
        }
        self.times.insert(app, at);
        self.order.insert((at, app));
        first.is_none_or(|first| at < first)
    }

    /// Removes the look at an app.
    pub(super) fn remove(&mut self, app: AppUid) {
        if let Some(at) = self.times.remove(&app) {
            self.order.remove(&(at, app));
        }
    }

    /// Returns the time of the next look.
    pub(super) fn first(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the app that is to be looked at first, if its time has come.
    pub(super) fn take(&mut self, now: Duration) -> Option<AppUid> {
        let app = self.order.first().filter(|(at, _)| *at <= now).map(|(_, app)| *app)?;
        self.remove(app);
        Some(app)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u128, u64),
        Remove(u128),
        Take(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..6_u128, 0..6_u64).prop_map(|(app, at)| Step::Put(app, at)),
            1 => (0..6_u128).prop_map(Step::Remove),
            2 => (0..6_u64).prop_map(Step::Take),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn looks_come_in_the_order_of_their_times(steps in steps()) {
            let mut looks = NextLooks::default();
            let mut expected: BTreeMap<u128, u64> = BTreeMap::new();
            for step in steps {
                let first = expected.values().min().copied();
                match step {
                    Step::Put(app, at) => {
                        let is_first = looks.put(AppUid::from_bits(app), Duration::from_secs(at));
                        let time = expected.entry(app).and_modify(|known| *known = at.min(*known)).or_insert(at);
                        prop_assert_eq!(is_first, first.is_none_or(|first| *time < first));
                    }
                    Step::Remove(app) => {
                        looks.remove(AppUid::from_bits(app));
                        expected.remove(&app);
                    }
                    Step::Take(now) => {
                        let next = expected.iter().map(|(app, at)| (*at, *app)).min().filter(|(at, _)| *at <= now);
                        next.map(|(_, app)| expected.remove(&app));
                        let taken = looks.take(Duration::from_secs(now));
                        prop_assert_eq!(taken, next.map(|(_, app)| AppUid::from_bits(app)));
                    }
                }
                prop_assert_eq!(looks.first(), expected.values().min().map(|at| Duration::from_secs(*at)));
                prop_assert_eq!((looks.times.len(), looks.order.len()), (expected.len(), expected.len()));
            }
        }
    }
}
