//! Notifies the observers of deploys, also of commits whose answer was lost once a later read finds them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    app::AppUid,
    deploy::Deploy,
    error::{Error, Result},
    ledger::{AppState, Change},
    ports::{Clock, Committed, ConfirmedCommit, DeployObserver, HistoryStore, Version},
};

/// The most commits whose outcome is unknown at the same time; the oldest are forgotten.
const LOST_MAX: usize = 1000;

/// The observers of one journal.
pub(super) struct Observers {
    observers: Vec<Arc<dyn DeployObserver>>,
    clock: Arc<dyn Clock>,
    lost: Mutex<Vec<Sent>>,
}

/// A commit as it was sent to the store.
struct Sent {
    /// The state that the change was made on, with its version; `None` for a registration.
    before: Option<(Version, Arc<AppState>)>,
    change: Arc<Change>,
    begun: Duration,
}

/// A commit under way. Its outcome is unknown if this is dropped.
pub(super) struct CommitUnderWay<'a> {
    observers: &'a Observers,
    sent: Option<Sent>,
}

impl Observers {
    pub(super) fn new(observers: Vec<Arc<dyn DeployObserver>>, clock: Arc<dyn Clock>) -> Self {
        Self { observers, clock, lost: Mutex::default() }
    }

    /// Returns the commit under way of a change that was made on this state.
    pub(super) fn begin(&self, before: Option<(Version, Arc<AppState>)>, change: Arc<Change>) -> CommitUnderWay<'_> {
        CommitUnderWay { observers: self, sent: Some(Sent { before, change, begun: self.clock.elapsed() }) }
    }

    /// Notifies of an app that was loaded, after those of its lost commits that it turns out to hold.
    pub(super) async fn loaded(&self, store: &dyn HistoryStore, state: &AppState, version: Version) {
        for sent in self.decidable(state.app.uid, version) {
            if sent.is_stored(store, state).await {
                self.committed(&sent);
            }
        }
        self.notify(|observer| observer.loaded(state));
    }

    pub(super) fn removed(&self, app: AppUid) {
        self.notify(|observer| observer.removed(app));
    }

    /// Takes the lost commits that were made on an earlier version than the loaded one: none of them can still be
    /// written.
    fn decidable(&self, app: AppUid, version: Version) -> Vec<Sent> {
        let is_decidable = |sent: &mut Sent| {
            sent.change.state.app.uid == app && sent.before.as_ref().is_none_or(|(made_on, _)| *made_on < version)
        };
        self.lock().extract_if(.., is_decidable).collect()
    }

    fn committed(&self, sent: &Sent) {
        let before = sent.before.as_ref().map(|(_, state)| &**state);
        let took = self.clock.elapsed().saturating_sub(sent.begun);
        let commit = ConfirmedCommit { before, change: &sent.change, took };
        self.notify(|observer| observer.committed(&commit));
    }

    /// Calls each observer; a panic, which its hook has logged, ends that call alone.
    fn notify(&self, call: impl Fn(&dyn DeployObserver)) {
        for observer in &self.observers {
            if catch_unwind(AssertUnwindSafe(|| call(&**observer))).is_err() {
                tracing::error!("an observer of deploys panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommitUnderWay<'_> {
    /// Notifies of the commit if it was written.
    pub(super) fn answered(mut self, answer: &Result<Committed>) {
        if answer.as_ref().is_err_and(Error::is_unavailable) {
            return;
        }
        if let (Some(sent), Ok(committed)) = (self.sent.take(), answer) {
            // Of the changes that were made on one version, the others were not written.
            drop(self.observers.decidable(sent.change.state.app.uid, committed.version));
            self.observers.committed(&sent);
        }
    }
}

impl Drop for CommitUnderWay<'_> {
    fn drop(&mut self) {
        if let Some(sent) = self.sent.take().filter(|_| !self.observers.observers.is_empty()) {
            let mut lost = self.observers.lock();
            lost.push(sent);
            if lost.len() > LOST_MAX {
                lost.remove(0);
            }
        }
    }
}

impl Sent {
    /// Returns whether the store holds the change, as one deploy of it shows, or the fail by which it revoked a verification. A missing observation is better than a
    /// call that fails for it.
    async fn is_stored(&self, store: &dyn HistoryStore, state: &AppState) -> bool {
        let (change, accepted) = (&self.change, self.change.admitted.first());
        let ended = change.ended.first().map(|deploy| &deploy.revision);
        let revision = accepted.or(ended).or(change.changed().first());
        let fail_of = |state: &AppState| {
            let (fail, _) = state.watches.last()?.revoked()?;
            Some(fail.clone())
        };
        if revision.is_none() && fail_of(&change.state).is_some() {
            return fail_of(&change.state) == fail_of(state);
        }
        let Some(deploy) = revision.and_then(|revision| change.deploy(*revision)) else { return false };
        // An accept's id is random. What ended a deploy may have been another replica.
        let is_same = |stored: &Deploy| if accepted.is_some() { stored.id == deploy.id } else { *stored == **deploy };
        if let Some(unfinished) = state.unfinished(deploy.revision) {
            return is_same(unfinished);
        }
        let archived = store.archived(state.app.uid, deploy.revision).await;
        matches!(archived, Ok(Some(archived)) if is_same(&archived))
    }
}
