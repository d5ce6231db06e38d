//! A bounded table that forgets what was used least lately: callers that come in great number push out one another, and
//! never everything at once.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// A table of at most `most` entries.
#[derive(Debug)]
pub struct Recent<K, V> {
    most: usize,
    /// The number of the next use.
    next: u64,
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Returns an empty table.
    pub fn new(most: usize) -> Self {
        Self { most, next: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Changes the value of a key, made anew if there is none, and counts this as a use. Returns what the change does.
    pub fn used<T>(&mut self, key: &K, new: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> T) -> T {
        let number = self.next;
        self.next += 1;
        let (last, value) = self.entries.entry(key.clone()).or_insert_with(|| (number, new()));
        let changed = change(value);
        self.by_use.remove(last);
        *last = number;
        self.by_use.insert(number, key.clone());
        if self.by_use.len() > self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        changed
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        if let Some((number, _)) = self.entries.remove(key) {
            self.by_use.remove(&number);
        }
    }

    /// Returns the value of a key, which is no use of it.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns whether a key is known.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_was_used_least_lately_makes_room() {
        let mut recent = Recent::new(3);
        for key in [1, 2, 3, 1, 4] {
            recent.used(&key, || (), |()| ());
        }
        assert_eq!([1, 2, 3, 4].map(|key| recent.contains(&key)), [true, false, true, true]);
        recent.remove(&3);
        recent.used(&5, || (), |()| ());
        assert_eq!([1, 3, 4, 5].map(|key| recent.contains(&key)), [true, false, true, true]);
        assert_eq!((recent.entries.len(), recent.by_use.len()), (3, 3));
    }
}
