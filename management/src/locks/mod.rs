//! Locks of apps and of environments, and deploys in spite of them.
//!
//! An app's state has the locks that it obeys, so that the ledger decides by them. The lock of an environment is a
//! record, which is copied into the state of each of the environment's apps: when it is set or ended, when an app is
//! registered, and, if a replica was stopped meanwhile, at the next start.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use futures_util::{TryStreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use rollhook_core::{
    action::Action as AppAction,
    app::{App, AppId, Environment, Namespace, Project},
    ledger::AppState,
    lock::{Lock, LockReason, LockScope, Locked},
    ports::AppPage,
    request::{Field, Refusal as CoreRefusal},
    service::{self, Authorized},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Realm, Subject},
    documents,
    ports::{Record, RecordKey, RecordKind, RecordStore},
    rate::Rate,
    refused,
};

/// The changes of an environment's lock: 1 in 2 seconds, 20 at once. Each writes all of its apps.
const CHANGES: Rate = Rate { every: Duration::from_secs(2), burst: 20 };

/// A request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLock {
    /// The reason, for those whose deploys are refused.
    pub reason: LockReason,
    /// The time after which it ends by itself; `None`: it is ended by hand.
    pub ttl: Option<Duration>,
}

impl NewLock {
    fn of(self, principal: &Principal) -> service::NewLock {
        service::NewLock { reason: self.reason, owner: principal.key().clone(), ttl: self.ttl }
    }
}

/// The lock of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentLock {
    /// The project.
    pub project: Project,
    /// The project's environment.
    pub environment: Environment,
    /// The lock on all of its apps.
    pub lock: Lock,
    /// What the person who has just set the lock should know, in sentences: such as that the environment has no app.
    pub notes: Vec<String>,
}

/// The document of an environment's record, which stays for a while when the lock has ended: each change has a higher
/// number, also the first one of a new record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    project: Project,
    environment: Environment,
    lock: Option<Lock>,
    sequence: u64,
}

/// How long the record of an ended lock stays, so that a replica that was stopped meanwhile copies the end.
const ENDED: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long it stays in an environment that has no app to copy it to.
const ENDED_WITHOUT_APPS: Duration = Duration::from_secs(3600);

/// Returns the most records in a realm beyond which an environment without apps gets none: names can be made up.
const fn locks_max(realm: &Realm) -> usize {
    match realm {
        Realm::Everything => 1000,
        Realm::Project { .. } => 100,
        Realm::Environment { .. } => 1,
    }
}

/// How often each change of an environment's lock is copied by each replica.
const COPIES: u8 = 2;
/// The time between two copies.
const COPY_INTERVAL: Duration = Duration::from_secs(60);

/// The change of an environment's lock that this process copied last, and how often.
#[derive(Default)]
struct Copied {
    sequence: u64,
    times: u8,
}

/// An environment, as its lock's record names it.
#[derive(Clone)]
struct EnvironmentName {
    project: Project,
    environment: Environment,
    namespace: Namespace,
}

impl EnvironmentName {
    fn new(project: &Project, environment: &Environment) -> Outcome<Self> {
        let namespace = Namespace::of(project, environment)
            .map_err(|invalid| CoreRefusal::InvalidField(Field::Environment, invalid.to_string()))?;
        Ok(Self { project: project.clone(), environment: environment.clone(), namespace })
    }

    fn realm(&self) -> Realm {
        Realm::Environment { project: self.project.clone(), environment: self.environment.clone() }
    }

    fn key(&self) -> RecordKey {
        // Names have no slash.
        RecordKey::of_hash(Sha256::digest(format!("{}/{}", self.project, self.environment)).into())
    }

    /// Returns the record of the environment.
    async fn read(&self, records: &dyn RecordStore) -> Outcome<Option<(Record, Stored)>> {
        documents::read(records, RecordKind::EnvironmentLock, &self.key()).await.map_err(refused)
    }
}

/// Returns the action of setting or ending a lock: what another party has locked takes more.
fn action(present: Option<&Lock>, principal: &Principal, now: Timestamp) -> Action {
    match present.filter(|lock| lock.is_in_force(now) && lock.owner != *principal.key()) {
        Some(_) => Action::Unlock,
        None => Action::Lock,
    }
}

/// Returns what the audit says of a change of a lock.
fn remark(wanted: Option<&NewLock>) -> &str {
    wanted.map_or("the lock is ended", |lock| lock.reason.as_str())
}

impl Management {
    /// Locks an app: new deploys are refused, except rollbacks. Deploys that were accepted before go on.
    ///
    /// # Errors
    /// [`AppNotFound`](rollhook_core::request::Refusal::AppNotFound); [`Refusal::Forbidden`], for a deployer if another party has locked the app;
    /// [`Busy`](rollhook_core::request::Refusal::Busy); [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn lock(&self, principal: &Principal, id: &AppId, wanted: NewLock) -> Outcome<AppState> {
        self.set_lock(principal, id, Some(wanted)).await
    }

    /// Ends an app's own lock.
    ///
    /// # Errors
    /// As [`Management::lock`].
    pub async fn unlock(&self, principal: &Principal, id: &AppId) -> Outcome<AppState> {
        self.set_lock(principal, id, None).await
    }

    async fn set_lock(&self, principal: &Principal, id: &AppId, wanted: Option<NewLock>) -> Outcome<AppState> {
        let app = self.readable_app(principal, id).await?;
        let present = app.locks.app.clone();
        let action = action(present.as_ref(), principal, self.deployer.store_time().await?);
        self.permit(principal, &app, action, Some(remark(wanted.as_ref()))).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Lock]);
        Ok(self.deployer.set_lock(&access, present, wanted.map(|lock| lock.of(principal))).await?)
    }

    /// Locks all apps of an environment, and those that are registered while the lock lasts.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], for a deployer if another party has locked the environment; [`Refusal::TooManyLockChanges`];
    /// [`Refusal::TooManyLocks`] where no app is; [`Busy`](rollhook_core::request::Refusal::Busy);
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable), after which some apps may
    /// be locked: repeat the call.
    pub async fn lock_environment(
        &self,
        principal: &Principal,
        project: &Project,
        environment: &Environment,
        wanted: NewLock,
    ) -> Outcome<EnvironmentLock> {
        let (lock, has_apps) = self.change_environment(principal, project, environment, Some(wanted)).await?;
        let without_apps = || {
            format!(
                "Environment {environment} of project {project} has no app: until the lock ends, none can be registered \
                 there. If you meant another one, end this lock."
            )
        };
        let notes = (!has_apps).then(without_apps).into_iter().collect();
        let (project, environment) = (project.clone(), environment.clone());
        lock.map(|lock| EnvironmentLock { project, environment, lock, notes }).ok_or(Refusal::INTERNAL)
    }

    /// Ends the lock of an environment; the locks of its apps alone stay.
    ///
    /// # Errors
    /// As [`Management::lock_environment`].
    pub async fn unlock_environment(
        &self,
        principal: &Principal,
        project: &Project,
        environment: &Environment,
    ) -> Outcome<()> {
        self.change_environment(principal, project, environment, None).await.map(drop)
    }

    /// Returns the locks of the environments that the principal may read, newest first.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn environment_locks(&self, principal: &Principal) -> Outcome<Vec<EnvironmentLock>> {
        let _turn = self.record_lists.turn(principal).await;
        let now = self.deployer.store_time().await?;
        let stored: Vec<(Record, Stored)> =
            documents::all(&*self.records, RecordKind::EnvironmentLock).await.map_err(refused)?;
        let locked = stored.into_iter().filter_map(|(_, Stored { project, environment, lock, .. })| {
            let lock = lock.filter(|lock| lock.is_in_force(now))?;
            let name = EnvironmentName::new(&project, &environment).ok()?;
            Some((name, EnvironmentLock { project, environment, lock, notes: Vec::new() }))
        });
        let locked: Vec<_> = locked.collect();
        let mut readable = self.readable(principal);
        readable.ask(locked.iter().map(|(name, _)| &name.namespace)).await?;
        let is_readable = |name: &EnvironmentName| readable.contains(&name.namespace, &name.realm());
        Ok(locked.into_iter().filter(|(name, _)| is_readable(name)).map(|(_, lock)| lock).collect())
    }

    /// Sets or ends the lock of an environment, if the principal may, and copies it into each of its apps. Returns the lock, and
    /// whether there are apps.
    async fn change_environment(
        &self,
        principal: &Principal,
        project: &Project,
        environment: &Environment,
        wanted: Option<NewLock>,
    ) -> Outcome<(Option<Lock>, bool)> {
        let name = EnvironmentName::new(project, environment)?;
        let records = &*self.records;
        let (present, now) = (name.read(records).await?, self.deployer.store_time().await?);
        let before = present.as_ref().and_then(|(_, stored)| stored.lock.as_ref());
        let (mut action, realm) = (action(before, principal, now), name.realm());
        let subject = Subject::new(realm.to_string(), realm.clone()).because(Some(remark(wanted.as_ref())));
        let mut granted = self.may(principal, action, Place::realm(&realm)).await?;
        if !granted.is_yes() && action == Action::Unlock {
            // Who may lock nothing here is not told that there is a lock.
            let may_lock = self.may(principal, Action::Lock, Place::realm(&realm)).await?;
            if !may_lock.is_yes() {
                (action, granted) = (Action::Lock, may_lock);
            }
        }
        let elapsed = self.deployer.ports().clock.elapsed();
        if granted.is_yes() && !self.environment_changes.take(CHANGES, &realm, elapsed) {
            return Err(Refusal::TooManyLockChanges(realm));
        }
        self.audit(principal, action, subject, granted).await?;
        let lock = wanted.map(|lock| lock.of(principal).set(principal.actor(), now));
        // A store that lists no apps now may have some, and a lock is not to wait for that.
        let has_apps = self.has_apps(&name).await.unwrap_or(true);
        let mut counting = None;
        if present.is_none() && !has_apps {
            if lock.is_none() {
                return Ok((None, has_apps));
            }
            counting = Some(self.counting.turn(principal).await);
            self.check_number_of_locks(&realm).await?;
        }
        // The record before may be gone, and its changes were copied.
        let least = u64::try_from(now.as_millis()).unwrap_or_default();
        let sequence = present.as_ref().map_or(0, |(_, stored)| stored.sequence + 1).max(least);
        let left = lock.as_ref().map_or(Some(Duration::ZERO), |lock| lock.until.map(|until| until.since(now)));
        let ttl = left.map(|left| left.saturating_add(if has_apps { ENDED } else { ENDED_WITHOUT_APPS }));
        let (project, environment) = (name.project.clone(), name.environment.clone());
        let stored = Stored { project, environment, lock: lock.clone(), sequence };
        let version = present.map(|(record, _)| record.version);
        let record = documents::encode(name.key(), &stored, ttl).map_err(refused)?;
        // Decided on this version: a lock that another party has set meanwhile stays.
        records.write(RecordKind::EnvironmentLock, record, version).await.map_err(refused)?;
        drop(counting);
        let _turn = self.turn_of_all_apps(principal).await;
        self.copy_lock(&name, &stored).await?;
        Ok((lock, has_apps))
    }

    /// Returns whether an environment has apps.
    async fn has_apps(&self, name: &EnvironmentName) -> Outcome<bool> {
        // All apps of a namespace are of one environment.
        let listed = self.deployer.apps(AppPage::first(1).of(name.namespace.clone())).await?;
        // An app whose state cannot be read is one of this environment, as far as anybody knows.
        Ok(listed.iter().any(|state| state.as_ref().map_or(true, |state| Realm::of_app(&state.app) == name.realm())))
    }

    /// Refuses one more record of an environment without apps if there are as many as there may be.
    async fn check_number_of_locks(&self, realm: &Realm) -> Outcome<()> {
        let stored: Vec<(Record, Stored)> =
            documents::all(&*self.records, RecordKind::EnvironmentLock).await.map_err(refused)?;
        let realms = stored.into_iter().filter_map(|(_, Stored { project, environment, .. })| {
            EnvironmentName::new(&project, &environment).ok().map(|name| name.realm())
        });
        let realms: Vec<Realm> = realms.collect();
        for realm in realm.and_containing() {
            let most = locks_max(&realm);
            if realms.iter().filter(|other| realm.contains(other)).count() >= most {
                return Err(Refusal::TooManyLocks(most, realm));
            }
        }
        Ok(())
    }

    /// Copies an environment's lock into the states of its apps, as far as no later one was copied.
    async fn copy_lock(&self, name: &EnvironmentName, stored: &Stored) -> Outcome<()> {
        let mut failed = None;
        let mut pages = pin!(self.deployer.apps_of(&name.namespace));
        while let Some(listed) = pages.try_next().await? {
            let apps = listed.into_iter().flatten().map(|state| state.app);
            let theirs = apps.filter(|app| Realm::of_app(app) == name.realm());
            let copied = join_all(theirs.map(|app| self.copy_to(app, stored))).await;
            // One app that cannot be written keeps no other from being locked.
            failed = failed.or(copied.into_iter().find_map(Result::err));
        }
        failed.map_or(Ok(()), Err)
    }

    async fn copy_to(&self, app: Arc<App>, stored: &Stored) -> Outcome<()> {
        Ok(self.deployer.copy_environment_lock(&app, stored.lock.clone(), stored.sequence).await?)
    }

    /// Returns the lock that refuses registrations in an environment now.
    pub(crate) async fn environment_lock(
        &self,
        project: &Project,
        environment: &Environment,
    ) -> Outcome<Option<Locked>> {
        let Some((record, stored)) = EnvironmentName::new(project, environment)?.read(&*self.records).await? else {
            return Ok(None);
        };
        Ok(stored.lock.and_then(|lock| lock.refusing(LockScope::Environment, record.now)))
    }

    /// Locks an app that was registered while its environment was being locked.
    pub(crate) async fn lock_registered(&self, app: &Arc<App>) -> Outcome<()> {
        match EnvironmentName::new(&app.project, &app.environment)?.read(&*self.records).await? {
            Some((_, stored)) => self.copy_to(Arc::clone(app), &stored).await,
            None => Ok(()),
        }
    }

    /// Copies the locks of all environments, and the ends of locks: a replica may have been stopped while it did so. Each
    /// change is copied once more after a minute, because a store's list of apps may have lagged behind a registration.
    pub(crate) async fn watch_locks(&self) {
        let mut copied: HashMap<RecordKey, Copied> = HashMap::new();
        loop {
            let all = documents::all::<Stored>(&*self.records, RecordKind::EnvironmentLock).await.map_err(refused);
            let all = all.unwrap_or_else(|refusal| {
                tracing::warn!(%refusal, "reading the locks of environments failed");
                Vec::new()
            });
            // A store that is away has none, and they are copied anew.
            copied.retain(|key, _| all.iter().any(|(record, _)| record.key == *key));
            for (record, stored) in all {
                let known = copied.entry(record.key).or_default();
                if known.sequence == stored.sequence && known.times == COPIES {
                    continue;
                }
                let written = async {
                    self.copy_lock(&EnvironmentName::new(&stored.project, &stored.environment)?, &stored).await
                };
                match written.await {
                    Ok(()) if known.sequence == stored.sequence => known.times += 1,
                    Ok(()) => *known = Copied { sequence: stored.sequence, times: 1 },
                    Err(refusal) => {
                        let Stored { project, environment, .. } = &stored;
                        tracing::warn!(%project, %environment, %refusal, "copying the lock of an environment failed");
                    }
                }
            }
            self.deployer.ports().clock.sleep(COPY_INTERVAL).await;
        }
    }
}
