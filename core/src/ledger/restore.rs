//! The decision whether a failed rollout is restored, and to which version.

use std::sync::Arc;

use super::AppState;
use crate::{
    app::OnFailure,
    deploy::{Deploy, Reason, State},
};

/// The restore that is owed to an app whose newest deploy on the cluster failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owed {
    /// No restore is owed.
    Nothing,
    /// A rollout of the current version is owed.
    Restore(Arc<Deploy>),
    /// There is no version to return to.
    NothingToRestore,
}

/// Decides on the present state of an app.
///
/// A restore is owed once the newest deploy that touched the cluster ended without success, unless a higher one is
/// ready to roll out, or the newest of all is a restore that was already made for it, or it was a restore itself.
/// Deploys that ended with the app's deletion are not restored.
pub fn owed(state: &AppState) -> Owed {
    let Some(top) = state.on_cluster() else { return Owed::Nothing };
    let ended_badly = match &top.state {
        // The deploy that superseded it left it there if it never got to the cluster itself.
        State::Failed { .. } | State::Superseded { .. } => true,
        State::Cancelled { reason, .. } => reason.as_str() != Reason::APP_DELETED,
        State::Queued | State::Building { .. } | State::RollingOut { .. } | State::Succeeded { .. } => false,
    };
    let higher_is_ready =
        state.unfinished.iter().any(|deploy| deploy.revision > top.revision && deploy.image.is_some());
    // A restore that was superseded before it touched the cluster does not count if its successor never touched it
    // either.
    let tried = top.is_restore() || state.last_restore.is_some_and(|restore| Some(restore) == state.latest);
    if state.app.policy.on_failure == OnFailure::Leave || !ended_badly || higher_is_ready || tried {
        return Owed::Nothing;
    }
    match &state.current {
        Some(current) => Owed::Restore(Arc::clone(current)),
        None => Owed::NothingToRestore,
    }
}
