//! The state of a build by its Job and pods: pure, tested on recorded statuses.
//!
//! | the pod | the build |
//! |---|---|
//! | ended by itself | the outcome that its builder reported, as far as that counts |
//! | out of memory | failed, `OOMKilled` |
//! | its node ran short of a resource | failed, `Evicted`: it would only happen again |
//! | preempted, drained, its node lost | goes on: the Job's controller makes another pod once this one is gone |
//! | never began: image, configuration, no room, quota | failed once the operator's patience is over |
//! | ran longer than a Job may | failed, `build-deadline-exceeded` |

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
    names::{OUTCOME, STOPPED, StoredSpec, annotation},
    outcome::{Outcome, StoredFailure, reported},
};
use crate::{
    error::shortened,
    rules::{
        jobs::{self, FAILED_CREATE, finished, is_evicted, is_over, is_suspended, newest},
        pods,
    },
};

/// The name of a build's one container.
pub(super) const CONTAINER: &str = "build";

/// The state of a build as it is observed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    /// The build waits for a slot.
    Waiting,
    /// The build runs, or has been stopped and still has pods.
    Running,
    /// The build will not get any further because of this failure: stop it.
    Stuck(StoredFailure),
    /// The build has had no pod for long; the Job's events say whether one can be made ([`without_pod`]).
    WithoutPod,
    /// The build has ended, and nothing of it runs any more. The log of a failure is still missing.
    Ended(Outcome),
    /// The build has ended, and its outcome was recorded.
    Recorded(Outcome),
}

/// The state of the build. An annotation that cannot be read, as another version or a person wrote it, blocks nothing:
/// once nothing of the build runs any more, the build is lost.
pub(super) fn observe(job: &Job, pods: &[Pod], now: Timestamp, patience: Duration) -> Observed {
    let is_over = is_over(job) && pods.iter().all(pods::is_over);
    match annotation(job, OUTCOME) {
        Ok(Some(outcome)) => return Observed::Recorded(outcome),
        // The annotation stays: the version that wrote it can read it.
        Err(error) if is_over => return Observed::Recorded(unreadable(&error)),
        Ok(None) | Err(_) => {}
    }
    let stopped: Result<Option<StoredFailure>> = annotation(job, STOPPED);
    if is_over {
        return Observed::Ended(match stopped {
            Ok(Some(failure)) => Outcome::Failed(failure),
            Ok(None) => match StoredSpec::read(job) {
                Ok(spec) => outcome(&spec, job, pods),
                Err(error) => unreadable(&error),
            },
            Err(error) => unreadable(&error),
        });
    }
    match stopped {
        Ok(Some(_)) | Err(_) => Observed::Running,
        Ok(None) if is_suspended(job) => Observed::Waiting,
        Ok(None) if finished(job).is_some() => Observed::Running,
        Ok(None) => running(job, pods, now, patience),
    }
}

fn unreadable(error: &Error) -> Outcome {
    tracing::warn!(error = %error.chain(), "reading the outcome of a build failed");
    let message = format!("The outcome of the build is unknown, as {error}; deploy the commit again.");
    Outcome::Failed(StoredFailure::new(Reason::BUILD_LOST, message))
}

/// The failure of a Job whose pod cannot be made. Returns `None` if one was made: it was lost, and its successor is
/// about to be made.
pub(super) fn without_pod(events: Vec<Event>) -> Option<StoredFailure> {
    let why = jobs::refused_pod(events)?;
    Some(StoredFailure::new(FAILED_CREATE, format!("The cluster makes no pod for the build: {why}")))
}

/// The status of the pod's container.
fn container(pod: &Pod) -> Option<&ContainerStatus> {
    jobs::container(pod, CONTAINER)
}

fn outcome(spec: &StoredSpec, job: &Job, pods: &[Pod]) -> Outcome {
    let fail = |reason: &str, message: String| Outcome::Failed(StoredFailure::new(reason, message));
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
            format!("The build's pod is gone, and its outcome with it{why}; deploy the commit again."),
        );
    };
    let ended = container(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
    match ended {
        Some(ended) if ended.reason.as_deref() == Some("OOMKilled") => fail("OOMKilled", out_of_memory(pod)),
        Some(ended) => reported(spec, ended.exit_code, ended.message.as_deref()),
        None => {
            // The node rejected the pod, or could not keep it.
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

fn running(job: &Job, pods: &[Pod], now: Timestamp, patience: Duration) -> Observed {
    let since = |time: Option<&Time>| time.map_or(Duration::ZERO, |time| elapsed(time.0, now));
    if let Some(pod) = pods.iter().find(|pod| is_evicted(pod)) {
        let why = pod
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref())
            .unwrap_or("it does not say of which resource");
        let message = format!("The build was evicted, as its node ran short: {}", shortened(why));
        return Observed::Stuck(StoredFailure::new("Evicted", message));
    }
    let Some(pod) = newest(pods) else {
        let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
        return if since(started) >= patience { Observed::WithoutPod } else { Observed::Running };
    };
    if pod.metadata.deletion_timestamp.is_some() || pods::is_over(pod) {
        return Observed::Running;
    }
    let age = since(pod.metadata.creation_timestamp.as_ref());
    let waiting = container(pod).and_then(|status| status.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let is_permanent = matches!(
            reason,
            "ErrImagePull"
                | "ImagePullBackOff"
                | "InvalidImageName"
                | "ErrImageNeverPull"
                | "CreateContainerConfigError"
                | "CreateContainerError"
                | "RunContainerError"
        );
        if is_permanent && age >= patience {
            let why = waiting.message.as_deref().unwrap_or(reason);
            return Observed::Stuck(StoredFailure::new(
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
        return Observed::Stuck(StoredFailure::new(found.reason.as_deref().unwrap_or("Unschedulable"), message));
    }
    Observed::Running
}

pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
