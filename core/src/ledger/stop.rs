//! Stops and starts: whether an app is stopped, and what becomes of a stop that another deploy follows.

use super::{AppState, NewDeploy, redeploy};
use crate::{
    deploy::{Deploy, Revision, Scale, Status, Stopped},
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

/// Returns what a return to the current version does to the number of instances: where a stop or start did not succeed, the app is
/// stopped or runs as it did with the current version. A return from anything else leaves the number as it is.
pub fn of_return(state: &AppState) -> Scale {
    match state.on_cluster().filter(|top| top.status() != Status::Succeeded && !top.scale.is_keep()) {
        // The app was stopped before: a return does not start it.
        Some(top) if is_repeated(state, top) => Scale::Keep,
        Some(_) if state.current_is_stopped => Scale::Stop,
        Some(_) => Scale::Start,
        None => Scale::Keep,
    }
}

/// Returns whether this is the stop of an app that was stopped before.
fn is_repeated(state: &AppState, stop: &Deploy) -> bool {
    stop.scale == Scale::Stop && state.stopped.as_ref().is_some_and(|stopped| stopped.since < stop.revision)
}

/// Notes whether the app is stopped, by the end of a deploy that touched the cluster. One that did not succeed counts as
/// well, until the restore that takes it back.
pub(super) fn note(stopped: &mut Option<Stopped>, ended: &Deploy) {
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

/// Passes a stop or start that a later deploy supersedes on to that deploy.
pub(super) fn pass_on(from: &Deploy, to: &mut Deploy) {
    if to.scale.is_keep() {
        to.scale = from.scale;
    }
}
