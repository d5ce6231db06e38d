//! A bounded number of places for each holder, and for all holders together; and for known callers, of which an
//! environment's and a project's have a part.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use crate::callers::Caller;

/// A bounded number of places.
#[derive(Clone)]
pub(crate) struct Places<K> {
    each: usize,
    all: usize,
    taken: Arc<Mutex<Taken<K>>>,
}

/// The places that are taken.
struct Taken<K> {
    all: usize,
    of: HashMap<K, usize>,
}

/// A taken place, which is free again once this is dropped.
pub(crate) struct Place<K: Eq + Hash> {
    taken: Arc<Mutex<Taken<K>>>,
    holder: K,
}

impl<K: Eq + Hash + Clone> Places<K> {
    /// Returns free places: so many for each holder, and so many for all together.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self { each, all, taken: Arc::new(Mutex::new(Taken { all: 0, of: HashMap::new() })) }
    }

    /// Takes a place; returns `None` if the holder, or all holders together, have as many as they may.
    pub(crate) fn take(&self, holder: K) -> Option<Place<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.of.get(&holder).copied().unwrap_or_default();
        if own >= self.each || taken.all >= self.all {
            return None;
        }
        taken.of.insert(holder.clone(), own + 1);
        taken.all += 1;
        Some(Place { taken: self.taken.clone(), holder })
    }
}

/// The places of known callers: those of one environment have a quarter, those of one project a half.
pub(crate) struct CallerPlaces {
    parties: Places<u64>,
    environments: Places<u64>,
    projects: Places<u64>,
}

/// The place of a known caller, which is free again once this is dropped.
pub(crate) struct CallerPlace {
    _party: Place<u64>,
    _environment: Option<Place<u64>>,
    _project: Option<Place<u64>>,
}

impl CallerPlaces {
    /// Returns free places: so many for each caller, and so many for all together.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        let part = |number: usize| Places::new(number.max(each), all);
        Self { parties: Places::new(each, all), environments: part(all / 4), projects: part(all / 2) }
    }

    /// Takes a place; returns `None` if the caller, those of its environment or project, or all together have as many as
    /// they may.
    pub(crate) fn take(&self, caller: Caller) -> Option<CallerPlace> {
        let of = |places: &Places<u64>, key: Option<u64>| match key {
            Some(key) => places.take(key).map(Some),
            None => Some(None),
        };
        Some(CallerPlace {
            _environment: of(&self.environments, caller.environment)?,
            _project: of(&self.projects, caller.project)?,
            _party: self.parties.take(caller.party)?,
        })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(number) = taken.of.get_mut(&self.holder) {
            *number -= 1;
            if *number == 0 {
                taken.of.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_per_holder_and_altogether() {
        let places = Places::new(3, 5);
        let mut ours: Vec<_> = (0..3).map(|_| places.take("ours").unwrap()).collect();
        assert!(places.take("ours").is_none());
        let theirs: Vec<_> = (0..2).map(|_| places.take("theirs").unwrap()).collect();
        assert!(places.take("others").is_none(), "all places are taken");
        ours.pop();
        assert!(places.take("others").is_some());
        drop((ours, theirs));
        let taken = places.taken.lock().unwrap();
        assert!(taken.of.is_empty() && taken.all == 0);
    }

    fn taken(places: &CallerPlaces, environment: Option<u64>, project: Option<u64>) -> Vec<CallerPlace> {
        let mut taken = Vec::new();
        for party in 0..100 {
            let party = party * 1_000 + environment.unwrap_or_default();
            let of_party = (0..20).map_while(|_| places.take(Caller { party, environment, project }));
            taken.extend(of_party);
        }
        taken
    }

    #[test]
    fn callers_of_one_environment_or_project_leave_places_to_others() {
        let places = CallerPlaces::new(10, 80);
        let of_test = taken(&places, Some(1), Some(1));
        assert_eq!(of_test.len(), 20);
        let of_prod = taken(&places, Some(2), Some(1));
        assert_eq!(of_prod.len(), 20, "another environment has its own");
        assert!(taken(&places, Some(3), Some(1)).is_empty() && taken(&places, None, Some(1)).is_empty(), "a half");
        let of_webhooks = taken(&places, Some(4), None);
        assert_eq!(of_webhooks.len(), 20);
        assert_eq!(taken(&places, None, None).len(), 20, "the others are taken");
        drop((of_test, of_prod, of_webhooks));
        assert_eq!(taken(&places, None, None).len(), 80);
        assert_eq!(taken(&places, Some(1), Some(1)).len(), 20, "what was refused took no place");
    }
}
