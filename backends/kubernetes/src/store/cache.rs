//! The cache: apps and archived deploys, from the watches and from this process's own reads and writes.
//!
//! The cache may be behind. A list of apps and the search for work are answered from it; every other answer is a fresh
//! read, or is guarded by the version of the `RollhookApp`.
//!
//! Of an app, its record is kept: some kilobytes, as no evidence is in it once that is archived. Of an archived deploy,
//! about 80 bytes are kept, and 80 more for its idempotency key.

mod claims;
mod deploys;
mod table;

use std::{
    collections::HashMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use kube::{api::ObjectMeta, core::PartialObjectMeta, runtime::watcher::Event};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision, Status},
    ledger::KeyUse,
    ports::{AppChange, AppPage, ListedApp, UnreadableApp, Version},
};
use tokio::sync::watch;

pub(crate) use self::claims::Claim;
pub(crate) use self::table::Table;
use self::{
    claims::Claims,
    deploys::{ArchiveCoverage, KnownDeploy},
};
use super::{
    StoreClock,
    app_record::{AppRecord, KeyHash, is_copy, version},
    crd::{AppObject, DeployObject},
    hand_made,
};
use crate::lock;

/// The shortest time between two complete lists because the cluster's store has gone back.
const WENT_BACK: Duration = Duration::from_secs(30);

/// The apps and the archived deploys as they were seen last.
pub(crate) struct Cache {
    clock: StoreClock,
    state: Mutex<State>,
    /// The kinds whose first list was seen: apps, and deploys.
    listed: watch::Sender<(bool, bool)>,
    /// The number of times that everything had to be listed anew.
    relists: watch::Sender<u64>,
}

/// The namespace and the name of a `RollhookApp`.
type Name = (String, String);

#[derive(Default)]
struct State {
    apps: Table<Name, SeenApp>,
    /// The objects that hold the uids of apps: exactly the rows that have a uid.
    claims: Claims,
    /// The `AppDeploy`s of known apps.
    deploys: Table<(AppUid, Revision), KnownDeploy>,
    coverage: HashMap<AppUid, ArchiveCoverage>,
    /// The coverage from the end of the list of `AppDeploy`s that is under way.
    expected: HashMap<AppUid, ArchiveCoverage>,
    went_back: Option<Duration>,
}

/// An app's record, or why it cannot be read.
type SeenApp = Result<Arc<AppRecord>, Damaged>;

/// A `RollhookApp` that cannot be read, or is no app.
struct Damaged {
    /// The uid that the object holds all the same.
    uid: Option<AppUid>,
    why: String,
}

/// The effect of an object that was noted.
#[derive(Default)]
struct Noted {
    /// The uid that the object holds, if that is news.
    uid: Option<AppUid>,
    /// Why the object is no app, if another one holds its uid and that is news.
    denied: Option<String>,
}

impl Cache {
    pub(crate) fn new(clock: StoreClock) -> Self {
        let (listed, relists) = (watch::Sender::default(), watch::Sender::default());
        Self { clock, state: Mutex::default(), listed, relists }
    }

    /// Returns once the first list of apps has been seen.
    pub(crate) async fn apps_listed(&self) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.listed.subscribe().wait_for(|(apps, _)| *apps).await;
    }

    /// Returns once all first lists have been seen.
    pub(crate) async fn all_listed(&self) {
        let _ = self.listed.subscribe().wait_for(|(apps, deploys)| *apps && *deploys).await;
    }

    /// Changes when everything must be listed anew.
    pub(crate) fn relists(&self) -> watch::Receiver<u64> {
        self.relists.subscribe()
    }

    /// The app of this uid.
    pub(crate) fn app(&self, uid: AppUid) -> Option<Arc<AppRecord>> {
        let state = self.lock();
        state.apps.get(&state.claims.holder(uid)?.name)?.as_ref().ok().cloned()
    }

    /// The name of the app that holds this uid. Returns `None` if another one may turn out to hold it.
    pub(crate) fn holder(&self, uid: AppUid) -> Option<AppId> {
        let state = self.lock();
        let (namespace, name) = &state.claims.settled(uid)?.name;
        Some(AppId { namespace: namespace.parse().ok()?, name: name.parse().ok()? })
    }

    /// Takes the objects that were denied a uid that another one holds, and why.
    pub(crate) fn take_denied(&self) -> Vec<(ObjectMeta, String)> {
        self.lock().claims.take_denied()
    }

    /// The app of this name.
    pub(crate) fn named(&self, id: &AppId) -> Option<Arc<AppRecord>> {
        self.lock().apps.get(&name(id))?.as_ref().ok().cloned()
    }

    /// A part of the list of apps, by namespace and name.
    pub(crate) fn list(&self, page: &AppPage) -> Vec<ListedApp> {
        let first = (page.namespace.as_ref().map(ToString::to_string).unwrap_or_default(), String::new());
        let after = page.after.as_ref().map(name).filter(|after| *after >= first);
        let from = after.map_or(Bound::Included(first), Bound::Excluded);
        let is_of = |namespace: &str| page.namespace.as_ref().is_none_or(|wanted| namespace == wanted.as_str());
        let state = self.lock();
        let apps = state.apps.rows().range((from, Bound::Unbounded)).take_while(|(name, _)| is_of(&name.0));
        // An object whose name is no app's was logged when it was seen.
        let listed = apps.filter_map(|((namespace, name), row)| match &row.value {
            Ok(record) => Some(Ok(record.state.clone())),
            Err(damaged) => {
                let id = AppId { namespace: namespace.parse().ok()?, name: name.parse().ok()? };
                Some(Err(UnreadableApp { id, error: Error::Corrupt { what: damaged.why.clone(), cause: None } }))
            }
        });
        listed.take(page.limit).collect()
    }

    /// Whether no app is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().apps.rows().is_empty()
    }

    /// The apps that are picked, and the uids of those that cannot be read.
    pub(crate) fn pick(&self, picks: impl Fn(&AppRecord) -> bool) -> (Vec<Arc<AppRecord>>, Vec<AppUid>) {
        let (mut picked, mut damaged) = (Vec::new(), Vec::new());
        for row in self.lock().apps.rows().values() {
            match &row.value {
                Ok(record) if picks(record) => picked.push(record.clone()),
                Ok(_) => {}
                Err(app) => damaged.extend(app.uid),
            }
        }
        (picked, damaged)
    }

    /// Notes what the watch of apps shows. Returns a hint if that is news.
    pub(crate) fn app_event(&self, event: Event<AppObject>) -> Option<AppChange> {
        match event {
            Event::Init => {
                let mut state = self.lock();
                state.apps.list_begins();
                state.claims.list_begins();
            }
            Event::InitApply(object) => return self.note_app(object, true),
            Event::Apply(object) => return self.note_app(object, false),
            Event::Delete(object) => {
                let app = self.forget_app(&object.metadata, version(&object.metadata).ok()?);
                return app.map(|app| AppChange::App(app, Version::REMOVED));
            }
            Event::InitDone => {
                let mut state = self.lock();
                for name in state.apps.not_listed() {
                    state.remove(&name);
                }
                state.claims.list_ends();
                drop(state);
                self.listed.send_modify(|(apps, _)| *apps = true);
                // Hints may have been lost while nothing was watched.
                return Some(AppChange::Any);
            }
        }
        None
    }

    fn note_app(&self, object: AppObject, listed: bool) -> Option<AppChange> {
        if is_copy(&object) {
            return None;
        }
        let (claim, at) = (Claim::of(&object.metadata), version(&object.metadata).ok()?);
        let (uid, is_told) = (hand_made::uid(&object), hand_made::is_told(&object));
        let message = hand_made::message(&object).map(str::to_owned);
        let seen = AppRecord::read(object).map(Arc::new).map_err(|error| Damaged { uid, why: error.chain() });
        if let Err(damaged) = &seen
            && !is_told
        {
            let app = format!("{}/{}", claim.name.0, claim.name.1);
            tracing::warn!(app, error = damaged.why, "reading an app failed");
        }
        let noted = self.lock().note(&claim, at, seen, listed);
        if let Some(why) = noted.denied.filter(|why| message.as_ref() != Some(why)) {
            let app = format!("{}/{}", claim.name.0, claim.name.1);
            tracing::warn!(app, error = why, "ignoring an object with the uid of another app");
            self.lock().claims.deny(&claim, why);
        }
        Some(AppChange::App(noted.uid?, at))
    }

    /// Notes a record that this process has read or written. Returns why it is no app, if another object holds its uid.
    pub(crate) fn note_record(&self, record: &Arc<AppRecord>) -> Option<String> {
        let (claim, uid) = (Claim::of(&record.metadata), record.state.app.uid);
        let mut state = self.lock();
        state.note(&claim, record.version, Ok(record.clone()), false);
        let keeper = state.claims.holder(uid).filter(|holder| holder.name != claim.name)?;
        Some(keeper.why_denied(&claim))
    }

    /// A `RollhookApp` is gone, as it was known in this version or an older one. Returns its uid if it was known.
    pub(crate) fn forget_app(&self, metadata: &ObjectMeta, at: Version) -> Option<AppUid> {
        let (name, mut state) = (object_name(metadata), self.lock());
        state.apps.is_known_by(&name, at).then(|| state.remove(&name)).flatten()
    }

    /// A read has shown an app older than it was known before: the cluster's store was restored from a copy, so that
    /// nothing of what is known holds. Everything is listed anew, at most once in a while.
    pub(crate) fn went_back(&self, record: &AppRecord) {
        tracing::warn!(app = %record.id(), "reading everything anew: the cluster's store has gone back");
        let now = self.clock.elapsed();
        let mut state = self.lock();
        state.remove(&name(record.id()));
        if state.went_back.is_none_or(|at| now >= at + WENT_BACK) {
            state.went_back = Some(now);
            self.relists.send_modify(|times| *times += 1);
        }
    }

    /// Notes what the watch of `AppDeploy`s shows.
    pub(crate) fn deploy_event(&self, event: Event<PartialObjectMeta<DeployObject>>) {
        match event {
            Event::Init => {
                let mut state = self.lock();
                state.deploys.list_begins();
                // The list will show each deploy that the apps, as they are known now, have archived.
                let records = state.apps.rows().values().filter_map(|row| row.value.as_ref().ok());
                state.expected = records.map(|record| (record.state.app.uid, ArchiveCoverage::of(record))).collect();
            }
            Event::InitApply(object) => self.note_deploy(object.metadata, true),
            Event::Apply(object) => self.note_deploy(object.metadata, false),
            Event::Delete(object) => {
                let (Some(key), Ok(at)) = (KnownDeploy::named(&object.metadata), version(&object.metadata)) else {
                    return;
                };
                let mut state = self.lock();
                if state.is_within(key.0, &object.metadata) && state.deploys.is_known_by(&key, at) {
                    state.deploys.remove(&key);
                }
            }
            Event::InitDone => {
                let mut state = self.lock();
                for key in state.deploys.not_listed() {
                    state.deploys.remove(&key);
                }
                state.coverage = std::mem::take(&mut state.expected);
                drop(state);
                self.listed.send_modify(|(_, deploys)| *deploys = true);
            }
        }
    }

    /// Notes an `AppDeploy`. One of an app that is not known yet is read once it is asked for.
    pub(crate) fn note_deploy(&self, metadata: ObjectMeta, listed: bool) {
        let (Some(key), Ok(at)) = (KnownDeploy::named(&metadata), version(&metadata)) else { return };
        let mut state = self.lock();
        if !state.is_within(key.0, &metadata) {
            return;
        }
        let known = KnownDeploy::read(metadata, key.1, self.clock.now());
        let is_archived = known.status.is_terminal();
        state.deploys.note(key, at, known, listed);
        if is_archived {
            state.drop_archived(key.0);
        }
    }

    /// An `AppDeploy` is gone.
    pub(crate) fn forget_deploy(&self, uid: AppUid, revision: Revision) {
        self.lock().deploys.remove(&(uid, revision));
    }

    /// The metadata of the `AppDeploy` of a deploy that has not ended.
    pub(crate) fn unfinished(&self, uid: AppUid, revision: Revision) -> Option<ObjectMeta> {
        let known = self.lock().deploys.get(&(uid, revision))?.metadata.clone();
        known.map(|metadata| *metadata)
    }

    /// Whether the `AppDeploy` tells the deploy's status already, or a later one.
    pub(crate) fn shows(&self, uid: AppUid, deploy: &Deploy) -> bool {
        self.lock().deploys.get(&(uid, deploy.revision)).is_some_and(|known| known.shows(deploy))
    }

    /// The archived deploys of an app as it was read, newest first.
    pub(crate) fn archived(&self, record: &AppRecord) -> Vec<(Revision, Status)> {
        let state = self.lock();
        let archived = state.deploys_of(record).filter(|(_, known)| known.status.is_terminal());
        let archived = archived.map(|(revision, known)| (revision, known.status));
        archived.filter(|(revision, _)| !record.is_open(*revision)).collect()
    }

    /// The revisions that an app had archived when it was read, and that were not seen since.
    pub(crate) fn missing(&self, record: &AppRecord) -> Vec<Revision> {
        let (uid, nothing, state) = (record.state.app.uid, ArchiveCoverage::default(), self.lock());
        let since = state.coverage.get(&uid).unwrap_or(&nothing).since(record);
        since.filter(|revision| !state.is_archived(uid, *revision)).collect()
    }

    /// Each deploy that the app had archived when it was read was seen, or is gone.
    pub(crate) fn note_complete(&self, record: &AppRecord) {
        self.lock().coverage.insert(record.state.app.uid, ArchiveCoverage::of(record));
    }

    /// The newest use of an idempotency key among the deploys of an app that have an `AppDeploy`.
    pub(crate) fn key_use(&self, record: &AppRecord, hash: KeyHash) -> Option<KeyUse> {
        let state = self.lock();
        let mut keys = state.deploys_of(record).filter_map(|(_, known)| known.key.as_ref());
        keys.find(|key| key.0 == hash).map(|key| key.1)
    }

    /// The version in which a `RollhookApp` is known.
    pub(crate) fn version(&self, metadata: &ObjectMeta) -> Option<Version> {
        self.lock().apps.rows().get(&object_name(metadata)).map(|row| row.version)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn note(&mut self, claim: &Claim, version: Version, seen: SeenApp, listed: bool) -> Noted {
        let name = &claim.name;
        let keeper = uid_of(&seen).and_then(|uid| self.claims.keeper(uid, claim));
        let denied = keeper.map(|keeper| keeper.why_denied(claim));
        let seen = match &denied {
            Some(why) => Err(Damaged { uid: None, why: why.clone() }),
            None => seen,
        };
        let (before, uid) = (self.apps.get(name).and_then(uid_of), uid_of(&seen));
        if !self.apps.note(name.clone(), version, seen, listed) {
            return Noted::default();
        }
        if let Some(before) = before.filter(|before| Some(*before) != uid) {
            self.clear(before);
        }
        if let Some(uid) = uid {
            self.displace(uid, claim);
            self.claims.hold(uid, claim.clone());
            self.drop_archived(uid);
        }
        Noted { uid, denied }
    }

    /// Takes the uid from another object that a list has shown before this older one.
    fn displace(&mut self, uid: AppUid, older: &Claim) {
        let Some(younger) = self.claims.holder(uid).filter(|holder| holder.name != older.name).cloned() else { return };
        let why = older.why_denied(&younger);
        if let Some(row) = self.apps.get_mut(&younger.name) {
            *row = Err(Damaged { uid: None, why: why.clone() });
        }
        self.clear_deploys(uid);
        self.claims.deny(&younger, why);
    }

    fn remove(&mut self, name: &Name) -> Option<AppUid> {
        let uid = uid_of(&self.apps.remove(name)?)?;
        self.clear(uid);
        Some(uid)
    }

    fn clear(&mut self, uid: AppUid) {
        self.claims.release(uid);
        self.clear_deploys(uid);
    }

    fn clear_deploys(&mut self, uid: AppUid) {
        self.coverage.remove(&uid);
        let deploys: Vec<_> = self.deploys.rows().range(all_of(uid)).map(|(key, _)| *key).collect();
        for key in deploys {
            self.deploys.remove(&key);
        }
    }

    /// Whether the object is in the app's namespace: a copy in another one is none of its deploys.
    fn is_within(&self, uid: AppUid, metadata: &ObjectMeta) -> bool {
        self.claims.holder(uid).map(|holder| &holder.name.0) == metadata.namespace.as_ref()
    }

    /// The deploys up to the latest of an app as it was read, newest first.
    fn deploys_of(&self, record: &AppRecord) -> impl Iterator<Item = (Revision, &KnownDeploy)> {
        let deploys = self.deploys.rows().range(all_of(record.state.app.uid)).rev();
        let deploys = deploys.map(|((_, revision), row)| (*revision, &row.value));
        deploys.filter(|(revision, _)| Some(*revision) <= record.state.latest)
    }

    fn is_archived(&self, uid: AppUid, revision: Revision) -> bool {
        self.deploys.get(&(uid, revision)).is_some_and(|known| known.status.is_terminal())
    }

    /// Drops ended deploys from an app's record whose `AppDeploy`s tell their end: their evidence is long.
    fn drop_archived(&mut self, uid: AppUid) {
        let Some(Ok(record)) = self.claims.holder(uid).and_then(|holder| self.apps.get_mut(&holder.name)) else {
            return;
        };
        let is_archived =
            |deploy: &Arc<Deploy>| self.deploys.get(&(uid, deploy.revision)).is_some_and(|known| known.shows(deploy));
        if record.kept.archiving.iter().any(is_archived) {
            Arc::make_mut(record).kept.archiving.retain(|deploy| !is_archived(deploy));
        }
    }
}

fn uid_of(seen: &SeenApp) -> Option<AppUid> {
    seen.as_ref().map_or_else(|damaged| damaged.uid, |record| Some(record.state.app.uid))
}

fn name(id: &AppId) -> Name {
    (id.namespace.to_string(), id.name.to_string())
}

fn object_name(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The keys of all deploys of an app.
fn all_of(uid: AppUid) -> std::ops::RangeInclusive<(AppUid, Revision)> {
    (uid, Revision::FIRST)..=(uid, Revision::new(u64::MAX).unwrap_or(Revision::FIRST))
}

#[cfg(test)]
mod tests;
