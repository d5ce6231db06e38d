//! One observation of a rollout: the controller's counts, the pods of the new revision, and changes made by others.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentCondition;
use rollhook_core::{
    deploy::{Reason, Scale},
    ports::{Instances, Observation, Phase, RolloutFailure, RolloutFailureKind},
};

use super::{
    configuration, drift, failure,
    object::{Object, Stamp},
    pod_list::PodList,
    pods::{self, PodSummary},
    rollout_status::{self, RolloutStatus},
    scale,
};
use crate::{error::shortened, workload::Rollout};

/// The observation of a workload that does not exist any more.
pub(crate) fn of_missing(rollout: &Rollout) -> Observation {
    let message = format!("there is no {} {} any more", rollout.workload.kind, rollout.workload.name);
    let failure = final_failure(Reason::TARGET_MISSING, format!("{message}: it was deleted while it rolled out"));
    Observation::new(None, Phase::Progressing, "missing", message).with(|seen| seen.failure = Some(failure))
}

/// The observation of the rollout.
pub(crate) fn of(rollout: &Rollout, object: &Object, pods: &PodList, now: Timestamp) -> Observation {
    let status = rollout_status::of(object);
    let pods = pods::summary(rollout, object, pods, now);
    let stamp = object.stamp();
    let is_ours = stamp.id() == Some(rollout.id) || rollout.adopted && !drift::is_newer(&stamp, rollout);
    let drift = drift::of(object, rollout);
    let drift = drift.or_else(|| scale::undone(object, rollout).filter(|_| is_ours));
    let rests = rollout.scale != Scale::Stop || pods.left == 0 && !pods.is_part;
    let is_complete = is_ours && drift.is_none() && rests && is_complete(object, &status, &pods);
    let failure = match drift {
        Some(message) => Some(final_failure(Reason::REVERTED, message)),
        None if is_complete || !is_ours => None,
        None => failure(object, rollout, &status, &pods),
    };
    let down_for = pods.unready_for.filter(|_| is_ours && !is_complete && object.stops_first());
    let stops = rollout.scale == Scale::Stop && !is_complete && status.is_observed && pods.left > 0;
    let message = if is_ours && stops {
        leaving_message(&pods)
    } else if is_ours {
        message(object, is_complete, &status, &pods)
    } else {
        other_revision(&stamp)
    };
    let instances = instances(object, &status, &pods).filter(|_| is_ours);
    let left = if rollout.scale == Scale::Stop { format!(" left={}", pods.left) } else { String::new() };
    let leaving = waited_for(&status, &pods);
    let progress =
        progress(&status, &pods) + &left + &leaving.map(|pods| format!(" leaving={pods}")).unwrap_or_default();
    let leaving = leaving.filter(|_| is_ours).map(|pods| still_terminates(pods, ""));
    let phase = match is_complete {
        true => {
            let stopped = scale::note(object, rollout.scale);
            let of_others =
                configuration::remarked(object).filter(|_| rollout.configuration.is_some() && !rollout.adopted);
            let overdue =
                (pods.overdue > 0).then(|| still_terminates(pods.overdue, ", long after its time: look at its node"));
            let notes = [
                stopped.or(status.note).or_else(|| note(object, rollout)),
                of_others.cloned(),
                unread(object, &pods),
                overdue,
            ];
            let notes = notes.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
            Phase::Complete { digest: pods.digest, note: notes }
        }
        false => Phase::Progressing,
    };
    Observation::new(stamp.id(), phase, progress, message).with(|seen| {
        seen.instances = instances;
        seen.restarts = pods.restarts;
        seen.past_lives = if is_ours { pods.past_lives } else { Vec::new() };
        seen.down_for = down_for;
        seen.failure = failure;
        seen.leaving = leaving;
    })
}

/// The number of pods of earlier revisions that are being deleted and are waited for. The pods are read after the workload, and
/// name their revision; its count stands in where not all were read. Returns `None` if there are none.
fn waited_for(status: &RolloutStatus, pods: &PodSummary) -> Option<usize> {
    let counted = status.terminating.filter(|_| pods.is_part);
    let counted =
        counted.map_or(0, |counted| usize::try_from(counted).unwrap_or_default().saturating_sub(pods.overdue));
    Some(pods.leaving.max(counted)).filter(|leaving| *leaving > 0)
}

fn still_terminates(pods: usize, more: &str) -> String {
    match pods {
        1 => format!("1 pod of the version before still terminates{more}"),
        pods => format!("{pods} pods of the version before still terminate{more}"),
    }
}

/// Whether the rollout is complete by the counts and by the pods, which are the first to tell that one fell back.
fn is_complete(object: &Object, status: &RolloutStatus, pods: &PodSummary) -> bool {
    let is_ready = ready(status, pods) >= status.wanted;
    // The counts of the other kinds cover it, and a StatefulSet's partition keeps old pods on purpose. An old one may be
    // among the pods that were not read.
    let old_are_gone = !matches!(object, Object::DaemonSet(_)) || (pods.old == 0 && !pods.is_part);
    // A partition over all pods would be complete without a single new one.
    let is_possible = status.is_everywhere || object.unsupported().is_none();
    status.is_complete && is_ready && old_are_gone && is_possible
}

/// The number of new pods that are ready: those that were read, or the controller's count if there are more pods.
fn ready(status: &RolloutStatus, pods: &PodSummary) -> i32 {
    let read = i32::try_from(pods.ready).unwrap_or(i32::MAX);
    let is_counted = pods.is_sample() && status.is_everywhere && status.old <= 0;
    if is_counted { read.max(status.available) } else { read }
}

/// That there are pods which were not read. Returns `None` if all were.
fn unread(object: &Object, pods: &PodSummary) -> Option<String> {
    let title = object.title();
    pods.is_part.then(|| match pods.is_sample() {
        true => format!("of so many pods not all were read: the others are ready by the counts of {title}"),
        false => format!("not all pods were read: too many, or too large ones, match the selector of {title}"),
    })
}

/// What a restore did to the pods of the version that it brought back.
fn note(object: &Object, rollout: &Rollout) -> Option<String> {
    let note = match object.is_kept(rollout.id) {
        true => "brought back as it was: pods of this version that still ran were kept".to_owned(),
        false => format!("pods were made anew: {} keeps no revision that fits as it is configured", object.title()),
    };
    rollout.purpose.is_restore().then_some(note)
}

fn failure(object: &Object, rollout: &Rollout, status: &RolloutStatus, pods: &PodSummary) -> Option<RolloutFailure> {
    let title = object.title();
    // A change that stops a rollout does no harm to one whose pods are all of the new revision.
    if status.is_observed && !status.is_everywhere {
        if object.is_paused() {
            let message = format!(
                "{title} was paused while it rolled out: kubectl rollout resume goes on with this version; then deploy again"
            );
            return Some(final_failure(Reason::PAUSED, message));
        }
        if let Some(why) = object.unsupported() {
            return Some(final_failure(Reason::UNSUPPORTED, format!("changed while it rolled out: {why}")));
        }
    }
    // Until the controller has observed the new specification, conditions speak of the one before.
    let condition =
        |type_: &str, value: &str| rollout_status::condition(object, type_, value).filter(|_| status.is_observed);
    // A revision that is used again takes over the conditions of the failed one, until there is news of its own.
    let is_stale = |condition: &DeploymentCondition| {
        let since = condition.last_transition_time.as_ref().map(|time| time.0);
        object.is_kept(rollout.id) && since <= drift::patched_at(object)
    };
    let of_creation = condition("ReplicaFailure", "True").map(|refused| {
        let cause = refused.message.as_deref().map(shortened).unwrap_or_default();
        let kind = failure::of_creation(refused.message.as_deref().unwrap_or_default());
        RolloutFailure {
            kind: if is_stale(refused) { RolloutFailureKind::Capacity } else { kind },
            reason: Reason::new(refused.reason.as_deref().unwrap_or("FailedCreate")),
            container: None,
            message: format!("pods of {title} cannot be made ({cause}): correct that, or free quota"),
        }
    });
    // Where the app is down meanwhile, one end is enough, also if the container runs again by now.
    let restarted = pods.restarted.clone().filter(|_| pods.unready_for.is_some() && object.stops_first());
    let observed =
        pods.failure.clone().into_iter().chain(restarted).chain(of_creation).min_by_key(|failure| failure.kind);
    let progressing = condition("Progressing", "False").filter(|condition| !is_stale(condition));
    if progressing.is_some_and(|condition| condition.reason.as_deref() == Some("ProgressDeadlineExceeded")) {
        let why = observed.as_ref().map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        let message = format!("{title} made no progress within its progressDeadlineSeconds{why}");
        let container = observed.and_then(|failure| failure.container);
        return Some(RolloutFailure { container, ..final_failure("ProgressDeadlineExceeded", message) });
    }
    observed
}

/// A failure that ends the deploy at once.
fn final_failure(reason: &str, message: String) -> RolloutFailure {
    RolloutFailure { kind: RolloutFailureKind::Final, reason: Reason::new(reason), container: None, message }
}

/// The new pods; `None` for a CronJob, which starts none, and until the controller has observed the specification.
fn instances(object: &Object, status: &RolloutStatus, pods: &PodSummary) -> Option<Instances> {
    if matches!(object, Object::CronJob(_)) || !status.is_observed {
        return None;
    }
    Some(Instances {
        ready: u32::try_from(ready(status, pods)).unwrap_or_default(),
        wanted: u32::try_from(status.wanted).unwrap_or_default(),
    })
}

/// A text that changes as the rollout gets on, and stays the same while a container is restarted again and again.
fn progress(status: &RolloutStatus, pods: &PodSummary) -> String {
    let available = if pods.restarts == 0 { status.available } else { -1 };
    format!(
        "observed={} updated={} old={}+{} new={} started={} steady={} available={available}",
        status.is_observed, status.updated, status.old, pods.old, pods.new, pods.started, pods.steady
    )
}

fn other_revision(stamp: &Stamp) -> String {
    match stamp {
        Stamp::Deploy(id) => format!("the workload is at {id}"),
        Stamp::Absent | Stamp::Unreadable(_) => "the workload carries no revision".to_owned(),
    }
}

fn message(object: &Object, is_complete: bool, status: &RolloutStatus, pods: &PodSummary) -> String {
    let message = counts(is_complete, status, pods);
    unread(object, pods).map_or_else(|| message.clone(), |unread| format!("{message}; {unread}"))
}

/// What a stop waits for. The names show pods of others that the selector covers too.
fn leaving_message(pods: &PodSummary) -> String {
    let names = pods.left_names.join(", ");
    let names = match pods.left - pods.left_names.len() {
        _ if names.is_empty() => String::new(),
        0 => format!(": {names}"),
        more => format!(": {names} and {more} more"),
    };
    match pods.left {
        1 => format!("1 pod has not ended yet{names}"),
        left => format!("{left} pods have not ended yet{names}"),
    }
}

fn counts(is_complete: bool, status: &RolloutStatus, pods: &PodSummary) -> String {
    if let (true, Some(note)) = (is_complete, &status.note) {
        return note.clone();
    }
    if !status.is_observed {
        return "waiting for the cluster to begin".to_owned();
    }
    let (wanted, ready) = (status.wanted, ready(status, pods));
    let old = status.old.max(i32::try_from(pods.old).unwrap_or(i32::MAX));
    let left = match old {
        ..=0 => String::new(),
        1 => ", 1 old one is left".to_owned(),
        _ => format!(", {old} old ones are left"),
    };
    match is_complete {
        true => format!("{ready} of {wanted} new pods are available"),
        false if old <= 0 && ready >= wanted => {
            format!("{ready} of {wanted} new pods are ready, and must stay so for a while to count as available")
        }
        false => format!("{ready} of {wanted} new pods are ready{left}"),
    }
}

#[cfg(test)]
mod tests;
