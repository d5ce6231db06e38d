//! Values that tasks share by key, each for as long as one of them holds it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// The shared values, by key.
pub(crate) struct SharedValues<K, V>(Mutex<BTreeMap<K, Weak<V>>>);

impl<K, V> Default for SharedValues<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Default> SharedValues<K, V> {
    /// Returns the value of a key, made anew if no one holds it.
    pub(crate) fn of(&self, key: K) -> Arc<V> {
        let mut values = self.lock();
        if let Some(value) = values.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        if !values.contains_key(&key) {
            remove_unused(&mut values, |value| value.strong_count() > 0);
        }
        let value = Arc::default();
        values.insert(key, Arc::downgrade(&value));
        value
    }

    /// Returns the value of a key; `None` if no one holds it.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.lock().get(key).and_then(Weak::upgrade)
    }

    /// Returns all values that are held.
    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the unused entries when their number has doubled, which keeps the table as small as the number of used ones
/// without a walk at every call.
pub(crate) fn remove_unused<K: Ord, V>(table: &mut BTreeMap<K, V>, is_used: impl Fn(&V) -> bool) {
    if table.len() >= 64 && table.len().is_power_of_two() {
        table.retain(|_, entry| is_used(entry));
    }
}
