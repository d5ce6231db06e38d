//! Stops and starts: whether an app is stopped, and what becomes of a stop that another deploy follows.

use std::sync::Arc;

use super::{AppState, NewDeploy, redeploy, restore};
use crate::{
    deploy::{Deploy, Revision, Scale, State, Status, Stopped, Trigger},
    request::{Cause, Refusal},
};

/// Returns the deploy that stops or starts the app: the current version once more, as [`redeploy::deploy`] returns it. A stopped
/// app may be stopped again, since another party may have started it meanwhile.
///
/// # Errors
/// [`Refusal::NotStopped`] for a start that would restart what runs; those of [`redeploy::deploy`].
pub fn deploy(
    state: &AppState,
    scale: Scale,
    if_current: Option<Revision>,
    cause: &Cause,
) -> Result<NewDeploy, Refusal> {
    let what = match scale {
        Scale::Keep => "redeploy what runs",
        Scale::Stop => "stop the app",
        Scale::Start => "start the app",
    };
    let deploy = redeploy::again(state, if_current, cause, what)?;
    if scale == Scale::Start && state.stopped.is_none() {
        return Err(Refusal::NotStopped);
    }
    Ok(NewDeploy { scale, ..deploy })
}

/// Returns what a return to the current version does to the number of instances: it takes back a stop or start that did
/// not succeed, and repeats what an earlier return of that kind was to do. A return from anything else leaves the
/// number as it is.
pub fn of_return(state: &AppState) -> Scale {
    match state.on_cluster() {
        Some(top) if top.status() == Status::Succeeded => Scale::Keep,
        Some(top) if top.trigger == Trigger::Rollback => top.scale,
        Some(top) => top.scale.reversed(),
        None => Scale::Keep,
    }
}

/// Notes whether the app is stopped, by the end of a deploy that touched the cluster. One that did not succeed counts as
/// well, until the restore that takes it back; one that another party undid does not.
pub(super) fn note(stopped: &mut Option<Stopped>, ended: &Deploy) {
    if ended.was_changed_by_another() {
        return;
    }
    match ended.scale {
        Scale::Keep => {}
        Scale::Start => *stopped = None,
        Scale::Stop => {
            stopped.get_or_insert_with(|| Stopped {
                since: ended.revision,
                by: ended.actor.clone(),
                at: ended.updated_at,
            });
        }
    }
}

/// Passes each stop or start that a later deploy supersedes on to that deploy: whoever waits for the one is answered by
/// the other. A rollback takes it back instead. One that ended without success is taken back by the deploy that goes on in place
/// of its restore.
pub(super) fn pass_on(state: &mut AppState, changes: &mut [Deploy]) {
    let goes_on = |ended: &Deploy| {
        let is_open = |other: &Deploy| !changes.iter().any(|change| change.revision == other.revision);
        let mut later =
            state.unfinished.iter().rev().filter(|other| other.revision > ended.revision && other.is_ready());
        later.find(|other| is_open(other)).map(|other| other.revision)
    };
    let passes = |change: &Deploy| {
        if change.scale.is_keep() {
            return None;
        }
        match change.state {
            State::Superseded { by, rollback: false } => Some((by, change.scale)),
            State::Failed { .. } | State::Cancelled { .. } if restore::is_put_right(&state.app.policy, change) => {
                let is_return = change.trigger == Trigger::Rollback;
                Some((goes_on(change)?, if is_return { change.scale } else { change.scale.reversed() }))
            }
            State::Queued
            | State::Building { .. }
            | State::Releasing { .. }
            | State::RollingOut { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Superseded { .. }
            | State::Cancelled { .. } => None,
        }
    };
    let passed: Vec<(Revision, Scale)> = changes.iter().filter_map(passes).collect();
    for (by, scale) in passed {
        let entered = state.unfinished.iter_mut().find(|deploy| deploy.revision == by).map(Arc::make_mut);
        let changed = changes.iter_mut().find(|change| change.revision == by);
        entered.into_iter().chain(changed).filter(|deploy| deploy.scale.is_keep()).for_each(|to| to.scale = scale);
    }
}
