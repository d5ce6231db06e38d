//! The records in memory, with one promise broken.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Handles, Stores};
use rollhook_core::{Error, Result, app::AppUid, deploy::Revision, error::Entity, ports::Version};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};

use crate::store::{BrokenStore, BrokenStores, StorePromise};

/// A promise of records that is broken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordPromise {
    /// All of them are kept.
    Kept,
    /// The version is checked and the record written as one step: here another thread gets in between.
    WriteIsOneStep,
    /// A write of what is stored makes another version: here it is left out, as by some servers.
    EachWriteCounts,
    /// No version is used twice: here each record counts its own.
    VersionsGrow,
    /// A returned record was read from the store: here it is remembered.
    ReadIsFresh,
    /// A record is gone once its time is over: here a handle that has read it goes on to return it.
    ExpiredIsGone,
    /// A record keeps its place: here a write moves it to the front.
    PlacesStay,
    /// A write that was answered is on the disk: here none ever gets there.
    WritesAreDurable,
}

/// Fresh stores whose records break a promise.
pub(crate) struct BrokenRecordStores {
    promise: RecordPromise,
    stores: BrokenStores,
    /// The number of writes of each record, as its version.
    counts: Arc<Mutex<BTreeMap<RecordKey, u64>>>,
}

impl BrokenRecordStores {
    pub(crate) fn new(promise: RecordPromise) -> Self {
        Self { promise, stores: BrokenStores(BrokenStore::new(StorePromise::Kept)), counts: Arc::default() }
    }
}

struct BrokenRecords {
    promise: RecordPromise,
    inner: Arc<dyn RecordStore>,
    remembered: Mutex<BTreeMap<RecordKey, Record>>,
    counts: Arc<Mutex<BTreeMap<RecordKey, u64>>>,
}

impl BrokenRecords {
    /// Checks the version, and then writes on whatever is stored by then.
    async fn write_in_two_steps(
        &self,
        kind: RecordKind,
        record: NewRecord,
        version: Option<Version>,
    ) -> Result<Version> {
        let mut stored = self.inner.read(kind, &record.key).await?.map(|stored| stored.version);
        if stored != version {
            return Err(Error::Conflict(Entity::Version));
        }
        std::thread::yield_now();
        loop {
            match self.inner.write(kind, record.clone(), stored).await {
                Err(Error::Conflict(Entity::Version)) => {
                    stored = self.inner.read(kind, &record.key).await?.map(|stored| stored.version);
                }
                answer => return answer,
            }
        }
    }

    /// Leaves a write out that changes nothing.
    async fn write_what_differs(
        &self,
        kind: RecordKind,
        record: NewRecord,
        version: Option<Version>,
    ) -> Result<Version> {
        let stored = self.inner.read(kind, &record.key).await?;
        match stored.filter(|stored| Some(stored.version) == version && stored.document == record.document) {
            Some(same) => Ok(same.version),
            None => self.inner.write(kind, record, version).await,
        }
    }

    /// Writes with versions that begin anew with each record.
    async fn write_counted(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        let key = record.key.clone();
        let stored = self.inner.read(kind, &key).await?.map(|stored| stored.version);
        let counted = stored.map(|_| self.count(&key));
        if counted != version {
            return Err(Error::Conflict(Entity::Version));
        }
        self.inner.write(kind, record, stored).await?;
        *self.counts.lock().unwrap().entry(key.clone()).or_default() += 1;
        Ok(self.count(&key))
    }

    fn count(&self, key: &RecordKey) -> Version {
        Version(self.counts.lock().unwrap().get(key).copied().unwrap_or_default())
    }

    /// Writes a record as if it were new.
    async fn write_anew(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        if version.is_some() {
            self.inner.remove(kind, &record.key).await?;
        }
        self.inner.write(kind, record, None).await
    }
}

#[async_trait]
impl RecordStore for BrokenRecords {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        let remembered = self.remembered.lock().unwrap().get(key).cloned();
        if self.promise == RecordPromise::ReadIsFresh && remembered.is_some() {
            return Ok(remembered);
        }
        let Some(mut record) = self.inner.read(kind, key).await? else {
            return Ok(remembered.filter(|_| self.promise == RecordPromise::ExpiredIsGone));
        };
        if self.promise == RecordPromise::VersionsGrow {
            record.version = self.count(key);
        }
        self.remembered.lock().unwrap().insert(key.clone(), record.clone());
        Ok(Some(record))
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        self.remembered.lock().unwrap().remove(&record.key);
        match self.promise {
            RecordPromise::WriteIsOneStep => self.write_in_two_steps(kind, record, version).await,
            RecordPromise::EachWriteCounts => self.write_what_differs(kind, record, version).await,
            RecordPromise::VersionsGrow => self.write_counted(kind, record, version).await,
            RecordPromise::PlacesStay => self.write_anew(kind, record, version).await,
            RecordPromise::Kept
            | RecordPromise::WritesAreDurable
            | RecordPromise::ReadIsFresh
            | RecordPromise::ExpiredIsGone => self.inner.write(kind, record, version).await,
        }
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        self.remembered.lock().unwrap().remove(key);
        self.counts.lock().unwrap().remove(key);
        self.inner.remove(kind, key).await
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        self.inner.list(kind, after, limit).await
    }
}

#[async_trait]
impl Stores for BrokenRecordStores {
    async fn open(&self) -> Handles {
        let handles = self.stores.open().await;
        let inner = handles.records.clone().unwrap();
        let (promise, counts) = (self.promise, self.counts.clone());
        let records = BrokenRecords { promise, inner, remembered: Mutex::default(), counts };
        Handles { records: Some(Arc::new(records)), ..handles }
    }

    async fn reopen(&self) -> Can<Handles> {
        match self.promise {
            RecordPromise::WritesAreDurable => Ok(Self::new(RecordPromise::Kept).open().await),
            _ => Ok(self.open().await),
        }
    }

    async fn pause(&self, time: Duration) {
        self.stores.pause(time).await;
    }

    async fn advance(&self, time: Duration) -> Can {
        self.stores.advance(time).await
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.stores.set_back(time).await
    }

    async fn corrupt_state(&self, app: AppUid) -> Can {
        self.stores.corrupt_state(app).await
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        self.stores.corrupt_entry(app, revision).await
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        self.stores.raw_bytes().await
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        self.stores.move_secret(from, to).await
    }
}
