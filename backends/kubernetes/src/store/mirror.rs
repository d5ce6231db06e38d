//! Everything that this process has seen of the store: from its watches, and from its own reads and writes.
//!
//! The mirror may be behind. A list of apps and the search for work are answered from it; every other answer is a fresh
//! read, or is guarded by the version of the `App`.
//!
//! Of an app, its record is kept: some kilobytes, as no evidence is in it once that is archived. Of an archived deploy,
//! 40 bytes are kept, and 80 more for its idempotency key.

mod deploys;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::ObjectMeta;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision, Status},
    ledger::{AppState, KeyUse},
    ports::{AppPage, Version},
};
use tokio::sync::watch;

pub(crate) use self::deploys::KnownDeploy;
use self::deploys::KnownDeploys;
use super::{
    StoreClock,
    app_record::{AppRecord, KeyHash, is_copy, named, version},
    crd::{AppObject, UID_LABEL},
};

/// The shortest time between two complete lists because the cluster's store has gone back.
const WENT_BACK: Duration = Duration::from_secs(30);

/// Everything seen.
pub(crate) struct Mirror {
    clock: StoreClock,
    state: Mutex<State>,
    /// The kinds whose first list was seen.
    listed: watch::Sender<Kinds<bool>>,
    /// The number of times that everything had to be listed anew.
    relists: watch::Sender<u64>,
}

/// A value for each kind of object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds<T> {
    pub(crate) apps: T,
    pub(crate) deploys: T,
}

/// The namespace and the name of an `App`.
type Name = (String, String);

#[derive(Default)]
struct State {
    apps: BTreeMap<Name, SeenApp>,
    names: HashMap<AppUid, Name>,
    /// By namespace as well, so that copies in other namespaces are no deploys of the app.
    deploys: HashMap<(String, AppUid), KnownDeploys>,
    /// The number of the list that began last.
    listing: Kinds<u32>,
    went_back: Option<Duration>,
}

struct SeenApp {
    version: Version,
    /// The list that has shown the object, or during which it was noted.
    listing: u32,
    record: Result<Arc<AppRecord>, Damaged>,
}

/// An `App` that cannot be read.
struct Damaged {
    uid: Option<AppUid>,
    why: String,
}

impl Mirror {
    pub(crate) fn new(clock: StoreClock) -> Self {
        let (listed, relists) = (watch::Sender::default(), watch::Sender::default());
        Self { clock, state: Mutex::default(), listed, relists }
    }

    /// Returns once the first lists have been seen.
    pub(crate) async fn listed(&self, kinds: impl Fn(&Kinds<bool>) -> bool) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.listed.subscribe().wait_for(kinds).await;
    }

    /// Changes when everything must be listed anew.
    pub(crate) fn relists(&self) -> watch::Receiver<u64> {
        self.relists.subscribe()
    }

    /// The app of this uid.
    pub(crate) fn app(&self, uid: AppUid) -> Option<Arc<AppRecord>> {
        let state = self.lock();
        let seen = state.apps.get(state.names.get(&uid)?)?;
        seen.record.as_ref().ok().filter(|record| record.state.app.uid == uid).cloned()
    }

    /// The app of this name.
    pub(crate) fn named(&self, id: &AppId) -> Option<Arc<AppRecord>> {
        let name = (id.namespace.to_string(), id.name.to_string());
        self.lock().apps.get(&name)?.record.as_ref().ok().cloned()
    }

    /// A part of the list of apps, by namespace and name.
    pub(crate) fn list(&self, page: &AppPage) -> Result<Vec<AppState>> {
        let first = (page.namespace.as_ref().map(ToString::to_string).unwrap_or_default(), String::new());
        let after = page.after.as_ref().map(|id| (id.namespace.to_string(), id.name.to_string()));
        let from = match after {
            Some(after) if after >= first => Bound::Excluded(after),
            Some(_) | None => Bound::Included(first),
        };
        let state = self.lock();
        let apps = state.apps.range((from, Bound::Unbounded));
        let apps = apps.take_while(|(name, _)| page.namespace.as_ref().is_none_or(|wanted| *name.0 == *wanted.as_str()));
        let states = apps.take(page.limit).map(|(_, seen)| match &seen.record {
            Ok(record) => Ok(record.state.clone()),
            Err(damaged) => Err(Error::Corrupt { what: damaged.why.clone(), cause: None }),
        });
        states.collect()
    }

    /// The apps that are picked; an app that cannot be read is none of them.
    pub(crate) fn pick(&self, picks: impl Fn(&AppRecord) -> bool) -> Vec<Arc<AppRecord>> {
        let state = self.lock();
        let records = state.apps.values().filter_map(|seen| seen.record.as_ref().ok());
        records.filter(|record| picks(record)).cloned().collect()
    }

    /// The uids of the apps that cannot be read.
    pub(crate) fn damaged(&self) -> Vec<AppUid> {
        self.lock().apps.values().filter_map(|seen| seen.record.as_ref().err()?.uid).collect()
    }

    /// Notes an `App` as a watch has shown it. Returns its uid and version if that is news.
    pub(crate) fn note_app(&self, object: AppObject, listed: bool) -> Option<(AppUid, Version)> {
        if is_copy(&object) {
            return None;
        }
        let metadata = &object.metadata;
        let name = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let at = version(metadata).unwrap_or(Version(0));
        let uid = metadata.labels.as_ref().and_then(|labels| labels.get(UID_LABEL)?.parse().ok());
        let record = AppRecord::read(object).map(Arc::new).map_err(|error| Damaged { uid, why: error.chain() });
        let known = record.as_ref().map_or(uid, |record| Some(record.state.app.uid));
        if let Err(damaged) = &record {
            tracing::warn!(app = format!("{}/{}", name.0, name.1), error = damaged.why, "reading an app failed");
        }
        let is_news = self.lock().note(name, at, record, listed);
        known.filter(|_| is_news).map(|uid| (uid, at))
    }

    /// Notes a record that this process has read or written.
    pub(crate) fn note_record(&self, record: &Arc<AppRecord>) {
        let id = record.id();
        let name = (id.namespace.to_string(), id.name.to_string());
        self.lock().note(name, record.version, Ok(record.clone()), false);
    }

    /// An `App` is gone, as far as it was known in this version or an older one. Returns its uid if it was known.
    pub(crate) fn forget_app(&self, metadata: &ObjectMeta) -> Option<AppUid> {
        let name = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let at = version(metadata).unwrap_or(Version(u64::MAX));
        let mut state = self.lock();
        let known = state.apps.get(&name).is_some_and(|seen| seen.version <= at);
        known.then(|| state.remove(&name)).flatten()
    }

    /// A read has shown an app older than it was known: the cluster's store was restored from a copy, so that nothing of
    /// what is known holds. Everything is listed anew, at most once in a while.
    pub(crate) fn went_back(&self, record: &AppRecord) {
        tracing::warn!(app = named(&record.metadata), "reading everything anew: the cluster's store has gone back");
        let now = self.clock.elapsed();
        let mut state = self.lock();
        state.remove(&(record.namespace().to_owned(), record.id().name.to_string()));
        if state.went_back.is_none_or(|at| now >= at + WENT_BACK) {
            state.went_back = Some(now);
            self.relists.send_modify(|times| *times += 1);
        }
    }

    /// A list of apps begins.
    pub(crate) fn apps_listing(&self) {
        self.lock().listing.apps += 1;
    }

    /// The list is complete: an app that it has not shown is gone, unless it was noted since the list began.
    pub(crate) fn apps_listed(&self) {
        let mut state = self.lock();
        let listing = state.listing.apps;
        let gone: Vec<Name> = state.apps.iter().filter(|(_, seen)| seen.listing != listing).map(|(name, _)| name.clone()).collect();
        for name in gone {
            state.remove(&name);
        }
        drop(state);
        self.listed.send_modify(|kinds| kinds.apps = true);
    }

    /// A list of `AppDeploy`s begins: it shows each deploy that the apps, as they are known now, have archived.
    pub(crate) fn deploys_listing(&self) {
        let mut state = self.lock();
        state.listing.deploys += 1;
        let State { apps, deploys, .. } = &mut *state;
        for record in apps.values().filter_map(|seen| seen.record.as_ref().ok()) {
            deploys.entry(key(record)).or_default().expect(record);
        }
    }

    /// The list is complete; see [`Mirror::apps_listed`].
    pub(crate) fn deploys_listed(&self) {
        let mut state = self.lock();
        let listing = state.listing.deploys;
        state.deploys.values_mut().for_each(|deploys| deploys.listed(listing));
        state.deploys.retain(|_, deploys| !deploys.is_empty());
        drop(state);
        self.listed.send_modify(|kinds| kinds.deploys = true);
    }

    /// Notes an `AppDeploy` as it was read, written, or shown by a watch.
    pub(crate) fn note_deploy(&self, metadata: ObjectMeta, listed: bool) {
        let Some((key, revision, mut known)) = KnownDeploy::read(metadata, self.clock.now()) else { return };
        let mut state = self.lock();
        let is_terminal = known.status.is_terminal();
        known.listing = state.listing.deploys;
        state.deploys.entry(key.clone()).or_default().note(revision, known, listed);
        if is_terminal {
            state.drop_archived(&key, revision);
        }
    }

    /// An `AppDeploy` is gone.
    pub(crate) fn forget_deploy(&self, namespace: &str, uid: AppUid, revision: Revision) {
        if let Some(deploys) = self.lock().deploys.get_mut(&(namespace.to_owned(), uid)) {
            deploys.forget(revision);
        }
    }

    /// A watch has shown that an `AppDeploy` is gone.
    pub(crate) fn forget_seen_deploy(&self, metadata: ObjectMeta) {
        let Some((key, revision, gone)) = KnownDeploy::read(metadata, self.clock.now()) else { return };
        let mut state = self.lock();
        let Some(deploys) = state.deploys.get_mut(&key) else { return };
        if deploys.get(revision).is_some_and(|known| known.version <= gone.version) {
            deploys.forget(revision);
        }
    }

    /// Whether an `AppDeploy` is known in this version or a newer one.
    pub(crate) fn has_seen(&self, metadata: &ObjectMeta) -> bool {
        let Some((key, revision, stored)) = KnownDeploy::read(metadata.clone(), self.clock.now()) else { return true };
        let state = self.lock();
        let known = state.deploys.get(&key).and_then(|deploys| deploys.get(revision));
        known.is_some_and(|known| known.version >= stored.version)
    }

    /// What is known of a deploy of this app.
    pub(crate) fn deploy(&self, record: &AppRecord, revision: Revision) -> Option<KnownDeploy> {
        self.lock().deploys.get(&key(record))?.get(revision).cloned()
    }

    /// Whether the deploy's `AppDeploy` tells its status already, or a later one.
    pub(crate) fn shows(&self, record: &AppRecord, deploy: &Deploy) -> bool {
        let known = self.lock().deploys.get(&key(record)).and_then(|deploys| deploys.get(deploy.revision)).map(|known| known.status);
        known.is_some_and(|known| known.is_terminal() || known >= deploy.status())
    }

    /// The archived deploys of an app as it was read, newest first.
    pub(crate) fn archived(&self, record: &AppRecord) -> Vec<(Revision, Status)> {
        self.lock().deploys.get(&key(record)).map(|deploys| deploys.archived(record)).unwrap_or_default()
    }

    /// The revisions that have been archived when the app was as it was read, and were not seen since.
    pub(crate) fn missing(&self, record: &AppRecord) -> Vec<Revision> {
        self.lock().deploys.entry(key(record)).or_default().missing(record)
    }

    /// Every deploy that the app has archived, as it was read, was seen or is gone.
    pub(crate) fn note_complete(&self, record: &AppRecord) {
        self.lock().deploys.entry(key(record)).or_default().complete(record);
    }

    /// The newest use of an idempotency key among the deploys that have an `AppDeploy`.
    pub(crate) fn key_use(&self, record: &AppRecord, hash: KeyHash) -> Option<KeyUse> {
        self.lock().deploys.get(&key(record))?.key_use(record, hash)
    }

    /// The version in which an `App` is known.
    pub(crate) fn app_version(&self, metadata: &ObjectMeta) -> Option<Version> {
        let name = (metadata.namespace.clone()?, metadata.name.clone()?);
        self.lock().apps.get(&name).map(|seen| seen.version)
    }

    /// The number of known apps.
    pub(crate) fn len(&self) -> usize {
        self.lock().apps.len()
    }

    /// No change leaves the state half made before it could panic, so that a poisoned lock is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether that is news.
    fn note(&mut self, name: Name, version: Version, record: Result<Arc<AppRecord>, Damaged>, listed: bool) -> bool {
        let listing = self.listing.apps;
        if let Some(seen) = self.apps.get_mut(&name) {
            // A list is right about what was known when it began, also where it is older: the store was restored then.
            let is_older = version < seen.version && listed && seen.listing != listing;
            seen.listing = if listed { listing } else { seen.listing };
            if version <= seen.version && !is_older {
                return false;
            }
            let uid = |record: &Result<Arc<AppRecord>, Damaged>| record.as_ref().ok().map(|record| record.state.app.uid);
            if uid(&seen.record) != uid(&record) {
                self.remove(&name);
            }
        }
        let record = record.map(|record| self.without_archived(record));
        if let Ok(record) = &record {
            self.names.insert(record.state.app.uid, name.clone());
        }
        self.apps.insert(name, SeenApp { version, listing, record });
        true
    }

    fn remove(&mut self, name: &Name) -> Option<AppUid> {
        let uid = self.apps.remove(name)?.record.ok()?.state.app.uid;
        self.names.remove(&uid);
        self.deploys.remove(&(name.0.clone(), uid));
        Some(uid)
    }

    /// The record without the deploys that are known to be archived: their evidence is long.
    fn without_archived(&self, mut record: Arc<AppRecord>) -> Arc<AppRecord> {
        let Some(deploys) = self.deploys.get(&key(&record)) else { return record };
        let is_archived = |deploy: &Arc<Deploy>| deploys.is_archived(deploy.revision);
        if record.kept.archiving.iter().any(is_archived) {
            Arc::make_mut(&mut record).kept.archiving.retain(|deploy| !is_archived(deploy));
        }
        record
    }

    fn drop_archived(&mut self, (namespace, uid): &(String, AppUid), revision: Revision) {
        let Some(name) = self.names.get(uid).filter(|name| name.0 == *namespace) else { return };
        let Some(Ok(record)) = self.apps.get_mut(name).map(|seen| seen.record.as_mut()) else { return };
        if record.kept.archiving.iter().any(|deploy| deploy.revision == revision) {
            Arc::make_mut(record).kept.archiving.retain(|deploy| deploy.revision != revision);
        }
    }
}

fn key(record: &AppRecord) -> (String, AppUid) {
    (record.namespace().to_owned(), record.state.app.uid)
}

#[cfg(test)]
mod tests;
