//! One look at an order: the controller's counts, the pods of the new revision, and what others did meanwhile.

use k8s_openapi::api::core::v1::Pod;
use rollhook_core::{
    deploy::Reason,
    ports::{Observation, Phase, RolloutFailure, RolloutFailureKind},
};

use super::{
    object::{Mark, Object},
    owner,
    pods::{self, Facts},
    standing::{self, Standing},
};
use crate::{error::shortened, workload::Rollout};

/// What is to be seen where there is no workload any more.
pub(crate) fn of_missing(order: &Rollout) -> Observation {
    let message = format!("there is no {} {} any more", order.workload.kind, order.workload.name);
    Observation {
        stamp: None,
        phase: Phase::Progressing,
        progress: "missing".to_owned(),
        message: message.clone(),
        restarts: 0,
        trouble: Some(finally(Reason::TARGET_MISSING, format!("{message}: somebody deleted it while it rolled out"))),
    }
}

/// What is to be seen of the order.
pub(crate) fn of(order: &Rollout, object: &Object, pods: &[Pod]) -> Observation {
    let standing = standing::standing(object);
    let facts = pods::facts(order, object, pods);
    let mark = object.mark();
    let ours = mark.stamp() == Some(order.stamp) || order.adopted && !owner::is_newer(&mark, order);
    let changed = owner::changed_by_another(object, order);
    let done = ours && changed.is_none() && is_done(object, &standing, &facts);
    let trouble = match changed {
        Some(message) => Some(finally(Reason::REVERTED, message)),
        None if done || !ours => None,
        None => trouble(object, &standing, &facts),
    };
    Observation {
        stamp: mark.stamp(),
        message: message(&mark, ours, done, &standing, &facts),
        progress: progress(&standing, &facts),
        restarts: facts.restarts,
        phase: match done {
            true => Phase::Complete { digest: facts.digest, note: standing.note },
            false => Phase::Progressing,
        },
        trouble,
    }
}

/// Whether it is over by the controller's counts and by what the pods say, which is known earlier when one falls back.
fn is_done(object: &Object, standing: &Standing, facts: &Facts) -> bool {
    let ready = i32::try_from(facts.ready).unwrap_or(i32::MAX) >= standing.wanted;
    // The others' counts cover it, and a StatefulSet's partition keeps old pods on purpose.
    let old_gone = !matches!(object, Object::DaemonSet(_)) || facts.old == 0;
    standing.done && ready && old_gone
}

fn trouble(object: &Object, standing: &Standing, facts: &Facts) -> Option<RolloutFailure> {
    let title = object.title();
    if object.is_paused() {
        let message = format!("{title} was paused while it rolled out: kubectl rollout resume, then deploy again");
        return Some(finally(Reason::PAUSED, message));
    }
    // Conditions speak of the specification before until the controller has seen this one.
    if standing.seen {
        let stuck = standing::condition(object, "Progressing", "False")
            .filter(|condition| condition.reason.as_deref() == Some("ProgressDeadlineExceeded"));
        if stuck.is_some() {
            let why = facts.trouble.as_ref().map(|trouble| format!(": {}", trouble.message)).unwrap_or_default();
            let message = format!("{title} made no progress within its progressDeadlineSeconds{why}");
            let container = facts.trouble.as_ref().and_then(|trouble| trouble.container.clone());
            return Some(RolloutFailure { container, ..finally("ProgressDeadlineExceeded", message) });
        }
    }
    facts.trouble.clone().or_else(|| {
        let failure = standing::condition(object, "ReplicaFailure", "True").filter(|_| standing.seen)?;
        let said = failure.message.as_deref().map(shortened).unwrap_or_default();
        Some(RolloutFailure {
            kind: RolloutFailureKind::Config,
            reason: Reason::new(failure.reason.as_deref().unwrap_or("FailedCreate")),
            container: None,
            message: format!("pods of {title} cannot be made ({said}): correct that, or free quota"),
        })
    })
}

fn finally(reason: &str, message: String) -> RolloutFailure {
    RolloutFailure { kind: RolloutFailureKind::Final, reason: Reason::new(reason), container: None, message }
}

/// What moves with the rollout, and does not when a container is started again and again.
fn progress(standing: &Standing, facts: &Facts) -> String {
    let available = if facts.restarts == 0 { standing.available } else { -1 };
    format!(
        "seen={} updated={} old={}+{} new={} started={} steady={} available={available}",
        standing.seen, standing.updated, standing.old, facts.old, facts.new, facts.started, facts.steady
    )
}

fn message(mark: &Mark, ours: bool, done: bool, standing: &Standing, facts: &Facts) -> String {
    if !ours {
        return match mark {
            Mark::Stamp(stamp) => format!("the workload is at {stamp}"),
            Mark::Absent | Mark::Unreadable(_) => "the workload carries no revision".to_owned(),
        };
    }
    if let (true, Some(note)) = (done, &standing.note) {
        return note.clone();
    }
    if !standing.seen {
        return "waiting for the cluster to begin".to_owned();
    }
    let Standing { wanted, .. } = standing;
    let ready = facts.ready;
    let old = standing.old.max(i32::try_from(facts.old).unwrap_or(i32::MAX));
    let left = match old {
        ..=0 => String::new(),
        1 => ", 1 old one is left".to_owned(),
        _ => format!(", {old} old ones are left"),
    };
    match done {
        true => format!("{ready} of {wanted} new pods are available"),
        false if old <= 0 && i32::try_from(ready).is_ok_and(|ready| ready >= *wanted) => {
            format!("{ready} of {wanted} new pods are ready, and must stay so for a while to count as available")
        }
        false => format!("{ready} of {wanted} new pods are ready{left}"),
    }
}

#[cfg(test)]
mod tests;
