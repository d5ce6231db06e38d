//! The decision whether the version that runs is deployed once more, such as to restart its instances without a gap.

use super::{AppState, NewDeploy};
use crate::{
    app::App,
    deploy::{Deploy, Origin, Revision, Status},
    request::{Cause, Refusal},
};

/// Returns the deploy of the current version once more: its bits and its commit, without a build and without its release
/// command, which has run.
///
/// # Errors
/// [`Refusal::CurrentChanged`] if another revision is current than the caller believes; [`Refusal::NotRedeployable`]
/// where nothing has succeeded yet, or another version is on the cluster or on its way to it.
pub fn deploy(state: &AppState, if_current: Option<Revision>, cause: &Cause) -> Result<NewDeploy, Refusal> {
    again(state, if_current, cause, "redeploy what runs")
}

/// Returns [`deploy`] for a purpose, as in "before you redeploy what runs".
pub(super) fn again(
    state: &AppState,
    if_current: Option<Revision>,
    cause: &Cause,
    purpose: &str,
) -> Result<NewDeploy, Refusal> {
    check(state, if_current, purpose)?;
    let Some(current) = &state.current else {
        return Err(Refusal::NotRedeployable(format!(
            "No deploy of {} has succeeded yet: deploy an image or a commit before you {purpose}.",
            state.app.id
        )));
    };
    if let Some(top) = state.on_cluster().filter(|top| !top.same_version(current)) {
        return Err(Refusal::NotRedeployable(format!(
            "Revision {}{}, which {}, is on the cluster, and not the current revision {}. Roll back to return to revision \
             {}, or deploy another image.",
            top.revision,
            image(top),
            ended(top.status()),
            current.revision,
            current.revision
        )));
    }
    repeat(&state.app, current, cause)
}

/// Returns `Ok` unless another deploy is on its way to the cluster.
///
/// # Errors
/// [`Refusal::CurrentChanged`], [`Refusal::NotRedeployable`].
pub(super) fn check(state: &AppState, if_current: Option<Revision>, purpose: &str) -> Result<(), Refusal> {
    state.expect_current(if_current)?;
    match state.unfinished.iter().rfind(|deploy| deploy.is_ready()) {
        Some(ready) => Err(Refusal::NotRedeployable(format!(
            "Revision {}{} {}: wait for its end, or cancel it, before you {purpose}.",
            ready.revision,
            image(ready),
            under_way(ready.status())
        ))),
        None => Ok(()),
    }
}

/// Returns the deploy of a version once more.
///
/// # Errors
/// [`Refusal::Internal`] for an entry without an image: none that touched the cluster is.
pub(super) fn repeat(app: &App, version: &Deploy, cause: &Cause) -> Result<NewDeploy, Refusal> {
    Ok(NewDeploy {
        image: Some(version.pinned_image().ok_or(Refusal::Internal)?),
        commit: version.commit.clone(),
        committed_at: version.committed_at,
        from: Some(Origin::Same(version.revision)),
        effective: Some(version.effective),
        unreleased: version.lacks_release(),
        is_unproven: !version.is_proven(app),
        ..NewDeploy::new(cause)
    })
}

fn image(deploy: &Deploy) -> String {
    deploy.image.as_ref().map_or_else(String::new, |image| format!(" ({image})"))
}

/// Returns the status of a deploy that has an image and has not ended, as a predicate.
const fn under_way(status: Status) -> &'static str {
    match status {
        Status::Releasing => "runs its release command",
        Status::RollingOut => "is rolling out",
        Status::Verifying => "is being verified",
        Status::Queued
        | Status::Building
        | Status::Succeeded
        | Status::Failed
        | Status::Superseded
        | Status::Cancelled => "is about to roll out",
    }
}

/// Returns the status of a deploy that ended without success, as a predicate.
const fn ended(status: Status) -> &'static str {
    match status {
        Status::Cancelled => "was cancelled",
        Status::Superseded => "was superseded",
        Status::Queued
        | Status::Building
        | Status::Releasing
        | Status::RollingOut
        | Status::Verifying
        | Status::Succeeded
        | Status::Failed => "failed",
    }
}
