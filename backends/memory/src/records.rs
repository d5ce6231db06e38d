//! Records: the service's own small documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use async_trait::async_trait;
use rollhook_core::{Error, Result, error::Entity, ports::Version, time::Timestamp};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};

use crate::store::MemoryStore;

/// The most expired records that one write deletes.
const SWEPT: usize = 10;

/// The records of every kind.
#[derive(Default)]
pub(crate) struct Records {
    kinds: BTreeMap<RecordKind, OfKind>,
    /// The records that expire, by that time.
    expiring: BTreeSet<(Timestamp, RecordKind, RecordKey)>,
    /// The number of writes, of which each makes a version.
    writes: u64,
}

#[derive(Default)]
struct OfKind {
    records: BTreeMap<RecordKey, Stored>,
    /// The order in which they are listed.
    places: BTreeSet<RecordPlace>,
}

struct Stored {
    document: String,
    version: Version,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

#[async_trait]
impl RecordStore for MemoryStore {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        let now = self.now();
        Ok(self.lock().records.read(kind, key, now))
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        let now = self.now();
        self.lock().records.write(kind, record, version, now)
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        self.lock().records.remove(kind, key);
        Ok(())
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        let now = self.now();
        let records = &self.lock().records;
        let Some(of_kind) = records.kinds.get(&kind) else { return Ok(Vec::new()) };
        let below = after.map_or(Bound::Unbounded, Bound::Excluded);
        let places = of_kind.places.range((Bound::Unbounded, below)).rev();
        Ok(places.filter_map(|place| records.read(kind, &place.key, now)).take(limit).collect())
    }
}

impl Records {
    fn read(&self, kind: RecordKind, key: &RecordKey, now: Timestamp) -> Option<Record> {
        let stored = self.kinds.get(&kind)?.records.get(key).filter(|stored| stored.is_kept(now))?;
        let Stored { document, version, created_at, expires_at } = stored;
        Some(Record {
            key: key.clone(),
            document: document.clone(),
            version: *version,
            created_at: *created_at,
            expires_at: *expires_at,
            now,
        })
    }

    fn write(
        &mut self,
        kind: RecordKind,
        record: NewRecord,
        version: Option<Version>,
        now: Timestamp,
    ) -> Result<Version> {
        let before = self.read(kind, &record.key, now);
        if before.as_ref().map(|before| before.version) != version {
            return Err(Error::Conflict(Entity::Version));
        }
        self.remove(kind, &record.key);
        self.sweep(now);
        self.writes += 1;
        let NewRecord { key, document, ttl } = record;
        let created_at = before.map_or(now, |before| before.created_at);
        let stored =
            Stored { document, version: Version(self.writes), created_at, expires_at: ttl.map(|ttl| now.after(ttl)) };
        self.expiring.extend(stored.expires_at.map(|expires_at| (expires_at, kind, key.clone())));
        let of_kind = self.kinds.entry(kind).or_default();
        of_kind.places.insert(RecordPlace { created_at, key: key.clone() });
        of_kind.records.insert(key, stored);
        Ok(Version(self.writes))
    }

    fn remove(&mut self, kind: RecordKind, key: &RecordKey) {
        let Some(of_kind) = self.kinds.get_mut(&kind) else { return };
        let Some(stored) = of_kind.records.remove(key) else { return };
        of_kind.places.remove(&RecordPlace { created_at: stored.created_at, key: key.clone() });
        if let Some(expires_at) = stored.expires_at {
            self.expiring.remove(&(expires_at, kind, key.clone()));
        }
    }

    /// Deletes some expired records: more than a write can add.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEPT {
            let Some((_, kind, key)) = self.expiring.first().filter(|(at, ..)| *at <= now).cloned() else { return };
            self.remove(kind, &key);
        }
    }
}

impl Stored {
    /// Returns whether the record's time is not over.
    fn is_kept(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expired_records_are_deleted_by_later_writes() {
        let mut records = Records::default();
        let mut write = |key: String, ttl: u64, now: i64| {
            let key = key.parse().unwrap();
            let record = NewRecord { key, document: "{}".to_owned(), ttl: Some(Duration::from_millis(ttl)) };
            records.write(RecordKind::Session, record, None, Timestamp::from_millis(now)).unwrap();
            let of_kind = &records.kinds[&RecordKind::Session];
            assert_eq!(of_kind.records.len(), of_kind.places.len());
            assert_eq!(of_kind.records.len(), records.expiring.len());
            of_kind.records.len()
        };
        let stored: Vec<usize> = (0..30).map(|number| write(format!("old{number}"), 10, 0)).collect();
        assert_eq!(stored.last(), Some(&30));
        let stored = [0, 1, 2, 3].map(|number| write(format!("new{number}"), 10, 15));
        assert_eq!(stored, [21, 12, 3, 4]);
    }
}
