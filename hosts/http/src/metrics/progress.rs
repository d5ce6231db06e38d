//! The unfinished deploys of the apps that this replica drives, as its own reads and commits show them, and the phases
//! of deploys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, ReleaseMark, State, Status},
    ledger::AppState,
    time::Timestamp,
};

/// The unfinished deploys of the apps that are leased to this replica. Each app is driven by one replica, so that the
/// sum over all of them counts each deploy once.
pub(super) struct Progress {
    replica: String,
    apps: Mutex<HashMap<AppUid, Vec<Arc<Deploy>>>>,
}

/// A phase of a deploy that is over, with the status that it led to, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The deploy waited for its turn.
    Queued(Duration),
    /// The commit was built, or failed to be.
    Built(Status, Duration),
    /// The release command ended: with `succeeded`, or the status of a deploy that ended with it.
    Released(Status, Duration),
    /// The rollout ended: with `succeeded` if the deploy is verified from then on.
    RolledOut(Status, Duration),
    /// The verification ended.
    Verified(Status, Duration),
}

impl Phase {
    /// Returns the phase that ended between two states of a deploy, if one did.
    pub(super) fn ended(before: &Deploy, after: &Deploy) -> Option<Self> {
        match &before.state {
            State::Queued => match &after.state {
                State::Building { since, .. } | State::Releasing { since, .. } | State::RollingOut { since, .. } => {
                    Some(Self::Queued(since.since(before.created_at)))
                }
                State::Queued
                | State::Succeeded { .. }
                | State::Failed { .. }
                | State::Superseded { .. }
                | State::Cancelled { .. } => None,
            },
            State::Building { since, paused, .. } if before.image.is_none() => {
                let status = match after.image {
                    Some(_) => Status::Succeeded,
                    None if after.is_terminal() => after.status(),
                    None => return None,
                };
                let took = after.updated_at.since(*since);
                Some(Self::Built(status, took.saturating_sub(paused.waiting.total(after.updated_at))))
            }
            State::Releasing { since, .. } => {
                // One that ran to its end may have been superseded meanwhile.
                let status = match after.release {
                    Some(ReleaseMark::Done) => Status::Succeeded,
                    Some(ReleaseMark::MayHaveRun) | None if after.is_terminal() => after.status(),
                    Some(ReleaseMark::MayHaveRun) | None => return None,
                };
                Some(Self::Released(status, after.updated_at.since(*since)))
            }
            State::RollingOut { since, .. } => match (&before.verification, &after.verification) {
                (Some(verification), _) if after.is_terminal() => {
                    Some(Self::Verified(after.status(), after.updated_at.since(verification.since)))
                }
                (None, _) if after.is_terminal() => {
                    Some(Self::RolledOut(after.status(), after.updated_at.since(*since)))
                }
                (None, Some(verification)) => {
                    Some(Self::RolledOut(Status::Succeeded, verification.since.since(*since)))
                }
                (Some(_) | None, _) => None,
            },
            State::Building { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Superseded { .. }
            | State::Cancelled { .. } => None,
        }
    }
}

/// The deploys under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeploysUnderWay {
    pub(super) statuses: Vec<Status>,
    pub(super) oldest: Duration,
    pub(super) builds_waiting: usize,
}

impl Progress {
    pub(super) fn new(replica: &str) -> Self {
        Self { replica: replica.to_owned(), apps: Mutex::default() }
    }

    /// Takes in an app's state.
    pub(super) fn seen(&self, state: &AppState) {
        let is_ours = state.lease.as_ref().is_some_and(|replica| replica.name == self.replica);
        let mut apps = self.lock();
        if is_ours && !state.unfinished.is_empty() {
            apps.insert(state.app.uid, state.unfinished.clone());
        } else {
            apps.remove(&state.app.uid);
        }
    }

    pub(super) fn removed(&self, app: AppUid) {
        self.lock().remove(&app);
    }

    /// Returns the deploys that are under way at this time by the store's clock.
    pub(super) fn under_way(&self, now: Timestamp) -> DeploysUnderWay {
        let mut under_way = DeploysUnderWay::default();
        for deploy in self.lock().values().flatten() {
            under_way.statuses.push(deploy.status());
            under_way.oldest = under_way.oldest.max(now.since(deploy.created_at));
            under_way.builds_waiting += usize::from(waits_for_build(deploy));
        }
        under_way
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppUid, Vec<Arc<Deploy>>>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn waits_for_build(deploy: &Deploy) -> bool {
    match &deploy.state {
        State::Queued => deploy.image.is_none(),
        State::Building { paused, .. } => deploy.image.is_none() && paused.waiting.since.is_some(),
        State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Superseded { .. }
        | State::Cancelled { .. } => false,
    }
}
