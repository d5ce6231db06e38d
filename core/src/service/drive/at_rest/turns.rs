//! The order in which apps at rest are looked at: a few at once, and the environments in turns, so that the apps of one whose
//! looks last long hold up no other's.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use crate::app::{AppUid, Namespace};

/// The most looks at once.
const AT_ONCE: usize = 8;
/// The most looks at once at apps of one environment.
const OF_ONE: usize = 2;

/// The apps that wait for a look, and those that are looked at.
#[derive(Default)]
pub(super) struct Turns {
    waiting: BTreeMap<Namespace, VecDeque<AppUid>>,
    running: BTreeMap<Namespace, usize>,
    /// The apps whose environment is not known yet.
    unplaced: VecDeque<AppUid>,
    /// The environment that was served last.
    last: Option<Namespace>,
}

impl Turns {
    /// Has an app wait for a look.
    pub(super) fn add(&mut self, app: AppUid, environment: Namespace) {
        self.waiting.entry(environment).or_default().push_back(app);
    }

    /// Has an app wait until its environment is known.
    pub(super) fn add_unplaced(&mut self, app: AppUid) {
        self.unplaced.push_back(app);
    }

    /// Takes the next app whose environment is to be read.
    pub(super) fn next_unplaced(&mut self) -> Option<AppUid> {
        self.unplaced.pop_front()
    }

    /// Takes the next app whose look may begin, of the first environment after the one that was served last.
    pub(super) fn next(&mut self) -> Option<(AppUid, Namespace)> {
        if self.running.values().sum::<usize>() >= AT_ONCE {
            return None;
        }
        let is_free = |environment: &&Namespace| self.running.get(*environment).is_none_or(|count| *count < OF_ONE);
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.waiting.range::<Namespace, _>((after, Bound::Unbounded));
        let environment = later.chain(&self.waiting).map(|(environment, _)| environment).find(is_free)?.clone();
        let waiting = self.waiting.get_mut(&environment)?;
        let app = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&environment);
        }
        *self.running.entry(environment.clone()).or_default() += 1;
        self.last = Some(environment.clone());
        Some((app, environment))
    }

    /// Notes the end of a look at an app of this environment.
    pub(super) fn ended(&mut self, environment: &Namespace) {
        if let Some(count) = self.running.get_mut(environment) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(environment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(number: u128) -> AppUid {
        AppUid::from_bits(number)
    }

    fn taken(turns: &mut Turns) -> Vec<(AppUid, String)> {
        std::iter::from_fn(|| turns.next()).map(|(app, environment)| (app, environment.to_string())).collect()
    }

    #[test]
    fn environment_with_many_apps_holds_up_no_other() {
        let mut turns = Turns::default();
        let [one, two] = ["shop-prod", "shop-test"].map(|name| name.parse::<Namespace>().unwrap());
        (0..100).for_each(|number| turns.add(app(number), one.clone()));
        assert_eq!(taken(&mut turns), [0, 1].map(|number| (app(number), one.to_string())), "two at once");
        (200..203).for_each(|number| turns.add(app(number), two.clone()));
        assert_eq!(taken(&mut turns), [200, 201].map(|number| (app(number), two.to_string())));
        turns.ended(&two);
        turns.ended(&one);
        assert_eq!(taken(&mut turns), [(app(2), one.to_string()), (app(202), two.to_string())], "in turns");
        turns.add_unplaced(app(300));
        turns.add_unplaced(app(301));
        assert_eq!((turns.next_unplaced(), turns.next_unplaced()), (Some(app(300)), Some(app(301))));
    }

    #[test]
    fn no_more_than_a_few_looks_at_once() {
        let mut turns = Turns::default();
        let environment = |number: u128| format!("shop-{number}").parse::<Namespace>().unwrap();
        (0..40).for_each(|number| turns.add(app(number), environment(number / 2)));
        let first = taken(&mut turns);
        assert_eq!(first.len(), AT_ONCE);
        for (_, name) in first {
            turns.ended(&name.parse().unwrap());
        }
        assert_eq!(taken(&mut turns).len(), AT_ONCE);
    }
}
