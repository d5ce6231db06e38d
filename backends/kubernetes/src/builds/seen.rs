//! What a Job and its pods say about a build: pure, tested on recorded statuses.
//!
//! | what happened to the pod | what becomes of the build |
//! |---|---|
//! | it ended by itself | what its builder said, as far as that is believed |
//! | out of memory | failed, `OOMKilled` |
//! | its node ran short of something | failed, `Evicted`: it would only happen again |
//! | preempted, drained, its node lost | the Job's controller makes another pod once this one is really gone: nothing is wrong with the build |
//! | it never began: image, configuration, no room, quota | failed once the operator's patience is over |
//! | longer than the Job may run | failed, `build-deadline-exceeded` |

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ContainerStatus, Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use rollhook_core::{Error, Result, deploy::Reason};

use super::{
    end::{End, Failure, told},
    names::{About, END, VERDICT, annotation},
};
use crate::{error::shortened, rules::proof};

/// The name of a build's one container.
pub(super) const CONTAINER: &str = "build";

/// How far a build is seen to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// For a place.
    Waiting,
    /// It runs, or what has ended it has not taken effect yet.
    Running,
    /// It will not get any further, for this reason: it is to be ended.
    Stuck(Failure),
    /// It has no pod, for long; the Job's events say whether none can be made of it ([`without_pod`]).
    WithoutPod,
    /// It ended, and nothing of it runs any more. A failure's log is not looked at here.
    Ended(End),
    /// It ended, and that was noted.
    Noted(End),
}

/// Whether nothing of it runs, or will.
pub(super) fn is_over(job: &Job) -> bool {
    let Some(status) = &job.status else { return false };
    let finished = finished(job).is_some();
    finished && status.active.unwrap_or(0) == 0 && status.terminating.unwrap_or(0) == 0
}

/// Whether it was not let begin yet.
pub(super) fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

/// Whether the pod may still do something.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// What is to be seen of the build. What stands on its Job and cannot be read, as another version wrote it or somebody
/// has changed it, holds nobody up: once nothing of the build runs any more, it is lost.
pub(super) fn seen(job: &Job, pods: &[Pod], now: Timestamp, patience: Duration) -> Seen {
    let over = is_over(job) && !pods.iter().any(is_active);
    match annotation(job, END) {
        Ok(Some(end)) => return Seen::Noted(end),
        // It is left as it is: who wrote it can read it.
        Err(error) if over => return Seen::Noted(unreadable(&error)),
        Ok(None) | Err(_) => {}
    }
    let verdict: Result<Option<Failure>> = annotation(job, VERDICT);
    if over {
        return Seen::Ended(match verdict {
            Ok(Some(verdict)) => End::Failed(verdict),
            Ok(None) => match About::read(job) {
                Ok(about) => end(&about, job, pods),
                Err(error) => unreadable(&error),
            },
            Err(error) => unreadable(&error),
        });
    }
    match verdict {
        Ok(Some(_)) | Err(_) => Seen::Running,
        Ok(None) if is_suspended(job) => Seen::Waiting,
        Ok(None) if finished(job).is_some() => Seen::Running,
        Ok(None) => running(job, pods, now, patience),
    }
}

fn unreadable(error: &Error) -> End {
    tracing::warn!(error = %error.chain(), "how a build ended cannot be read");
    let message = format!("How the build ended cannot be known, as {error}; deploy the commit again.");
    End::Failed(Failure::new(Reason::BUILD_LOST, message))
}

/// The condition that finished it: its type, its reason and its message.
fn finished(job: &Job) -> Option<(&str, &str, &str)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found =
        conditions.iter().find(|found| found.status == "True" && matches!(&*found.type_, "Complete" | "Failed"))?;
    Some((&found.type_, found.reason.as_deref().unwrap_or_default(), found.message.as_deref().unwrap_or_default()))
}

/// Why no pod can be made of a Job. None where one was: then it was lost, and its successor is about to be made.
pub(super) fn without_pod(events: Vec<Event>) -> Option<Failure> {
    let of = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
    if of("SuccessfulCreate") || !of(FAILED_CREATE) {
        return None;
    }
    let refused = events.into_iter().filter(|event| event.reason.as_deref() == Some(FAILED_CREATE)).collect();
    let why = proof::event_lines(refused).pop().unwrap_or_default();
    Some(Failure::new(FAILED_CREATE, format!("The cluster makes no pod for the build: {why}")))
}

/// The word of the Job's controller for a pod that it could not make.
const FAILED_CREATE: &str = "FailedCreate";

/// The newest of a build's pods.
pub(super) fn newest(pods: &[Pod]) -> Option<&Pod> {
    pods.iter().max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// The status of the pod's container.
pub(super) fn container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == CONTAINER)
}

fn end(about: &About, job: &Job, pods: &[Pod]) -> End {
    let fail = |reason: &str, message: String| End::Failed(Failure::new(reason, message));
    let (kind, reason, message) = finished(job).unwrap_or_default();
    if (kind, reason) == ("Failed", "DeadlineExceeded") {
        let limit = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or_default();
        return fail(
            Reason::BUILD_DEADLINE,
            format!("The build did not end within the {limit} s that a build may run in the cluster."),
        );
    }
    let complete = kind == "Complete";
    let phase = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some(if complete { "Succeeded" } else { "Failed" })
    };
    let of_kind: Vec<Pod> = pods.iter().filter(phase).cloned().collect();
    let Some(pod) = newest(&of_kind) else {
        let why = if message.is_empty() { String::new() } else { format!(" ({})", shortened(message)) };
        return fail(
            Reason::BUILD_LOST,
            format!("The build's pod is gone, and with it how the build ended{why}; deploy the commit again."),
        );
    };
    let ended = container(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
    match ended {
        Some(ended) if ended.reason.as_deref() == Some("OOMKilled") => fail("OOMKilled", out_of_memory(pod)),
        Some(ended) => told(about, ended.exit_code, ended.message.as_deref()),
        None => {
            // The node did not take it, or could not keep it.
            let status = pod.status.as_ref();
            let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or(Reason::BUILD_LOST);
            let why = status.and_then(|status| status.message.as_deref()).unwrap_or("the cluster does not say why");
            fail(reason, format!("The build's pod failed before it began: {}", shortened(why)))
        }
    }
}

fn out_of_memory(pod: &Pod) -> String {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let limit = container.and_then(|container| container.resources.as_ref()?.limits.as_ref()?.get("memory"));
    let limit = limit.map(|limit| format!(" of {}", limit.0)).unwrap_or_default();
    format!(
        "The build needed more than its memory limit{limit}: have it use less, or raise the limit (--build-memory)."
    )
}

fn running(job: &Job, pods: &[Pod], now: Timestamp, patience: Duration) -> Seen {
    let since = |time: Option<&Time>| time.map_or(Duration::ZERO, |time| elapsed(time.0, now));
    if let Some(pod) = pods.iter().find(|pod| is_evicted(pod)) {
        let why = pod.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or("it does not say of what");
        let message = format!("The build was evicted, as its node ran short: {}", shortened(why));
        return Seen::Stuck(Failure::new("Evicted", message));
    }
    let Some(pod) = newest(pods) else {
        let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
        return if since(started) >= patience { Seen::WithoutPod } else { Seen::Running };
    };
    if pod.metadata.deletion_timestamp.is_some() || !is_active(pod) {
        return Seen::Running;
    }
    let age = since(pod.metadata.creation_timestamp.as_ref());
    let waiting = container(pod).and_then(|status| status.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let hopeless = matches!(
            reason,
            "ErrImagePull"
                | "ImagePullBackOff"
                | "InvalidImageName"
                | "ErrImageNeverPull"
                | "CreateContainerConfigError"
                | "CreateContainerError"
                | "RunContainerError"
        );
        if hopeless && age >= patience {
            let why = waiting.message.as_deref().unwrap_or(reason);
            return Seen::Stuck(Failure::new(
                reason,
                format!("The builder does not start ({reason}): {}", shortened(why)),
            ));
        }
    }
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unscheduled = conditions.into_iter().find(|found| found.type_ == "PodScheduled" && found.status == "False");
    if let Some(found) = unscheduled.filter(|_| age >= patience.saturating_mul(5)) {
        let why = found.message.as_deref().unwrap_or("the scheduler does not say why");
        let message = format!("No node takes the build: {}", shortened(why));
        return Seen::Stuck(Failure::new(found.reason.as_deref().unwrap_or("Unschedulable"), message));
    }
    Seen::Running
}

/// Whether its node ended it for want of something, and not for a reason that lies outside of the build.
fn is_evicted(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted")
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
