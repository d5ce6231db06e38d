//! A bounded number of places for each holder, and for all holders together.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

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
}
