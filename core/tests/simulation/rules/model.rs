//! A model of the rules, read off a whole history.

use std::time::Duration;

use rollhook_core::{
    app::{OnFailure, Policy},
    deploy::{Deploy, Reason, Revision, Scale, State, Status, Trigger},
};

/// How long after a failure a deploy is waited for whose registry has not answered.
const REGISTRY_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn current(history: &[Deploy]) -> Option<&Deploy> {
    history.iter().rev().find(|entry| entry.status() == Status::Succeeded)
}

/// The version that ended last on the cluster, if none has succeeded.
pub(crate) fn ended_first(history: &[Deploy]) -> Option<&Deploy> {
    let ended = history.iter().rev().find(|entry| entry.touched && entry.is_terminal());
    ended.filter(|_| current(history).is_none())
}

/// The same, if it failed or was cancelled.
pub(crate) fn failed_first(history: &[Deploy]) -> Option<&Deploy> {
    ended_first(history).filter(|ended| matches!(ended.status(), Status::Failed | Status::Cancelled))
}

/// The version to return to: the current one, or, where its verification was revoked, the one to return to before it, unless
/// that one runs the same.
pub(crate) fn good<'a>(history: &'a [Deploy], revoked: &[Revision]) -> Option<&'a Deploy> {
    let at = history.iter().rposition(|entry| entry.status() == Status::Succeeded)?;
    let current = &history[at];
    if !revoked.contains(&current.revision) {
        return Some(current);
    }
    good(&history[..at], revoked).filter(|before| !before.runs_as(current))
}

pub(crate) fn on_cluster(history: &[Deploy]) -> Option<&Deploy> {
    history.iter().rev().find(|entry| entry.touched)
}

/// Whether the newest stop or start that touched the cluster and has ended is a stop.
pub(crate) fn is_stopped(history: &[Deploy]) -> bool {
    let scaled = |entry: &&Deploy| entry.touched && entry.is_terminal() && !entry.scale.is_keep();
    history.iter().rev().find(scaled).is_some_and(|entry| entry.scale == Scale::Stop)
}

/// The revision that a plain rollback returns to (rule 10).
pub(crate) fn meant<'a>(history: &'a [Deploy], revoked: &[Revision]) -> Option<&'a Deploy> {
    let top = on_cluster(history)?;
    let rollback = top.trigger == Trigger::Rollback;
    let before = || {
        let below = |entry: &&Deploy| entry.revision < top.effective && entry.status() == Status::Succeeded;
        let is_revoked = |entry: &Deploy| revoked.contains(&entry.revision) || revoked.contains(&entry.effective);
        let has_revoked_twin = |entry: &Deploy| {
            let mut newer = history.iter().filter(below).filter(|newer| newer.revision > entry.revision);
            newer.any(|newer| is_revoked(newer) && newer.runs_as(entry))
        };
        let is_target = |entry: &&Deploy| !entry.same_image(top) && !is_revoked(entry) && !has_revoked_twin(entry);
        history.iter().rev().filter(below).find(is_target)
    };
    match top.status() {
        Status::Succeeded => before(),
        Status::Failed if rollback => before(),
        status if !status.is_terminal() && rollback => Some(top),
        Status::Queued
        | Status::Building
        | Status::Releasing
        | Status::RollingOut
        | Status::Verifying
        | Status::Failed
        | Status::Superseded
        | Status::Cancelled => good(history, revoked).or_else(|| current(history)),
    }
}

/// The newest entry, but for those that came after one that is newer, and those of which that is not known yet.
pub(crate) fn last_in_order(history: &[Deploy]) -> Option<&Deploy> {
    let is_late =
        |entry: &Deploy| matches!(entry.state, State::Superseded { newer: Some(_), .. }) || entry.is_to_be_ordered();
    history.iter().rev().find(|entry| !is_late(entry))
}

/// From where a rollback returns, for counting.
pub(crate) fn situation(history: &[Deploy]) -> &'static str {
    let top = on_cluster(history);
    match top.map(|top| (top.status(), top.trigger == Trigger::Rollback)) {
        Some((Status::Succeeded, false)) => "rule 10: from a good version",
        Some((Status::Succeeded, true)) => "rule 10: from a rollback, one further",
        Some((Status::Failed, true)) => "rule 10: from a rollback that failed",
        Some((Status::RollingOut | Status::Verifying, true)) => "rule 10: again, while a rollback is on its way",
        Some((Status::RollingOut | Status::Verifying, false)) => "rule 10: from what is on its way",
        Some((Status::Failed, false)) => "rule 10: from what failed",
        Some((Status::Queued | Status::Building | Status::Releasing | Status::Superseded | Status::Cancelled, _))
        | None => "rule 10: from what was stopped",
    }
}

/// The reasons of deploys during which somebody changed, paused or removed the workload.
const BY_ANOTHER: [&str; 4] = [Reason::REVERTED, Reason::PAUSED, Reason::UNSUPPORTED, Reason::TARGET_MISSING];

/// Whether the newest that touched the cluster ended otherwise than well, and neither was a restore nor left the cluster to
/// somebody who had changed it (rule 12).
pub(crate) fn went_wrong(history: &[Deploy]) -> Option<&Deploy> {
    on_cluster(history).filter(|top| {
        let badly = match &top.state {
            State::Failed { reason, .. } => !BY_ANOTHER.contains(&reason.as_str()),
            State::Superseded { .. } => true,
            State::Cancelled { reason, .. } => reason.as_str() != Reason::APP_DELETED,
            State::Queued
            | State::Building { .. }
            | State::Releasing { .. }
            | State::RollingOut { .. }
            | State::Succeeded { .. } => false,
        };
        badly && !top.is_restore()
    })
}

/// The restore that is owed (rule 12).
pub(crate) fn owed<'a>(history: &'a [Deploy], policy: &Policy, revoked: &[Revision]) -> Option<&'a Deploy> {
    let top = went_wrong(history)?;
    let is_late = |entry: &Deploy| entry.created_at > top.updated_at.after(REGISTRY_WAIT) && entry.is_to_be_resolved();
    let ready = |entry: &Deploy| !entry.is_terminal() && entry.image.is_some() && !is_late(entry);
    let higher = history.iter().any(|entry| entry.revision > top.revision && ready(entry));
    let tried = last_in_order(history).is_some_and(Deploy::is_restore);
    (policy.on_failure == OnFailure::Restore && !higher && !tried)
        .then(|| good(history, revoked).or_else(|| current(history)))
        .flatten()
}
