//! Whether a failed rollout is to be put right, and with what.

use crate::{
    app::OnFailure,
    deploy::{Deploy, Reason, State},
    ports::View,
};

/// What is owed to an app whose newest deploy on the cluster ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Nothing.
    Nothing,
    /// The current version is to be rolled out again.
    Restore(Box<Deploy>),
    /// There is no version to return to.
    NothingToRestore,
}

/// Decides on an app as it stands.
///
/// A restore is owed once the newest deploy that touched the cluster ended otherwise than well, unless a higher one is
/// ready to roll out, or the newest of all is a restore that was already made for it, or it was one itself. What the
/// app's deletion has ended is left as it is.
pub fn owed(view: &View) -> Owed {
    let Some(top) = &view.on_cluster else { return Owed::Nothing };
    let ended_badly = match &top.state {
        // Whoever took its place and never got to the cluster left it there.
        State::Failed { .. } | State::Superseded { .. } => true,
        State::Cancelled { reason, .. } => reason.as_str() != Reason::APP_DELETED,
        State::Queued | State::Building { .. } | State::RollingOut { .. } | State::Succeeded { .. } => false,
    };
    let higher_is_ready = view.unfinished.iter().any(|deploy| deploy.revision > top.revision && deploy.image.is_some());
    // A restore that somebody's deploy took the place of was none, where that one never got to the cluster either.
    let tried = top.is_restore() || view.last_restore.is_some_and(|restore| Some(restore) == view.last);
    if view.app.policy.on_failure == OnFailure::Leave || !ended_badly || higher_is_ready || tried {
        return Owed::Nothing;
    }
    match &view.current {
        Some(current) => Owed::Restore(Box::new(current.clone())),
        None => Owed::NothingToRestore,
    }
}
