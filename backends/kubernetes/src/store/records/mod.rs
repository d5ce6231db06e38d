//! Records, each a `ServerRecord` in our own namespace: replacing one with the resourceVersion that was read is the
//! compare-and-swap.
//!
//! ```text
//!   known to the watch ───────────────────────────── one read ─▶ the record, if its time is not over
//!   unknown ── one read, if the budget allows ─▶ none, or the record
//!            ╰ else: none, unless the watch brings it within its lag
//! ```
//!
//! So what is returned was read by this very call, and strangers, whose keys no record has, cost the API server one
//! call per second however many they are. Until the first list has been seen, each call reads, [`FIRST_READS`] at a
//! time.
//!
//! A kind of few records is listed by one call. Of a kind with more than [`LISTED_AT_ONCE`], the watch's metadata have the
//! order, and the records of a page alone are read; the oldest are removed by their names.
//!
//! Every replica deletes expired records, some at a time, an hour after their end.

mod budget;
mod object;
mod outage;
mod seen;
mod shared_lists;

use std::{cmp::Reverse, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use kube::api::ObjectMeta;
use rollhook_core::{Error, Result, error::Entity, ports::Version};
use rollhook_management::ports::{LISTED_AT_ONCE, NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};
use tokio::sync::Semaphore;

use super::{
    KubernetesStore, StoreClock,
    api::{self, ApiServer, Written},
    crd::{RECORD_LABEL, RecordObject},
};
use crate::bounded;

pub(crate) use self::seen::SeenRecords;
use self::{budget::Budget, object::StoredRecord, outage::Outage, shared_lists::SharedLists};

/// The number of attempts to write a record while others write it at the same time.
const ATTEMPTS: usize = 5;
/// The number of calls that read at the same time before the first list has been seen.
const FIRST_READS: usize = 4;
/// The time between two looks for expired records, and while there are more of them.
const SWEEPS: Duration = Duration::from_secs(10);
const MORE: Duration = Duration::from_secs(1);
/// The most records of pages that are read at the same time, by all callers together.
const READS_AT_ONCE: usize = 16;
/// The most records that are deleted at the same time.
const DELETIONS_AT_ONCE: usize = 4;
/// The most expired records that are deleted before the next look.
const AT_ONCE: usize = 100;

/// The records of one namespace, and what is known of them.
pub(crate) struct Records {
    api: ApiServer,
    clock: StoreClock,
    seen: Arc<SeenRecords>,
    budget: Budget,
    outage: Outage,
    first_reads: Semaphore,
    /// The turns to read single records of pages.
    page_reads: Semaphore,
    lists: SharedLists,
}

impl Records {
    pub(crate) fn new(api: ApiServer, clock: StoreClock) -> Self {
        Self {
            api,
            seen: Arc::default(),
            budget: Budget::new(clock.clone()),
            outage: Outage::default(),
            first_reads: Semaphore::new(FIRST_READS),
            page_reads: Semaphore::new(READS_AT_ONCE),
            lists: SharedLists::default(),
            clock,
        }
    }

    /// The records that the watch has shown.
    pub(crate) fn seen(&self) -> &Arc<SeenRecords> {
        &self.seen
    }

    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        let name = object::name(kind, key);
        if !kind.is_for_strangers() {
            return self.get(&name).await;
        }
        if !self.seen.is_listed() {
            let _turn = self.first_reads.acquire().await;
            return self.get(&name).await;
        }
        if self.seen.may_have(&name, self.clock.now()) || self.budget.take_now() {
            return self.get(&name).await;
        }
        self.outage.check(self.clock.elapsed())?;
        // Another replica may have written the record just now.
        tokio::time::sleep(self.clock.lag()).await;
        if self.seen.may_have(&name, self.clock.now()) {
            return self.get(&name).await;
        }
        self.outage.check(self.clock.elapsed())?;
        Ok(None)
    }

    /// Reads a record whose time is not over.
    async fn get(&self, name: &str) -> Result<Option<Record>> {
        Ok(self.stored(name).await?.and_then(|stored| stored.record(self.clock.now())))
    }

    /// Reads a record, whatever its time.
    async fn stored(&self, name: &str) -> Result<Option<StoredRecord>> {
        self.object(name).await?.map(StoredRecord::read).transpose()
    }

    async fn object(&self, name: &str) -> Result<Option<RecordObject>> {
        let found = api::get(&self.api.own::<RecordObject>(), name).await;
        let found = self.outage.noted(found, self.clock.elapsed())?;
        if let Some(object) = &found {
            self.seen.note(&object.metadata, false);
        }
        Ok(found)
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        match version {
            None => self.create(kind, record).await,
            Some(version) => self.replace(kind, record, version).await,
        }
    }

    async fn create(&self, kind: RecordKind, record: NewRecord) -> Result<Version> {
        let name = object::name(kind, &record.key);
        for _ in 0..ATTEMPTS {
            let new = StoredRecord::new(kind, record.clone(), self.clock.now());
            if let Some(version) = self.done(api::create(&self.api.own(), &new.object()?).await?)? {
                return Ok(version);
            }
            // Another record is there, or was until just now.
            let Some(stored) = self.stored(&name).await? else { continue };
            if !stored.is_over(self.clock.now()) {
                return Err(Error::Conflict(Entity::Version));
            }
            let new = StoredRecord::new(kind, record.clone(), self.clock.now()).in_place_of(&stored);
            if let Some(version) = self.done(api::replace(&self.api.own(), &new.object()?).await?)? {
                return Ok(version);
            }
        }
        Err(Error::Conflict(Entity::Version))
    }

    async fn replace(&self, kind: RecordKind, record: NewRecord, version: Version) -> Result<Version> {
        let stored = self.stored(&object::name(kind, &record.key)).await?;
        let fits = |stored: &StoredRecord| stored.version == version && !stored.is_over(self.clock.now());
        let Some(stored) = stored.filter(fits) else { return Err(Error::Conflict(Entity::Version)) };
        let created_at = stored.created_at();
        let next = StoredRecord::new(kind, record, self.clock.now()).in_place_of(&stored).created(created_at);
        let written = self.done(api::replace(&self.api.own(), &next.object()?).await?)?;
        written.ok_or(Error::Conflict(Entity::Version))
    }

    /// Returns the version of a written record, which is known from then on.
    fn done(&self, written: Written<RecordObject>) -> Result<Option<Version>> {
        let Written::Done(object) = written else { return Ok(None) };
        self.seen.note(&object.metadata, false);
        super::app_record::version(&object.metadata).map(Some)
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        let named = ObjectMeta { name: Some(object::name(kind, key)), ..ObjectMeta::default() };
        api::delete(&self.api.own::<RecordObject>(), &named).await.map(drop)
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        let is_large = self.seen.is_listed() && self.seen.has_more_than(kind, LISTED_AT_ONCE, self.clock.now());
        if !is_large {
            let (of_kind, most) = (format!("{RECORD_LABEL}={kind}"), u32::try_from(LISTED_AT_ONCE).unwrap_or(u32::MAX));
            let list =
                async || api::list_at_most(&self.api.own(), &of_kind, most).await.map(|objects| objects.map(Arc::from));
            if let Some(objects) = self.lists.list(kind, list).await? {
                return Ok(self.page_of(&objects, after, limit));
            }
        }
        self.seen.listed().await;
        self.page_of_many(kind, after, limit).await
    }

    /// A page of all records of a kind.
    fn page_of(&self, objects: &[RecordObject], after: Option<RecordPlace>, limit: usize) -> Vec<Record> {
        let now = self.clock.now();
        let objects = objects.iter().cloned();
        let mut records: Vec<Record> = objects.filter_map(|object| readable(object)?.record(now)).collect();
        records.retain(|record| after.as_ref().is_none_or(|after| record.place() < *after));
        records.sort_by_cached_key(|record| Reverse(record.place()));
        records.truncate(limit);
        records
    }

    /// A page whose records the watch has shown; they alone are read.
    async fn page_of_many(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        let (mut records, mut after) = (Vec::new(), after);
        while records.len() < limit {
            let wanted = limit - records.len();
            let places = self.seen.page(kind, after.as_ref(), wanted, self.clock.now());
            let is_last = places.len() < wanted;
            after = places.last().map(|(place, _)| place.clone());
            let reads = places.into_iter().map(|(place, name)| async move {
                let _turn = self.page_reads.acquire().await;
                (place, self.object(&name).await)
            });
            let reads: Vec<BoxFuture<'_, _>> = reads.map(FutureExt::boxed).collect();
            let mut found = stream::iter(reads).buffered(READS_AT_ONCE);
            while let Some((place, object)) = found.next().await {
                let record = object?.and_then(readable).and_then(|stored| stored.record(self.clock.now()));
                // One that was written anew since has another place.
                records.extend(record.filter(|record| record.place() == place));
            }
            if is_last {
                break;
            }
        }
        Ok(records)
    }

    /// Deletes all but the newest `keep` records of a kind, as the watch has shown them.
    async fn remove_oldest(&self, kind: RecordKind, keep: usize) -> Result<usize> {
        self.seen.listed().await;
        self.delete(&self.seen.oldest(kind, keep, self.clock.now())).await
    }

    /// Deletes records as they were seen, some at the same time; returns how many were there.
    async fn delete(&self, records: &[(String, Version)]) -> Result<usize> {
        let deletions = records.iter().map(|(name, version)| async move {
            let deleted = api::delete(&self.api.own::<RecordObject>(), &object::as_seen(name, *version)).await?;
            match deleted {
                Written::Done(()) | Written::Gone => self.seen.forget(name, *version),
                // Rewritten or deleted since, which the watch shows.
                Written::Conflict => {}
            }
            Ok::<_, Error>(usize::from(matches!(deleted, Written::Done(()))))
        });
        let deletions: Vec<BoxFuture<'_, _>> = deletions.map(FutureExt::boxed).collect();
        stream::iter(deletions).buffered(DELETIONS_AT_ONCE).try_fold(0, |all, one| async move { Ok(all + one) }).await
    }

    /// Deletes expired records for as long as the store lives.
    pub(crate) async fn sweep(&self) {
        let mut pause = SWEEPS;
        loop {
            tokio::time::sleep(pause).await;
            let expired = self.seen.expired(self.clock.now(), AT_ONCE);
            pause = if expired.len() == AT_ONCE { MORE } else { SWEEPS };
            if let Err(error) = self.delete(&expired).await {
                tracing::debug!(error = error.chain(), "deleting expired records failed");
                pause = SWEEPS;
            }
        }
    }
}

/// Reads an object of a list: one that is damaged must not hide the others.
fn readable(object: RecordObject) -> Option<StoredRecord> {
    let stored = StoredRecord::read(object);
    stored.inspect_err(|error| tracing::error!(error = %error.chain(), "reading a record failed")).ok()
}

#[async_trait]
impl RecordStore for KubernetesStore {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        bounded(self.records.read(kind, key)).await
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        bounded(self.records.write(kind, record, version)).await
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        bounded(self.records.remove(kind, key)).await
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        bounded(self.records.list(kind, after, limit)).await
    }

    async fn remove_oldest(&self, kind: RecordKind, keep: usize) -> Result<usize> {
        // Each of its calls has a deadline; their number has none.
        self.records.remove_oldest(kind, keep).await
    }
}
