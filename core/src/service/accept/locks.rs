//! Locks of apps, and the copies that apps have of their environments' and projects' rules.

use std::time::Duration;

use crate::{
    action::Action,
    app::App,
    deploy::Actor,
    error::Error,
    ledger::{AppState, Change},
    lock::{Lock, LockReason, PrincipalKey},
    request::Refusal,
    requirement::ScopedRequirement,
    service::{Authorized, Deployer, Outcome, journal::Decision, unwritten},
    time::Timestamp,
};

/// A request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLock {
    /// The reason, for those whose deploys are refused.
    pub reason: LockReason,
    /// The principal that sets the lock.
    pub owner: PrincipalKey,
    /// The time after which it ends by itself; `None`: it is ended by hand.
    pub ttl: Option<Duration>,
}

impl NewLock {
    /// Returns the lock that this party sets now.
    pub fn set(self, by: &Actor, now: Timestamp) -> Lock {
        let until = self.ttl.map(|ttl| now.after(ttl));
        Lock { reason: self.reason, by: by.clone(), owner: self.owner, at: now, until }
    }
}

impl Deployer {
    /// Sets the app's own lock in place of `present`, or ends it: while it lasts, new deploys are refused, except
    /// rollbacks. Deploys that were accepted before go on.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if the app's lock is not `present` any more; [`Refusal::AppNotFound`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn set_lock(
        &self,
        access: &Authorized,
        present: Option<Lock>,
        wanted: Option<NewLock>,
    ) -> Outcome<AppState> {
        access.check(Action::Lock)?;
        let by = access.actor().clone();
        let updated = self.update_app(access, move |change, now| {
            if change.state.app.locks.app != present {
                return Err(Refusal::Busy);
            }
            change.lock(wanted.clone().map(|lock| lock.set(&by, now)), now);
            Ok(())
        });
        let state = updated.await?;
        self.changed_here(access.uid);
        Ok(state)
    }

    /// Copies the lock of an environment into the state of one of its apps, unless a later change of it was copied. An app
    /// that was deleted meanwhile is ignored.
    ///
    /// # Errors
    /// [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn copy_environment_lock(&self, app: &App, lock: Option<Lock>, sequence: u64) -> Outcome<()> {
        self.copy(app, move |change, now| change.copy_lock(lock.clone(), sequence, now)).await
    }

    /// Copies the requirement of a project or an environment into the state of one of its apps, unless a later change of it was
    /// copied. An app that was deleted meanwhile is ignored.
    ///
    /// # Errors
    /// As [`Deployer::copy_environment_lock`].
    pub async fn copy_requirement(&self, app: &App, place: ScopedRequirement) -> Outcome<()> {
        self.copy(app, move |change, now| change.copy_requirement(place.clone(), now)).await
    }

    async fn copy(&self, app: &App, copy: impl Fn(&mut Change, Timestamp) + Send + 'static) -> Outcome<()> {
        let copied = self.journal.update(app.uid, None, move |change, _, now| {
            copy(change, now);
            Decision::Commit(())
        });
        match copied.await {
            Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(unwritten(&app.id, error)),
            Ok(_) => {
                self.changed_here(app.uid);
                Ok(())
            }
        }
    }
}
