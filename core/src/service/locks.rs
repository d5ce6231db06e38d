//! Locks of apps and of environments, and deploys in spite of them.
//!
//! An app's state has the locks that it obeys, so that the ledger decides by them. The lock of an environment is a
//! record, which is copied into the state of each of the environment's apps: when it is set or ended, when an app is
//! registered, and, if a replica was stopped meanwhile, at the next start.

use std::{collections::HashMap, pin::pin, time::Duration};

use futures_util::{TryStreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Authorized, Deployer, Outcome, Principal, audit::Subject, auth::Place, documents, journal::Decision, refused,
    unwritten,
};
use crate::{
    access::{Action, Realm},
    app::{App, AppId, AppUid, Environment, Namespace, Project},
    error::Error,
    ledger::AppState,
    lock::{Lock, LockReason, LockRule, LockScope},
    ports::{Record, RecordKey, RecordKind, RecordStore},
    request::{Field, Refusal},
    time::Timestamp,
};

/// A request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLock {
    /// The reason, for those whose deploys are refused.
    pub reason: LockReason,
    /// The time after which it ends by itself; `None`: it is ended by hand.
    pub ttl: Option<Duration>,
}

impl NewLock {
    fn set(self, principal: &Principal, now: Timestamp) -> Lock {
        let (by, owner) = (principal.actor().clone(), principal.key().clone());
        Lock { reason: self.reason, by, owner, at: now, until: self.ttl.map(|ttl| now.after(ttl)) }
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
}

/// The document of an environment's record, which stays when the lock has ended: each change has a higher number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    project: Project,
    environment: Environment,
    lock: Option<Lock>,
    sequence: u64,
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
            .map_err(|invalid| Refusal::InvalidField(Field::Environment, invalid.to_string()))?;
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

impl Deployer {
    /// Locks an app: new deploys are refused, except rollbacks. Deploys that were accepted before go on.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::Forbidden`], for a deployer if another party has locked the app;
    /// [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn lock(&self, principal: &Principal, id: &AppId, wanted: NewLock) -> Outcome<AppState> {
        self.set_lock(principal, id, Some(wanted)).await
    }

    /// Ends an app's own lock.
    ///
    /// # Errors
    /// As [`Deployer::lock`].
    pub async fn unlock(&self, principal: &Principal, id: &AppId) -> Outcome<AppState> {
        self.set_lock(principal, id, None).await
    }

    async fn set_lock(&self, principal: &Principal, id: &AppId, wanted: Option<NewLock>) -> Outcome<AppState> {
        let access = self.open(principal, id).await?;
        let read = self.state(&access).await?.app.locks.app.clone();
        let action = action(read.as_ref(), principal, self.store_time().await?);
        self.permit_because(&access, action, Some(remark(wanted.as_ref()))).await?;
        let by = principal.clone();
        let updated = self.update_app(&access, move |change, now| {
            if change.state.app.locks.app != read {
                return Err(Refusal::Busy);
            }
            change.lock(wanted.clone().map(|lock| lock.set(&by, now)), now);
            Ok(())
        });
        let state = updated.await?;
        self.changed_here(access.uid);
        Ok(state)
    }

    /// Returns the proof for deploys to an app in spite of its locks. The audit has the reason.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::Forbidden`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn break_glass(&self, principal: &Principal, id: &AppId, reason: &LockReason) -> Outcome<Authorized> {
        let access = self.open(principal, id).await?;
        self.permit_because(&access, Action::BreakGlass, Some(reason.as_str())).await?;
        Ok(Authorized { locks: LockRule::Overridden, ..access })
    }

    /// Locks all apps of an environment, and those that are registered while the lock lasts.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], for a deployer if another party has locked the environment; [`Refusal::Busy`];
    /// [`Refusal::StoreRefused`] without a store of records; [`Refusal::StoreUnavailable`], after which some apps may
    /// be locked: repeat the call.
    pub async fn lock_environment(
        &self,
        principal: &Principal,
        project: &Project,
        environment: &Environment,
        wanted: NewLock,
    ) -> Outcome<EnvironmentLock> {
        let lock = self.change_environment(principal, project, environment, Some(wanted)).await?;
        let (project, environment) = (project.clone(), environment.clone());
        lock.map(|lock| EnvironmentLock { project, environment, lock }).ok_or(Refusal::Internal)
    }

    /// Ends the lock of an environment; the locks of its apps alone stay.
    ///
    /// # Errors
    /// As [`Deployer::lock_environment`].
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
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn environment_locks(&self, principal: &Principal) -> Outcome<Vec<EnvironmentLock>> {
        let Some(records) = &self.ports.records else { return Ok(Vec::new()) };
        let now = self.store_time().await?;
        let stored: Vec<(Record, Stored)> =
            documents::all(&**records, RecordKind::EnvironmentLock).await.map_err(refused)?;
        let locked = stored.into_iter().filter_map(|(_, Stored { project, environment, lock, .. })| {
            let lock = lock.filter(|lock| lock.is_in_force(now))?;
            let name = EnvironmentName::new(&project, &environment).ok()?;
            Some((name, EnvironmentLock { project, environment, lock }))
        });
        let locked: Vec<_> = locked.collect();
        let mut readable = self.readable(principal);
        readable.ask(locked.iter().map(|(name, _)| &name.namespace)).await?;
        let is_readable = |name: &EnvironmentName| readable.contains(&name.namespace, &name.realm());
        Ok(locked.into_iter().filter(|(name, _)| is_readable(name)).map(|(_, lock)| lock).collect())
    }

    /// Sets or ends the lock of an environment, if the principal may, and copies it into each of its apps.
    async fn change_environment(
        &self,
        principal: &Principal,
        project: &Project,
        environment: &Environment,
        wanted: Option<NewLock>,
    ) -> Outcome<Option<Lock>> {
        let name = EnvironmentName::new(project, environment)?;
        let Some(records) = self.ports.records.as_deref() else {
            let why = "Locking an environment needs a store of records, and this service has none.";
            return Err(Refusal::StoreRefused(why.to_owned()));
        };
        let (present, now) = (name.read(records).await?, self.store_time().await?);
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
        self.audit(principal.actor(), action, subject, granted).await?;
        let lock = wanted.map(|lock| lock.set(principal, now));
        let sequence = present.as_ref().map_or(1, |(_, stored)| stored.sequence + 1);
        let (project, environment) = (name.project.clone(), name.environment.clone());
        let stored = Stored { project, environment, lock: lock.clone(), sequence };
        let version = present.map(|(record, _)| record.version);
        let record = documents::encode(name.key(), &stored, None).map_err(refused)?;
        // Decided on this version: a lock that another party has set meanwhile stays.
        records.write(RecordKind::EnvironmentLock, record, version).await.map_err(refused)?;
        self.copy_lock(&name, &stored).await?;
        Ok(lock)
    }

    /// Copies an environment's lock into the states of its apps, as far as no later one was copied.
    async fn copy_lock(&self, name: &EnvironmentName, stored: &Stored) -> Outcome<()> {
        let mut failed = None;
        let mut pages = pin!(self.apps_of(&name.namespace));
        while let Some(listed) = pages.try_next().await? {
            let apps = listed.into_iter().flatten().map(|state| state.app);
            let theirs = apps.filter(|app| app.realm() == name.realm());
            let copied = join_all(theirs.map(|app| self.copy_to(app.id.clone(), app.uid, stored))).await;
            // One app that cannot be written keeps no other from being locked.
            failed = failed.or(copied.into_iter().find_map(Result::err));
        }
        failed.map_or(Ok(()), Err)
    }

    async fn copy_to(&self, id: AppId, uid: AppUid, stored: &Stored) -> Outcome<()> {
        let (lock, sequence) = (stored.lock.clone(), stored.sequence);
        let copied = self.journal.update(uid, None, move |change, _, now| {
            change.copy_lock(lock.clone(), sequence, now);
            Decision::Commit(())
        });
        match copied.await {
            // The app was deleted meanwhile.
            Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(unwritten(&id, error)),
            Ok(_) => {
                self.changed_here(uid);
                Ok(())
            }
        }
    }

    /// Returns the refusal of a registration in a locked environment.
    pub(super) async fn registration_lock(&self, project: &Project, environment: &Environment) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        let Some((record, stored)) = EnvironmentName::new(project, environment)?.read(&**records).await? else {
            return Ok(());
        };
        let refusing = stored.lock.and_then(|lock| lock.refusing(LockScope::Environment, record.now));
        refusing.map_or(Ok(()), |locked| Err(Refusal::Locked(Box::new(locked))))
    }

    /// Locks an app that was registered while its environment was being locked.
    pub(super) async fn lock_registered(&self, app: &App) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        match EnvironmentName::new(&app.project, &app.environment)?.read(&**records).await? {
            Some((_, stored)) => self.copy_to(app.id.clone(), app.uid, &stored).await,
            None => Ok(()),
        }
    }

    /// Copies the locks of all environments, and the ends of locks: a replica may have been stopped while it did so. Each
    /// change is copied once more after a minute, because a store's list of apps may have lagged behind a registration.
    pub(super) async fn watch_locks(&self) {
        let Some(records) = &self.ports.records else { return };
        let mut copied: HashMap<RecordKey, Copied> = HashMap::new();
        loop {
            let all = documents::all::<Stored>(&**records, RecordKind::EnvironmentLock).await.map_err(refused);
            let all = all.unwrap_or_else(|refusal| {
                tracing::warn!(%refusal, "reading the locks of environments failed");
                Vec::new()
            });
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
            self.ports.clock.sleep(COPY_INTERVAL).await;
        }
    }
}
