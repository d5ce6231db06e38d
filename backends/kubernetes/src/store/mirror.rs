//! What this process has seen of the store: from its watches, and from its own reads and writes.
//!
//! It tells where to look, and saves reading again what cannot change. It may be behind; whatever is decided is decided
//! on a fresh read, or guarded by the write itself.
//!
//! An entry takes about 400 bytes of it, and 200 more while its key is not free: 100 kB for an app whose history is full.
//! The few entries per app that views are made of are kept whole, some kilobytes each.
//!
//! Of an app's entries it always holds all that are stored up to some revision: watches deliver in the order of the
//! writes, and nobody creates an entry without having seen the one before. That is what an accept builds on.

mod lists;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use rollhook_core::{
    app::{AppId, AppUid},
    deploy::Status,
};
use tokio::sync::watch;

use super::{
    StoreClock, codec,
    crd::{AppObject, DeployObject, KeyUse},
    version::version,
};

/// Everything seen.
pub(crate) struct Mirror {
    clock: StoreClock,
    state: Mutex<State>,
    /// Of which kinds the first list has been seen.
    synced: watch::Sender<Kinds>,
    /// How often the cluster's store was seen to have been restored.
    went_back: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    apps: HashMap<AppUid, Arc<AppObject>>,
    /// When an app was last read for a decision, in which version.
    reads: HashMap<AppUid, (u64, Duration)>,
    /// Up to which revision it is known that there are no other entries than those that were seen.
    complete: HashMap<AppUid, u64>,
    names: HashMap<(String, String), AppUid>,
    /// `App`s that no uid can be read of.
    damaged: BTreeSet<(String, String)>,
    entries: HashMap<AppUid, BTreeMap<u64, Known>>,
    leases: HashMap<String, SeenLease>,
    /// When the cluster's store was last seen to have been restored.
    went_back: Option<Duration>,
    /// When keys that are free were last let go of.
    swept: Duration,
}

/// What is known of one entry.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    /// Kubernetes' uid of the object.
    pub(crate) object: Option<String>,
    /// When it was accepted, as it is stored.
    pub(crate) accepted_at: String,
    pub(crate) key: Option<KeyUse>,
    /// The word of its own status, as far as that was written.
    pub(crate) status: String,
    /// What succeeded, and its digest where that is known.
    pub(crate) image: Option<(Box<str>, Option<Box<str>>)>,
    /// All of it, where it is likely to be needed.
    pub(crate) body: Option<Arc<DeployObject>>,
}

/// A replica's Lease, and when it was last seen to change.
#[derive(Clone, Debug)]
pub(crate) struct SeenLease {
    version: u64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) changed: Duration,
}

/// How long ago a read was made that a decision made on it still is a fresh one.
const JUST_READ: Duration = Duration::from_millis(250);
/// Keys that are free are let go of this often.
const SWEEP: Duration = Duration::from_secs(3600);
/// All is listed anew at most once in this time.
const WENT_BACK: Duration = Duration::from_secs(30);

impl SeenLease {
    /// A Lease that changed at this time of this process.
    pub(crate) fn new(lease: Arc<Lease>, changed: Duration) -> Self {
        Self { version: version(&lease.metadata), lease, changed }
    }
}

/// The kinds of objects that are mirrored, or some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) apps: bool,
    pub(crate) entries: bool,
    pub(crate) leases: bool,
}

impl Kinds {
    fn all(self) -> bool {
        self.apps && self.entries && self.leases
    }
}

impl Mirror {
    pub(crate) fn new(clock: StoreClock) -> Self {
        Self { clock, state: Mutex::default(), synced: watch::Sender::default(), went_back: watch::Sender::default() }
    }

    /// Whether every watch has delivered its first list.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.borrow().all()
    }

    /// Returns once every watch has delivered its first list.
    pub(crate) async fn synced(&self) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.synced.subscribe().wait_for(|kinds| kinds.all()).await;
    }

    /// Returns once the apps have been listed.
    pub(crate) async fn apps_synced(&self) {
        let _ = self.synced.subscribe().wait_for(|kinds| kinds.apps).await;
    }

    /// A watch has delivered a list.
    pub(crate) fn note_synced(&self, kind: impl FnOnce(&mut Kinds)) {
        self.synced.send_modify(kind);
    }

    /// The app of this uid.
    pub(crate) fn app(&self, uid: AppUid) -> Option<Arc<AppObject>> {
        self.lock().apps.get(&uid).cloned()
    }

    /// The app of this name.
    pub(crate) fn named(&self, id: &AppId) -> Option<Arc<AppObject>> {
        let state = self.lock();
        let name = (id.namespace.to_string(), id.name.to_string());
        state.names.get(&name).and_then(|uid| state.apps.get(uid)).cloned()
    }

    /// The namespaces and names of all apps; also of those that are damaged, as they must be told of.
    pub(crate) fn app_names(&self) -> Vec<(String, String)> {
        let state = self.lock();
        state.names.keys().chain(state.damaged.iter().filter(|name| !state.names.contains_key(name))).cloned().collect()
    }

    /// An `App` is there that no uid can be read of, or is gone.
    pub(crate) fn note_damaged(&self, object: &AppObject, is_there: bool) {
        let name = (object.namespace().unwrap_or_default(), object.name_any());
        let mut state = self.lock();
        if !is_there {
            state.damaged.remove(&name);
        } else if object.spec.uid.parse::<AppUid>().is_err() {
            state.damaged.insert(name);
        }
    }

    /// All apps.
    pub(crate) fn apps(&self) -> Vec<(AppUid, Arc<AppObject>)> {
        self.lock().apps.iter().map(|(uid, app)| (*uid, app.clone())).collect()
    }

    /// The newest entry that is known.
    pub(crate) fn last(&self, uid: AppUid) -> u64 {
        let state = self.lock();
        let newest = state.entries.get(&uid).and_then(|entries| entries.keys().next_back()).copied().unwrap_or(0);
        newest.max(state.complete.get(&uid).copied().unwrap_or(0))
    }

    /// All entries up to this revision were seen, or are gone.
    pub(crate) fn note_all_seen(&self, uid: AppUid, revision: u64) {
        let mut state = self.lock();
        let complete = state.complete.entry(uid).or_default();
        *complete = revision.max(*complete);
    }

    /// The app was read like this for somebody who decides on it; the read began at this time.
    pub(crate) fn note_read(&self, uid: AppUid, app: &AppObject, at: Duration) {
        self.lock().reads.insert(uid, (version(&app.metadata), at));
    }

    /// Whether what was seen of the app is what somebody has read a moment ago; a read serves one decision.
    pub(crate) fn take_read(&self, uid: AppUid) -> bool {
        let now = self.clock.elapsed();
        let mut state = self.lock();
        let Some((read, at)) = state.reads.remove(&uid) else { return false };
        let seen = state.apps.get(&uid).is_some_and(|app| version(&app.metadata) == read);
        seen && now.saturating_sub(at) < JUST_READ
    }

    /// What is known of one entry.
    pub(crate) fn entry(&self, uid: AppUid, revision: u64) -> Option<Known> {
        self.lock().entries.get(&uid)?.get(&revision).cloned()
    }

    /// The entries that are known, as `pick` wants them, newest first.
    pub(crate) fn entries<T>(&self, uid: AppUid, pick: impl FnMut((&u64, &Known)) -> Option<T>) -> Vec<T> {
        self.lock().entries.get(&uid).map(|entries| entries.iter().rev().filter_map(pick).collect()).unwrap_or_default()
    }

    /// A replica's Lease.
    pub(crate) fn lease(&self, name: &str) -> Option<SeenLease> {
        self.lock().leases.get(name).cloned()
    }

    /// All Leases.
    pub(crate) fn leases(&self) -> Vec<SeenLease> {
        self.lock().leases.values().cloned().collect()
    }

    /// An app was read or written; whether that is news, and whose.
    pub(crate) fn note_app(&self, object: AppObject) -> Option<AppUid> {
        let uid: AppUid = object.spec.uid.parse().ok().filter(|_| object.is_original())?;
        let mut state = self.lock();
        if state.apps.get(&uid).is_some_and(|known| version(&known.metadata) >= version(&object.metadata)) {
            return None;
        }
        state.insert_app(uid, object);
        Some(uid)
    }

    /// An app is gone, as far as it was known in this version.
    pub(crate) fn forget_app(&self, uid: AppUid, at: u64) -> bool {
        self.lock().forget_app(uid, at)
    }

    /// An entry was read or written; whether that is news, and whose.
    pub(crate) fn note_entry(&self, object: DeployObject) -> Option<AppUid> {
        let (name, known) = self.reduced(object)?;
        self.note_known(name, known)
    }

    /// What is to be kept of an entry, and under which name; none of what is no entry.
    pub(crate) fn reduced(&self, object: DeployObject) -> Option<((AppUid, u64), Known)> {
        let uid: AppUid = object.spec.app_uid.parse().ok().filter(|_| object.is_original())?;
        let revision = object.spec.revision;
        let needed = self.lock().apps.get(&uid).is_none_or(|app| is_needed(app, revision));
        let mut known = Known::of(object, needed);
        let free_at = codec::time_text(self.clock.now());
        known.key = known.key.filter(|key| key.expires_at > free_at);
        Some(((uid, revision), known))
    }

    /// See [`Mirror::note_entry`].
    pub(crate) fn note_known(&self, (uid, revision): (AppUid, u64), known: Known) -> Option<AppUid> {
        let mut state = self.lock();
        let entries = state.entries.entry(uid).or_default();
        if entries.get(&revision).is_some_and(|before| before.version >= known.version) {
            return None;
        }
        entries.insert(revision, known);
        Some(uid)
    }

    /// Lets go of keys that are free again, once in a while.
    pub(crate) fn sweep_keys(&self) {
        let (now, free_at) = (self.clock.elapsed(), codec::time_text(self.clock.now()));
        let mut state = self.lock();
        if now < state.swept + SWEEP {
            return;
        }
        state.swept = now;
        for known in state.entries.values_mut().flat_map(BTreeMap::values_mut) {
            // These texts sort like the times that they are.
            known.key = known.key.take().filter(|key| key.expires_at > free_at);
        }
    }

    /// An entry is gone.
    pub(crate) fn forget_entry(&self, uid: AppUid, revision: u64) {
        if let Some(entries) = self.lock().entries.get_mut(&uid) {
            entries.remove(&revision);
        }
    }

    /// A Lease was read or written; whether that is news.
    pub(crate) fn note_lease(&self, lease: Lease) -> bool {
        let changed = self.clock.elapsed();
        let mut state = self.lock();
        let name = lease.name_any();
        let seen = SeenLease::new(Arc::new(lease), changed);
        if state.leases.get(&name).is_some_and(|known| known.version >= seen.version) {
            return false;
        }
        state.leases.insert(name, seen);
        true
    }

    /// A Lease is gone, as far as it was known in this version.
    pub(crate) fn forget_lease(&self, name: &str, at: u64) {
        let mut state = self.lock();
        if state.leases.get(name).is_some_and(|known| known.version <= at) {
            state.leases.remove(name);
        }
    }

    /// A read has shown the app older than it was known: the cluster's store was restored from a copy, so that nothing of
    /// what is known holds. All is listed anew, at most once in a while.
    pub(crate) fn note_went_back(&self, uid: AppUid) {
        let now = self.clock.elapsed();
        let mut state = self.lock();
        state.forget_app(uid, u64::MAX);
        if state.went_back.is_none_or(|at| now >= at + WENT_BACK) {
            state.went_back = Some(now);
            self.went_back.send_modify(|times| *times += 1);
        }
    }

    /// Tells when the cluster's store was restored.
    pub(crate) fn went_back(&self) -> watch::Receiver<u64> {
        self.went_back.subscribe()
    }

    /// No change leaves it half made before it could panic, so that a poisoned lock is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert_app(&mut self, uid: AppUid, object: AppObject) {
        let name = (object.namespace().unwrap_or_default(), object.name_any());
        self.damaged.remove(&name);
        self.names.insert(name, uid);
        self.trim(uid, &object);
        self.apps.insert(uid, Arc::new(object));
    }

    fn forget_app(&mut self, uid: AppUid, at: u64) -> bool {
        let Some(app) = self.apps.get(&uid).filter(|app| version(&app.metadata) <= at) else { return false };
        let name = (app.namespace().unwrap_or_default(), app.name_any());
        if self.names.get(&name) == Some(&uid) {
            self.names.remove(&name);
        }
        self.apps.remove(&uid);
        self.reads.remove(&uid);
        self.entries.remove(&uid);
        self.complete.remove(&uid);
        true
    }

    /// Lets go of what is not likely to be read again now that the app is like this.
    fn trim(&mut self, uid: AppUid, app: &AppObject) {
        for (revision, known) in self.entries.get_mut(&uid).into_iter().flatten() {
            if !is_needed(app, *revision) {
                known.body = None;
            }
        }
    }
}

impl Known {
    fn of(object: DeployObject, needed: bool) -> Self {
        Self {
            version: version(&object.metadata),
            object: object.metadata.uid.clone(),
            accepted_at: object.spec.accepted_at.clone(),
            key: object.spec.key.clone(),
            status: object.status.as_ref().map(|status| status.status.clone()).unwrap_or_default(),
            image: succeeded(&object),
            body: needed.then(|| Arc::new(object)),
        }
    }
}

fn succeeded(object: &DeployObject) -> Option<(Box<str>, Option<Box<str>>)> {
    let status = object.status.as_ref().filter(|status| status.status == Status::Succeeded.as_str())?;
    let image = status.entry.image.as_deref().or(object.spec.image.as_deref())?;
    Some((image.into(), status.entry.digest.as_deref().map(Into::into)))
}

/// Whether views of the app are made of this entry.
fn is_needed(app: &AppObject, revision: u64) -> bool {
    let Some(status) = &app.status else { return true };
    revision > status.folded
        || status.open.iter().chain(&status.pending).any(|entry| entry.revision == revision)
        || [status.current, status.ended_on_cluster].contains(&Some(revision))
}

#[cfg(test)]
mod tests;
