//! Objects as they were seen last, by lists, by events, and by this process's own reads and writes.

use std::collections::BTreeMap;

use rollhook_core::ports::Version;

/// The objects of a kind.
pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, Row<V>>,
    /// The number of the list that began last.
    listing: u32,
}

/// An object as it was seen last.
pub(crate) struct Row<V> {
    pub(crate) version: Version,
    pub(crate) value: V,
    /// The list that has shown the object, or during which it was seen.
    listing: u32,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), listing: 0 }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    pub(crate) fn rows(&self) -> &BTreeMap<K, Row<V>> {
        &self.rows
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|row| &row.value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key).map(|row| &mut row.value)
    }

    /// Notes an object, unless it is known in this version or a newer one. Returns whether that is news.
    ///
    /// A list is right about everything that was known when it began, also if what it shows is older: the cluster's
    /// store was restored from a copy then.
    pub(crate) fn note(&mut self, key: K, version: Version, value: V, listed: bool) -> bool {
        let listing = self.listing;
        if let Some(row) = self.rows.get_mut(&key) {
            let restored = listed && row.listing != listing && version < row.version;
            if listed {
                row.listing = listing;
            }
            if version <= row.version && !restored {
                return false;
            }
        }
        self.rows.insert(key, Row { version, value, listing });
        true
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.rows.remove(key).map(|row| row.value)
    }

    /// Whether the object is known in this version or an older one.
    pub(crate) fn is_known_by(&self, key: &K, version: Version) -> bool {
        self.rows.get(key).is_some_and(|row| row.version <= version)
    }

    pub(crate) fn list_begins(&mut self) {
        self.listing += 1;
    }

    /// The objects that the list which has ended did not show: they are gone.
    pub(crate) fn not_listed(&self) -> Vec<K> {
        let gone = self.rows.iter().filter(|(_, row)| row.listing != self.listing);
        gone.map(|(key, _)| key.clone()).collect()
    }
}
