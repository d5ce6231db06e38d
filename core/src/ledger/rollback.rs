//! The target of a rollback without a revision: the last good version before the one on the cluster.

use std::sync::Arc;

use super::{AppState, Brought, NewDeploy, stop};
use crate::{
    app::Hold,
    deploy::{Deploy, Origin, Revision, Status, Trigger},
    request::{Cause, Refusal},
};

/// The target of a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The version that this entry stands for.
    Entry(Arc<Deploy>),
    /// The newest successful entry below a revision, with another image than this entry's.
    Before {
        /// Only revisions below this one.
        below: Revision,
        /// The version to go away from.
        other_than: Arc<Deploy>,
    },
    /// No target exists.
    None,
}

/// Returns the default target.
///
/// From a good version, or a failed rollback: the good one before it. From any other unfinished or failed deploy: the
/// current one; a rollback under way is requested again. So one call returns from a bad deploy to the version before
/// it, two calls go two back, and no call returns to the bad one.
pub fn default_target(state: &AppState) -> Target {
    let Some(top) = state.on_cluster() else { return Target::None };
    let rollback = top.trigger == Trigger::Rollback;
    match top.status() {
        Status::Succeeded => before(top),
        Status::Failed if rollback => before(top),
        Status::Queued | Status::Building | Status::Releasing | Status::RollingOut | Status::Verifying if rollback => {
            Target::Entry(Arc::clone(top))
        }
        Status::Queued
        | Status::Building
        | Status::Releasing
        | Status::RollingOut
        | Status::Verifying
        | Status::Failed
        | Status::Superseded
        | Status::Cancelled => match state.last_good().or(state.current.as_ref()) {
            Some(good) => Target::Entry(Arc::clone(good)),
            None => Target::None,
        },
    }
}

fn before(top: &Arc<Deploy>) -> Target {
    Target::Before { below: top.effective, other_than: Arc::clone(top) }
}

/// Returns the deploy that a rollback to this version makes. The app keeps its configuration, and stays stopped or running; a
/// stop or start that did not succeed is taken back.
///
/// # Errors
/// [`Refusal::NothingToRollBackTo`] if the version never had an image.
pub fn deploy(state: &AppState, target: &Deploy, cause: &Cause) -> Result<NewDeploy, Refusal> {
    let image = target.pinned_image().ok_or_else(|| {
        Refusal::NothingToRollBackTo(format!("Revision {} never had an image to return to.", target.revision))
    })?;
    Ok(NewDeploy {
        image: Some(image),
        commit: target.commit.clone(),
        committed_at: target.committed_at,
        trigger: Trigger::Rollback,
        // The version's own revision, not that of the rollback or redeploy in between.
        from: Some(Origin::Revision(target.effective)),
        effective: Some(target.effective),
        unreleased: target.lacks_release(),
        is_unproven: !target.is_proven(&state.app),
        scale: stop::of_return(state),
        ..NewDeploy::new(cause)
    })
}

/// Returns a rollback with its target's configuration, which is that of the named entry, and not of the version that it may
/// have returned to itself.
pub fn with_configuration(deploy: NewDeploy, target: &Deploy) -> NewDeploy {
    let from = Some(Origin::Revision(target.revision));
    NewDeploy { configuration: Some(Brought(target.configuration)), from, ..deploy }
}

/// Returns the hold of a person's rollback from the deploy on the cluster to `target`; `None` if both are the same.
///
/// The ledger sets the hold's `by`.
pub fn hold(state: &AppState, target: &Deploy) -> Option<Hold> {
    let top = state.on_cluster()?;
    if top.same_image(target) || (top.image.is_none() && top.commit.is_none()) {
        return None;
    }
    Some(Hold {
        by: Revision::following(state.latest),
        image: top.image.clone(),
        digest: top.digest.clone(),
        commit: top.commit.clone(),
    })
}
