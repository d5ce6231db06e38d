//! The port that keeps apps and their deploys.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::DriverIdentity;
use crate::{
    app::{AppId, AppUid, Namespace},
    deploy::{Deploy, Revision},
    error::{Error, Result},
    ledger::{AppState, Change, KeyUse},
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};

/// The version of an app's stored state, of which each commit makes a higher one; or of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The removal of an app, in hints: above every version.
    pub const REMOVED: Self = Self(u64::MAX);
}

/// The name by which an app is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppRef<'a> {
    /// The name that people use.
    Name(&'a AppId),
    /// The id of the registration.
    Uid(AppUid),
}

/// A loaded app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The app's state.
    pub state: AppState,
    /// The version of the state.
    pub version: Version,
    /// The stored use of the given idempotency key, also an expired one: a store does not judge that. `None` if the key
    /// is unused, or none was given.
    pub key: Option<KeyUse>,
    /// The time by the store's clock.
    pub now: Timestamp,
}

/// One write of one app: all of it or nothing.
///
/// A change is written in full: its state is the app's next one, `ended` deploys are added to the archive, `keys` are
/// stored, and `forgotten` deploys leave the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppCommit {
    /// The registration of an app, with its first state.
    Register(Box<Change>),
    /// A change that was made on this version.
    Update(Version, Box<Change>),
    /// The removal of the app at this version: state, archive, keys and token.
    Remove(AppUid, Version),
}

impl AppCommit {
    /// Returns the app that is written.
    pub fn app(&self) -> AppUid {
        match self {
            Self::Register(change) | Self::Update(_, change) => change.state.app.uid,
            Self::Remove(app, _) => *app,
        }
    }

    /// Returns the version that the commit was made on; `None` for a registration.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Register(_) => None,
            Self::Update(version, _) | Self::Remove(_, version) => Some(*version),
        }
    }

    /// Returns the change to write; `None` for a removal.
    pub fn change(&self) -> Option<&Change> {
        match self {
            Self::Register(change) | Self::Update(_, change) => Some(change),
            Self::Remove(..) => None,
        }
    }
}

/// A commit that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The version of the app's state from now on; [`Version::REMOVED`] after a removal.
    pub version: Version,
    /// The time by the store's clock.
    pub now: Timestamp,
}

/// A part of an app's archive, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Only revisions below this one.
    pub before: Option<Revision>,
    /// Only deploys that succeeded.
    pub succeeded: bool,
    /// At most this many.
    pub limit: usize,
}

impl Page {
    /// Returns the newest part.
    pub const fn newest(limit: usize) -> Self {
        Self { before: None, succeeded: false, limit }
    }

    /// Returns the part below a revision, if there is one.
    #[must_use]
    pub fn below(self, revision: impl Into<Option<Revision>>) -> Self {
        Self { before: revision.into(), ..self }
    }

    /// Returns the part without deploys that have not succeeded, or with them.
    #[must_use]
    pub const fn succeeded(self, only: bool) -> Self {
        Self { succeeded: only, ..self }
    }
}

/// A part of the list of apps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppPage {
    /// Only apps of this namespace.
    pub namespace: Option<Namespace>,
    /// Only apps that come after this one in the order of their ids.
    pub after: Option<AppId>,
    /// At most this many.
    pub limit: usize,
    /// Whether every commit that was answered before the call, to whichever process, is to be seen; a store may list
    /// what it remembers otherwise.
    pub is_fresh: bool,
}

impl AppPage {
    /// Returns the first part.
    pub const fn first(limit: usize) -> Self {
        Self { namespace: None, after: None, limit, is_fresh: false }
    }

    /// Returns the part without apps of other namespaces than this, if there is one.
    #[must_use]
    pub fn of(self, namespace: impl Into<Option<Namespace>>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// Returns the part as it is stored now.
    #[must_use]
    pub fn fresh(self, is_fresh: bool) -> Self {
        Self { is_fresh, ..self }
    }

    /// Returns the part that follows an app, if there is one.
    #[must_use]
    pub fn after(self, app: impl Into<Option<AppId>>) -> Self {
        Self { after: app.into(), ..self }
    }
}

/// An app of the list: its state, or the reason why that cannot be read.
pub type ListedApp = Result<AppState, UnreadableApp>;

/// Returns the name of an app of the list.
pub fn listed_id(listed: &ListedApp) -> &AppId {
    match listed {
        Ok(state) => &state.app.id,
        Err(unreadable) => &unreadable.id,
    }
}

/// An app whose stored state cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the app {id} cannot be read")]
pub struct UnreadableApp {
    /// The app's name.
    pub id: AppId,
    /// The reason.
    #[source]
    pub error: Error,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The time by the store's clock.
    pub now: Timestamp,
    /// The replicas that are alive, in any order; the caller is one of them, unless it was released.
    pub alive: Vec<ReplicaId>,
}

/// A hint that an app was committed. Hints may be lost: callers poll as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppChange {
    /// The app has a state of this version or a higher one; [`Version::REMOVED`]: it was removed.
    App(AppUid, Version),
    /// Any app may have changed: hints may have been lost.
    Any,
}

/// How an identity is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Only if none is stored.
    First,
    /// In place of a stored one.
    Replace,
}

/// The limits of a store, for the journal above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The number of apps that one call of [`HistoryStore::commit`] writes at about the cost of one; longer calls are
    /// answered as well.
    pub apps_per_commit: usize,
    /// The most calls of [`HistoryStore::commit`] at the same time.
    pub commits_at_once: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { apps_per_commit: 1, commits_at_once: 16 }
    }
}

/// Keeps each app's state, its archive of ended deploys and its idempotency keys, without knowing their meaning: the
/// [ledger](crate::ledger) decides, a commit writes its decision. The only truth between replicas.
///
/// The port reads these parts of a state: `app.id`, `app.project` and `app.environment` (names), `lease` and
/// `queued_at` (work).
///
/// - `load_unknown_is_none`: for an unknown name or uid.
/// - `commit_then_load`: a state is loaded by name and by uid as it was committed, with its version.
/// - `register_taken_conflicts`: a registration is `Conflict(App)` if the name or the uid is taken.
/// - `register_namespace_of_another_pair_conflicts`: one namespace belongs to one (project, environment) pair while an
///   app is in it; a registration by another pair that spells it is `Conflict(Namespace)`, unless the exact name or the
///   uid is taken as well, which is `Conflict(App)`.
/// - `register_keeps_keys_and_ended`: the `keys` and the `ended` deploys of a registration are stored with its state,
///   as those of any other change.
/// - `commit_on_another_version_conflicts`: `Conflict(Version)`, and nothing of it is written; `NotFound(App)` if the
///   uid is gone. Of commits that race on one version, exactly one is written, also if they come from several threads.
/// - `commit_keeps_keys`: a committed key is loaded with its use, per app, header and text; a commit whose key is in
///   use and not marked to be replaced is `Conflict(IdempotencyKey)`, and nothing of it is written. A stored use counts
///   until it is replaced, also after it has expired; the store may delete one that expired an hour ago or more, or
///   whose deploy is forgotten.
/// - `commit_archives_and_forgets`: `ended` deploys are in the archive after the commit, `forgotten` ones are gone.
/// - `deploy_that_ends_as_it_is_accepted_is_archived`: one of `admitted` that is in `ended` too is in the archive, and its
///   key is loaded with its use.
/// - `forgotten_deploys_free_their_keys`: the use of a key whose archived deploy is forgotten is gone with it, for the
///   process that forgot it at once.
/// - `commit_answers_each`: of several apps in one call each has its own answer, in order; one that is refused leaves
///   the others as they are.
/// - `commit_outlives_an_abrupt_end`: in a store that outlives its process, whatever was answered is there after a loss
///   of power right after the answer: a commit with its keys and archive, a registration, a removal, the identity of the
///   driver. The answer waits until the disk has confirmed it; being handed to the operating system is not enough.
/// - `remove_takes_everything`: state, archive, keys and token; name and uid are free, and an app that is registered
///   under either starts empty.
/// - `page_is_newest_first`: `before`, `succeeded` and `limit` narrow it; an unknown app has no archive.
/// - `page_has_no_logs`: the deploys of a page are as [`Deploy::without_logs`] returns them: of their evidence, which is long,
///   they have the states of several workloads alone. [`HistoryStore::archived`] returns one deploy with all of it. A store
///   reads the evidence of as few deploys as it can at a time.
/// - `list_is_sorted_and_paged`: by namespace, then name; `namespace` and `after` narrow it.
/// - `fresh_list_has_what_others_committed`: with `is_fresh`, every registration and commit that was answered before, also
///   those of another handle, at once. Release commands of a group take turns by it.
/// - `work_is_what_no_living_replica_drives`: apps with `queued_at` whose lease none of the given replicas has, longest
///   waiting first, at most `limit`.
/// - `heartbeat_names_the_living`: replicas whose last heartbeat is not older than its `ttl`, by the store's clock: one
///   that is exactly `ttl` old still counts. A heartbeat need not be stored within a third of its `ttl` after another
///   of the same boot and `ttl`. A new boot of a name replaces the one before at once; `ttl` zero releases the name if
///   its stored boot is this one, and changes nothing otherwise. After the clock was set back, a stored heartbeat of
///   the future counts as one made at the next heartbeat of any replica.
/// - `bind_driver_keeps_the_first`: of several identities, also ones that race, the first one stays for every handle
///   until it is replaced.
/// - `watch_follows_commits`: a handle's stream has an item after each commit through that handle, and after those of
///   other processes where the store hears of them. [`AppChange::Any`] may stand for every change; it costs more reads.
/// - `corrupt_is_an_error`: a stored state or deploy that cannot be read is `Corrupt` to the call that needs it, never
///   left out; `list` names the app. Other apps stay readable, and can be committed in one call with it, and so do
///   pages without that deploy; `work` may still name the app, beside the others.
///
/// A store keeps the serialized form of states and deploys as it is; JSON holds all of it. The parts above that its
/// queries need stand beside the state, so that a state that cannot be read stops its own app only. `app` never changes
/// its `id`, `project` and `environment`; every commit may change `lease` and `queued_at`.
#[async_trait]
pub trait HistoryStore: Send + Sync {
    /// Loads an app's state, and the use of an idempotency key. Returns `None` if the app is unknown.
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>>;

    /// Commits each of these, which are of different apps; one answer each. `Unavailable`: it may have been written. In a
    /// store that outlives its process, a commit is answered once it survives a loss of power.
    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>>;

    /// Returns a part of an app's archive, of whose evidence the states of several workloads alone.
    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>>;

    /// Returns one archived deploy with its evidence; `None` if the archive has none of this revision.
    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>>;

    /// Returns a part of the list of apps; those that cannot be read count as well.
    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>>;

    /// Returns the apps with work whose lease none of these replicas has.
    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>>;

    /// Records that a replica lives for `ttl` from now on, and returns all living ones.
    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat>;

    /// Stores the identity of the rollout driver that the store's apps are deployed by. Returns the stored one.
    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity>;

    /// Returns hints of commits of this process and, if the store can, of others.
    fn watch(&self) -> BoxStream<'static, AppChange>;

    /// The limits of this store.
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }
}

/// Conveniences over [`HistoryStore`].
#[async_trait]
pub trait HistoryStoreExt: HistoryStore {
    /// Commits one app.
    async fn commit_one(&self, commit: AppCommit) -> Result<Committed> {
        let answer = self.commit(vec![commit]).await.pop();
        answer.unwrap_or_else(|| Err(Error::corrupt("the store's answer", "a commit was not answered")))
    }

    /// Returns the states of a part of the list of apps; `Corrupt` if one of them cannot be read.
    async fn states(&self, page: AppPage) -> Result<Vec<AppState>> {
        self.list(page).await?.into_iter().map(|listed| listed.map_err(|unreadable| unreadable.error)).collect()
    }
}

impl<T: HistoryStore + ?Sized> HistoryStoreExt for T {}
