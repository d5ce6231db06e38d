//! The decision whether a failed rollout is restored, and to which version; and which entry restored it.

use std::{sync::Arc, time::Duration};

use super::AppState;
use crate::{
    app::OnFailure,
    deploy::{Deploy, Reason, State},
};

/// How long after a failure a deploy may be accepted whose registry's answer is waited for before a restore.
const REGISTRY_WAIT: Duration = Duration::from_secs(10);

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
/// The version that is restored is the last good one: one whose verification was revoked is none, and its watch owes a restore
/// of the one before it. Without a good one, a deploy that failed is followed by the version that ran until then, revoked or
/// not.
/// Deploys that ended with the app's deletion are not restored, and neither are those that ended because another party
/// changed the target: the restore would overwrite that change, such as a person's hotfix.
pub fn owed(state: &AppState) -> Owed {
    let Some(top) = state.on_cluster() else { return Owed::Nothing };
    if state.owes_watch_restore() {
        // Whatever is accepted, or done by a person, since the verification was revoked takes this back.
        return state.last_good().map_or(Owed::Nothing, |good| Owed::Restore(Arc::clone(good)));
    }
    let higher_is_ready =
        state.unfinished.iter().any(|deploy| deploy.revision > top.revision && may_take_its_place(top, deploy));
    // A restore that was superseded before it touched the cluster does not count if its successor never touched it
    // either.
    let tried = top.is_restore() || state.last_restore.is_some_and(|restore| Some(restore) == state.latest_in_order());
    if state.app.policy.on_failure == OnFailure::Leave || !ended_badly(top) || higher_is_ready || tried {
        return Owed::Nothing;
    }
    match state.last_good().or(state.current.as_ref()) {
        Some(good) => Owed::Restore(Arc::clone(good)),
        None => Owed::NothingToRestore,
    }
}

/// The restore of one deploy, as far as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// No restore is owed to the deploy: it succeeded or has not ended, it never touched the cluster, a newer deploy took
    /// over, it was a restore itself, another party changed the target, or the app's policy leaves a failed rollout as it
    /// is.
    NotOwed,
    /// There is no version to return to.
    NothingToRestore,
    /// A rollout of this version is owed; its entry does not exist yet.
    Owed(Arc<Deploy>),
    /// The entry of the restore, whatever its status.
    Made(Arc<Deploy>),
}

impl Restoration {
    /// The entry of the restore, if it exists.
    pub fn entry(&self) -> Option<&Deploy> {
        match self {
            Self::Made(entry) => Some(entry),
            Self::NotOwed | Self::NothingToRestore | Self::Owed(_) => None,
        }
    }
}

/// Returns whether a restore may follow this entry: it was ready to roll out, in its order, ended without success, and was no
/// restore itself.
pub fn may_follow(entry: &Deploy) -> bool {
    entry.image.is_some() && ended_badly(entry) && !entry.is_restore() && !entry.is_out_of_order()
}

/// Returns the entry that this one left on the cluster: itself if it touched the cluster, or else the one before it that
/// it superseded. `earlier` are the entries before it, newest first, up to the first that touched the cluster.
pub fn left_on_cluster<'a>(entry: &'a Deploy, earlier: impl IntoIterator<Item = &'a Deploy>) -> Option<&'a Deploy> {
    // `touched` is recorded before the patch, and taken back only with the deploy's end.
    if entry.touched {
        return Some(entry);
    }
    let before = earlier.into_iter().find(|earlier| earlier.touched && earlier.revision < entry.revision)?;
    matches!(before.state, State::Superseded { by, .. } if by <= entry.revision).then_some(before)
}

/// Returns the restore of an entry that touched the cluster, by the app's state and the entries after it, ascending: at least those up to the
/// first that touched the cluster, or else all.
///
/// A restore is owed to the newest deploy that touched the cluster, as [`owed`] says. So the entry that restores a deploy
/// is the first restore after it that no other entry on the cluster comes before:
///
/// - Entries between the two that never touched the cluster do not matter: they were being built when the restore was
///   accepted. One that was ready would have been rolled out in its place, and a commit that is built later is entered
///   anew behind the restore, unless the restore ended before it touched the cluster, and so restored nothing.
/// - An entry in between that touched the cluster took over: what becomes of the app is its affair, and a later restore
///   is its restore.
///
/// A restore that ended before it touched the cluster is followed by another one if its successor never touched it
/// either; then the last one counts.
pub fn restoration<'a>(state: &AppState, ended: &Deploy, later: impl IntoIterator<Item = &'a Deploy>) -> Restoration {
    if !may_follow(ended) || !ended.touched {
        return Restoration::NotOwed;
    }
    let mut made = None;
    for entry in later.into_iter().filter(|entry| entry.revision > ended.revision) {
        if entry.is_restore() {
            made = Some(entry);
        }
        if entry.touched {
            break;
        }
    }
    let present = if state.on_cluster().is_some_and(|newest| newest.revision == ended.revision) {
        owed(state)
    } else {
        Owed::Nothing
    };
    match (made, present) {
        (Some(entry), _) if entry.touched || !entry.is_terminal() => Restoration::Made(Arc::new(entry.clone())),
        (_, Owed::Restore(current)) => Restoration::Owed(current),
        (Some(entry), Owed::Nothing | Owed::NothingToRestore) => Restoration::Made(Arc::new(entry.clone())),
        (None, Owed::NothingToRestore) => Restoration::NothingToRestore,
        (None, Owed::Nothing) => Restoration::NotOwed,
    }
}

/// Returns whether a newer deploy may roll out in place of a restore of this one: one that waits for its image's registry, if it was
/// accepted soon after the end. A registry that is away holds up no restore for those that come later.
fn may_take_its_place(top: &Deploy, newer: &Deploy) -> bool {
    let is_soon = newer.created_at <= top.updated_at.after(REGISTRY_WAIT);
    newer.is_ready() && (is_soon || !newer.is_to_be_resolved())
}

/// Returns whether the deploy ended in a way that a restore puts right.
fn ended_badly(deploy: &Deploy) -> bool {
    match &deploy.state {
        // The deploy that superseded it left it there if it never got to the cluster itself.
        State::Superseded { .. } => true,
        State::Failed { .. } => !deploy.was_changed_by_another(),
        State::Cancelled { reason, .. } => reason.as_str() != Reason::APP_DELETED,
        State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. } => false,
    }
}
