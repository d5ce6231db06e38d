//! Locks of apps and of environments, and deploys in spite of them.
//!
//! An app's state has the locks that it obeys, so that the ledger decides by them. The lock of an environment is a
//! record, which is copied into the state of each of the environment's apps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use rollhook_core::{
    action::Action as AppAction,
    app::{App, AppId, Environment, Project},
    ledger::AppState,
    lock::{Lock, LockReason, LockScope, Locked},
    service::{self, Authorized, Deployer},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Realm, Subject},
    copies::{self, CHANGES, OnRealm},
    documents,
    ports::{Record, RecordKind},
    refused,
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

/// The document of an environment's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredLock {
    project: Project,
    environment: Environment,
    lock: Option<Lock>,
    sequence: u64,
}

impl OnRealm for StoredLock {
    const KIND: RecordKind = RecordKind::EnvironmentLock;

    fn realm(&self) -> Realm {
        Realm::Environment { project: self.project.clone(), environment: self.environment.clone() }
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn left(&self, now: Timestamp) -> Option<Duration> {
        let of_lock = |lock: &Lock| lock.until.map(|until| until.since(now));
        self.lock.as_ref().map_or(Some(Duration::ZERO), of_lock)
    }

    fn too_many(most: usize, realm: Realm) -> Refusal {
        Refusal::TooManyLocks(most, realm)
    }

    async fn copy_to(&self, deployer: &Deployer, app: &App) -> service::Outcome<()> {
        deployer.copy_environment_lock(app, self.lock.clone(), self.sequence).await
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
        let stored: Vec<(Record, StoredLock)> =
            documents::all(&*self.records, RecordKind::EnvironmentLock).await.map_err(refused)?;
        let locked = stored.into_iter().filter_map(|(_, stored)| {
            let realm = stored.realm();
            let namespace = copies::namespace(&realm).ok()??;
            let StoredLock { project, environment, lock, .. } = stored;
            let lock = lock.filter(|lock| lock.is_in_force(now))?;
            Some((namespace, realm, EnvironmentLock { project, environment, lock, notes: Vec::new() }))
        });
        let locked: Vec<_> = locked.collect();
        let mut readable = self.readable(principal);
        readable.ask(locked.iter().map(|(namespace, ..)| namespace)).await?;
        let is_readable = |(namespace, realm, _): &(_, _, _)| readable.contains(namespace, realm);
        Ok(locked.into_iter().filter(is_readable).map(|(.., lock)| lock).collect())
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
        let realm = Realm::Environment { project: project.clone(), environment: environment.clone() };
        copies::namespace(&realm)?;
        let present = copies::read::<StoredLock>(&*self.records, &realm).await?;
        let now = self.deployer.store_time().await?;
        let before = present.as_ref().and_then(|(_, stored)| stored.lock.as_ref());
        let mut action = action(before, principal, now);
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
        let has_apps = self.has_apps(principal, &realm).await.unwrap_or(true);
        if present.is_none() && !has_apps && lock.is_none() {
            return Ok((None, has_apps));
        }
        let changed = |sequence| StoredLock {
            project: project.clone(),
            environment: environment.clone(),
            lock: lock.clone(),
            sequence,
        };
        self.change_on(principal, present, (has_apps, now), changed).await?;
        Ok((lock, has_apps))
    }

    /// Returns the lock that refuses registrations in an environment now.
    pub(crate) async fn environment_lock(&self, environment: &Realm) -> Outcome<Option<Locked>> {
        let stored = copies::read::<StoredLock>(&*self.records, environment).await?;
        Ok(stored.and_then(|(record, stored)| stored.lock?.refusing(LockScope::Environment, record.now)))
    }
}
