//! A change of an app: the next state, and what a commit writes and forgets beside it.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AppState, retention, stop};
use crate::{
    app::{App, Policy, Source, Target},
    deploy::{Deploy, Revision, State, Status},
    lock::Lock,
    replica::ReplicaId,
    request::IdempotencyKey,
    requirement::ScopedRequirement,
    time::Timestamp,
};

/// A change of one app, made by one or more of the ledger's functions and committed as one write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The next state.
    pub state: AppState,
    /// The revisions that this change accepts, ascending; an information, as they are in `state` or in `ended`.
    pub admitted: Vec<Revision>,
    /// The deploys that this change ends: the archive keeps them from now on.
    pub ended: Vec<Arc<Deploy>>,
    /// The idempotency keys that this change uses.
    pub keys: Vec<KeyWrite>,
    /// The archived deploys that are forgotten.
    pub forgotten: Vec<Revision>,
    /// The deploys that this change has changed: each changes once in a commit, so that every step of it is seen.
    pub(super) changed: BTreeSet<Revision>,
    is_empty: bool,
}

/// The deploy that an idempotency key made, as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// SHA-256 of the request under the key.
    pub request: [u8; 32],
    /// The deploy that the key made.
    pub revision: Revision,
    /// The time from which on a deploy may replace this use.
    pub expires_at: Timestamp,
}

/// An idempotency key to be written with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWrite {
    /// The key; its `request` is that of `made`.
    pub key: IdempotencyKey,
    /// The deploy that it makes.
    pub made: KeyUse,
    /// Whether a stored use of the key has expired and is replaced; otherwise the key must be free.
    pub replaces: bool,
}

/// The knowledge about an idempotency key when a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLookup {
    /// The store was not asked; the commit fails if the key is in use.
    Unread,
    /// The store's answer.
    Read(Option<KeyUse>),
}

impl Change {
    /// Returns an empty change of this state.
    pub fn on(state: AppState) -> Self {
        Self {
            state,
            admitted: Vec::new(),
            ended: Vec::new(),
            keys: Vec::new(),
            forgotten: Vec::new(),
            changed: BTreeSet::new(),
            is_empty: true,
        }
    }

    /// Returns the registration of an app.
    pub fn register(app: App) -> Self {
        let mut change = Self::on(AppState::new(app));
        change.is_empty = false;
        change
    }

    /// Returns whether nothing was changed, so that no commit is needed.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The deploys that this change accepts, moves on or ends.
    pub fn changed(&self) -> &BTreeSet<Revision> {
        &self.changed
    }

    /// Returns the deploy of this revision as it is from now on, if it is unfinished or ends with this change.
    pub fn deploy(&self, revision: Revision) -> Option<&Arc<Deploy>> {
        let ended = || self.ended.iter().find(|deploy| deploy.revision == revision);
        self.state.unfinished(revision).or_else(ended)
    }

    /// Returns the time to store with the change.
    pub(super) fn touch(&mut self, now: Timestamp) -> Timestamp {
        self.is_empty = false;
        self.state.updated_at = self.state.time(now);
        self.state.updated_at
    }

    /// Replaces an app's source and policy. A polled app has work from then on.
    pub fn configure(&mut self, source: Source, policy: Policy, now: Timestamp) {
        let has_work = !self.state.is_polled() || self.state.queued_at.is_some();
        if has_work && (&self.state.app.source, &self.state.app.policy) == (&source, &policy) {
            return;
        }
        let now = self.touch(now);
        let app = Arc::make_mut(&mut self.state.app);
        (app.source, app.policy) = (source, policy);
        if self.state.is_polled() {
            self.state.queued_at.get_or_insert(now);
        }
        self.watch_configured();
    }

    /// Replaces the target's settings.
    pub fn retarget(&mut self, target: Target, now: Timestamp) {
        if self.state.app.target != target {
            self.touch(now);
            Arc::make_mut(&mut self.state.app).target = target;
            self.end_watch("the app's target was changed");
        }
    }

    /// Releases all holds.
    pub fn release_holds(&mut self, now: Timestamp) {
        if !self.state.app.holds.is_empty() {
            self.touch(now);
            Arc::make_mut(&mut self.state.app).holds.clear();
            self.end_watch("the app's holds were released");
        }
    }

    /// Sets the app's own lock, or ends it.
    pub fn lock(&mut self, lock: Option<Lock>, now: Timestamp) {
        if self.state.app.locks.app != lock {
            self.touch(now);
            self.watch_locked(lock.as_ref());
            Arc::make_mut(&mut self.state.app).locks.app = lock;
        }
    }

    /// Copies the lock of the app's environment, unless a later change of it was copied before.
    pub fn copy_lock(&mut self, lock: Option<Lock>, sequence: u64, now: Timestamp) {
        if sequence > self.state.app.locks.sequence {
            self.touch(now);
            if lock != self.state.app.locks.environment {
                self.watch_locked(lock.as_ref());
            }
            let locks = &mut Arc::make_mut(&mut self.state.app).locks;
            (locks.environment, locks.sequence) = (lock, sequence);
        }
    }

    /// Copies the requirement of the app's project or environment, unless a later change of it was copied before.
    pub fn copy_requirement(&mut self, place: ScopedRequirement, now: Timestamp) {
        let mut requirements = self.state.app.requirements.clone();
        if requirements.take(place) {
            self.touch(now);
            Arc::make_mut(&mut self.state.app).requirements = requirements;
        }
    }

    /// Gives the app's lease to a replica.
    pub fn lease(&mut self, replica: &ReplicaId, now: Timestamp) {
        self.touch(now);
        self.state.lease = Some(replica.clone());
    }

    /// Releases the app's lease, and leaves its work to whichever replica takes it next.
    pub fn release(&mut self, now: Timestamp) {
        self.touch(now);
        self.state.lease = None;
    }

    /// Forgets archived deploys that retention selected.
    pub fn forget(&mut self, forgotten: Vec<Revision>, now: Timestamp) {
        self.touch(now);
        self.state.recoveries.retain(|recovery| !forgotten.contains(&recovery.revision));
        self.state.watches.retain(|watch| !forgotten.contains(&watch.revision));
        self.forgotten.extend(forgotten);
        self.state.kept_from = retention::kept_from(&self.state, 0);
    }

    /// Puts a deploy in its next state where it belongs: with the unfinished ones, or into the archive.
    pub(super) fn put(&mut self, deploy: Deploy) {
        let revision = deploy.revision;
        self.changed.insert(revision);
        let place = self.state.unfinished.binary_search_by_key(&revision, |known| known.revision);
        if deploy.is_out_of_order() {
            place.into_iter().for_each(|at| drop(self.state.unfinished.remove(at)));
            self.ended.push(Arc::new(deploy));
            return;
        }
        self.note_release(&deploy);
        self.note_turn(&deploy);
        let is_older = |known: &Arc<Deploy>| known.revision < revision;
        if !deploy.is_to_be_ordered() {
            self.come_in_order(revision);
            self.state.ended_off_cluster.take_if(|known| is_older(known));
            // It was none of the app's newest deploys before.
            if place.is_ok_and(|at| self.state.unfinished[at].is_to_be_ordered()) {
                self.watch_followed(revision, false);
            }
        }
        let state = &mut self.state;
        if !deploy.is_terminal() {
            match place {
                Ok(at) => state.unfinished[at] = Arc::new(deploy),
                Err(at) => state.unfinished.insert(at, Arc::new(deploy)),
            }
            return;
        }
        let before = place.ok().map(|at| state.unfinished.remove(at));
        let has_succeeded = deploy.status() == Status::Succeeded;
        if !deploy.touched && !has_succeeded && state.latest_in_order() == Some(revision) {
            state.ended_off_cluster = Some(Arc::new(deploy.without_evidence()));
        }
        if deploy.touched {
            stop::note(&mut state.stopped, &deploy);
        }
        let deploy = Arc::new(deploy);
        if state.current.as_ref().is_none_or(is_older) {
            let is_newest = state.ended_on_cluster.as_ref().is_none_or(is_older);
            if has_succeeded {
                // A change that was accepted as a deploy has in it what waited.
                state.staged.take_if(|staged| deploy.configures || Some(*staged) == deploy.configuration);
                state.ended_on_cluster.take_if(|known| is_older(known));
                let good = state.last_good().cloned();
                state.current = Some(Arc::new(deploy.without_evidence()));
                state.current_is_stopped = state.stopped.is_some();
                let state = before.as_deref().map(|before| &before.state);
                let began = if let Some(State::RollingOut { since, .. }) = state { *since } else { deploy.created_at };
                self.begin_watch(&deploy, began, good);
            } else if deploy.touched && is_newest {
                // Until a version has succeeded, what it brought stays, and has in it what waited.
                state.staged.take_if(|_| state.current.is_none() && deploy.configures);
                state.ended_on_cluster = Some(Arc::new(deploy.without_evidence()));
            }
        }
        self.ended.push(deploy);
    }
}
