//! The state of a release command's run by its Job and pods: pure, tested on recorded statuses.
//!
//! | the Job and its pod | the run |
//! |---|---|
//! | suspended, and never started | ready |
//! | complete | succeeded |
//! | failed, the container has ended | failed: exit code, signal, out of memory |
//! | failed, the pod was evicted, preempted, drained | failed; the command may have done part of its work |
//! | the container cannot be made: image, configuration | the run is stopped, and failed; the command has not begun |
//! | the container has ended, and others that were added to the pod go on | the run is stopped, and judged by its exit code |
//! | stopped by this service | failed once nothing runs any more, or as it was judged |

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use rollhook_core::{
    Error, Result,
    deploy::Reason,
    image::{Digest, ImageRef},
    ports::{ReleaseFailure, RolloutFailureKind},
    text::escaped,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::shortened,
    pod_log::escaped_line,
    rules::{
        diagnostics::{LINE, LOG_LINES},
        digest, failure,
        jobs::{self, CREATED, finished, is_over, is_suspended, newest},
        pods,
    },
};

/// The annotation of a Job that was started: it is never started again, suspended by a person or not.
pub(super) const STARTED: &str = "rollhook.dev/release-started";
/// The annotation of a Job that this service has stopped, with the [`Stopped`].
pub(super) const STOPPED: &str = "rollhook.dev/release-stopped";
/// How long a failure to make a container must last that may heal by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a pod that has a node waits before it counts as held up, when its run is cancelled.
const HELD_UP: Duration = Duration::from_secs(10);
/// The most characters of a message that is read from a Job.
const MESSAGE: usize = 2000;
/// The most characters of a uid that is read from a Job.
const UID: usize = 64;

/// The state of a run as it is observed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    /// The run is ready.
    Prepared,
    /// The run goes on, or has been stopped and still has pods.
    Running,
    /// The run has had no pod for long; the Job's events say whether one can be made ([`without_pod`]).
    WithoutPod,
    /// The command will not begin, or has ended while its pod goes on: stop the run.
    Stuck(Stopped),
    /// The run was stopped and nothing of it runs any more; events say whether it has begun before ([`says_begun`]).
    Unverified(Stopped),
    /// The command has succeeded.
    Succeeded(Option<Digest>),
    /// The run has failed. The log is missing if the pod still has it.
    Failed(ReleaseFailure),
}

/// The end of a run that this service has stopped, as it is written on its Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stopped {
    pub(super) began: Began,
    pub(super) reason: Reason,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default)]
    pub(super) log: Vec<String>,
    /// The success of a command whose pod went on without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) success: Option<Success>,
}

/// The success of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Success {
    /// The digest of the image that ran.
    digest: Option<Digest>,
}

/// Whether the command of a stopped run has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Began {
    No,
    Yes,
    /// It had not when the run was stopped, which takes effect a moment later: the events of this pod say whether it has;
    /// without one, those of the Job.
    Unseen {
        pod: Option<String>,
    },
}

impl Stopped {
    /// The end of a run that is cancelled now. Once started it counts as begun, unless its pod is held up.
    pub(super) fn cancelled(job: &Job, pods: &[Pod], now: Timestamp) -> Self {
        let cancelled = Reason::new(Reason::CANCELLED);
        if !is_started(job) && is_suspended(job) {
            return Self::of(Began::No, cancelled, "The release command was ended before it began.".to_owned());
        }
        if let Some(ended) = newest(pods).and_then(|pod| ended_beside_others(job, pod)) {
            return ended;
        }
        let name = container_name(job);
        let has_any_run = pods.iter().any(|pod| jobs::container(pod, name).is_some_and(has_run));
        match newest(pods).filter(|pod| !has_any_run && is_held_up(pod, now)) {
            Some(pod) => {
                let (reason, why) = waits_for(pod, name);
                let message = format!("The release command was ended before it was seen to begin: {why}.");
                Self::unseen(Some(pod), reason.unwrap_or(cancelled), message)
            }
            None => Self::of(Began::Yes, cancelled, "The release command was ended.".to_owned()),
        }
    }

    fn unseen(pod: Option<&Pod>, reason: Reason, message: String) -> Self {
        let pod = pod.and_then(|pod| pod.metadata.uid.clone());
        Self::of(Began::Unseen { pod }, reason, message)
    }

    fn of(began: Began, reason: Reason, message: String) -> Self {
        Self { began, reason, message, exit_code: None, log: Vec::new(), success: None }
    }

    /// The end as far as it is believed: the annotation may have been written by anyone who may change Jobs in the namespace.
    fn bounded(self) -> Self {
        let is_uid = |uid: &str| uid.len() <= UID && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let skipped = self.log.len().saturating_sub(LOG_LINES);
        let lines = self.log.iter().skip(skipped).map(|line| cut(&escaped_line(line), LINE));
        Self {
            began: match self.began {
                Began::Unseen { pod: Some(uid) } if !is_uid(&uid) => Began::Yes,
                began @ (Began::No | Began::Yes | Began::Unseen { .. }) => began,
            },
            reason: Reason::new(self.reason.as_str()),
            message: cut(&escaped(&self.message), MESSAGE),
            exit_code: self.exit_code,
            log: lines.collect(),
            success: self.success,
        }
    }

    /// The end as a failure of the port.
    pub(super) fn into_failure(self, began: bool) -> ReleaseFailure {
        let Self { reason, message, exit_code, log, .. } = self;
        ReleaseFailure { began, reason, message, exit_code, log }
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Whether the pod has no node, or has waited on it for longer than a start takes.
fn is_held_up(pod: &Pod, now: Timestamp) -> bool {
    unscheduled(pod).is_some() || has_lasted(pod.metadata.creation_timestamp.as_ref(), HELD_UP, now)
}

/// The condition of a pod that no node has taken.
fn unscheduled(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|found| found.type_ == "PodScheduled" && found.status == "False")
}

fn has_lasted(since: Option<&Time>, least: Duration, now: Timestamp) -> bool {
    since.is_some_and(|since| Duration::try_from(now.duration_since(since.0)).unwrap_or_default() >= least)
}

/// The state that the container of a pod waits in, for a sentence, and its reason if there is one.
fn waits_for(pod: &Pod, container: &str) -> (Option<Reason>, String) {
    if let Some(found) = failure::of_pod(pod) {
        return (Some(found.reason), found.message);
    }
    let name = pods::name(pod);
    let status = jobs::container(pod, container);
    if let Some(waiting) = status.and_then(|status| status.state.as_ref()?.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().map(Reason::new);
        let why = waiting.message.as_deref().filter(|text| !text.trim().is_empty());
        let why = why.map(|text| format!(": {}", shortened(text))).unwrap_or_default();
        let code = reason.as_ref().map_or("no reason given", Reason::as_str);
        let state = format!("container {container} of pod {name} was waiting ({code}{why})");
        return (reason, state);
    }
    match unscheduled(pod) {
        Some(found) => {
            let why = found.message.as_deref().map(|text| format!(" ({})", shortened(text))).unwrap_or_default();
            (found.reason.as_deref().map(Reason::new), format!("the pod {name} has no node{why}"))
        }
        None => (None, format!("the pod {name} has not started its containers")),
    }
}

/// The name of the run's one container.
pub(super) fn container_name(job: &Job) -> &str {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.and_then(|pod| pod.containers.first()).map_or("", |container| &container.name)
}

/// Whether the run was started by this service.
pub(super) fn is_started(job: &Job) -> bool {
    has_annotation(job, STARTED)
}

/// Whether the run is ready to be started.
pub(super) fn is_ready(job: &Job) -> bool {
    is_suspended(job) && !is_started(job) && !is_stopped(job) && finished(job).is_none()
}

/// Whether this service has stopped the run.
pub(super) fn is_stopped(job: &Job) -> bool {
    has_annotation(job, STOPPED)
}

fn has_annotation(job: &Job, name: &str) -> bool {
    job.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name))
}

/// The end that this service has written on the Job. Returns `None` if it has not stopped the run.
pub(super) fn stopped(job: &Job) -> Result<Option<Stopped>> {
    let Some(text) = job.metadata.annotations.as_ref().and_then(|all| all.get(STOPPED)) else { return Ok(None) };
    serde_json::from_str(text).map(Stopped::bounded).map(Some).map_err(|error| {
        let job = job.metadata.name.as_deref().unwrap_or_default();
        Error::corrupt(format!("the annotation {STOPPED} of the Job {job} cannot be read"), error)
    })
}

/// The state of the run.
pub(super) fn observe(job: &Job, pods: &[Pod], now: Timestamp) -> Observed {
    let is_over = is_over(job) && pods.iter().all(pods::is_over);
    match stopped(job) {
        // Its Job never had a version by which a pod could be made, or its end was verified.
        Ok(Some(stopped)) if stopped.began == Began::No => Observed::Failed(stopped.into_failure(false)),
        Ok(Some(_)) | Err(_) if !is_over => Observed::Running,
        // Also of a run that was stopped in the moment in which it ended.
        Ok(_) | Err(_) if is_over && has_succeeded(job) => Observed::Succeeded(digest_of(job, pods)),
        Ok(Some(Stopped { success: Some(success), .. })) => Observed::Succeeded(success.digest),
        Ok(Some(stopped)) => match &stopped.began {
            Began::Unseen { pod } if !may_have_begun(pod.as_deref(), job, pods) => Observed::Unverified(stopped),
            Began::Unseen { .. } | Began::Yes | Began::No => Observed::Failed(stopped.into_failure(true)),
        },
        Ok(None) if is_over => Observed::Failed(failed(job, pods)),
        Ok(None) if finished(job).is_some() => Observed::Running,
        Ok(None) if is_ready(job) => Observed::Prepared,
        // A person has suspended it.
        Ok(None) if is_suspended(job) => Observed::Running,
        Ok(None) => running(job, pods, now),
        Err(error) => Observed::Failed(unknown(format!("Its end cannot be read: {error}."))),
    }
}

/// Whether the command ended with exit code 0.
fn has_succeeded(job: &Job) -> bool {
    let counted = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0) > 0;
    counted || matches!(finished(job), Some(("Complete", ..)))
}

/// Whether the pods that are left show that the command has begun. `seen` is the pod that had not when the run was stopped.
fn may_have_begun(seen: Option<&str>, job: &Job, pods: &[Pod]) -> bool {
    pods.iter().any(|pod| {
        let is_another = pod.metadata.uid.as_deref() != seen;
        is_another || jobs::container(pod, container_name(job)).is_some_and(has_run)
    })
}

/// Whether the container has run.
pub(super) fn has_run(status: &ContainerStatus) -> bool {
    let ended =
        |ended: &ContainerStateTerminated| ended.started_at.as_ref().is_some_and(|time| time.0 > Timestamp::UNIX_EPOCH);
    let state = status.state.as_ref();
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    state.is_some_and(|state| state.running.is_some() || state.terminated.as_ref().is_some_and(ended))
        || last.is_some()
        || status.restart_count > 0
}

/// The digest of the image that ran.
fn digest_of(job: &Job, pods: &[Pod]) -> Option<Digest> {
    let name = container_name(job);
    let reported = pods.iter().find_map(|pod| digest::of_container(pod, name));
    let spec = || job.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone();
    reported.or_else(|| spec()?.parse::<ImageRef>().ok()?.digest().cloned())
}

/// The state of a run that was started, and goes on.
fn running(job: &Job, pods: &[Pod], now: Timestamp) -> Observed {
    let Some(pod) = newest(pods) else {
        let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
        return if has_lasted(started, PATIENCE, now) { Observed::WithoutPod } else { Observed::Running };
    };
    if let Some(ended) = ended_beside_others(job, pod) {
        return Observed::Stuck(ended);
    }
    let status = jobs::container(pod, container_name(job));
    let waits = status
        .is_some_and(|status| !has_run(status) && status.state.as_ref().is_some_and(|state| state.waiting.is_some()));
    if !waits || !pods::is_active(pod) {
        return Observed::Running;
    }
    let Some(found) = failure::of_pod(pod) else { return Observed::Running };
    // From when the node has had it: a pod may wait for a node for long.
    let since = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let is_stuck = match found.kind {
        RolloutFailureKind::Final => true,
        RolloutFailureKind::Image | RolloutFailureKind::Config => {
            has_lasted(since.or(pod.metadata.creation_timestamp.as_ref()), PATIENCE, now)
        }
        RolloutFailureKind::Crash | RolloutFailureKind::Unhealthy | RolloutFailureKind::Capacity => false,
    };
    if !is_stuck {
        return Observed::Running;
    }
    let message = format!("The release command cannot begin: {}.", found.message);
    Observed::Stuck(Stopped::unseen(Some(pod), found.reason, message))
}

/// The end of a run whose pod goes on for containers that others have added to it, as a sidecar does.
fn ended_beside_others(job: &Job, pod: &Pod) -> Option<Stopped> {
    let name = container_name(job);
    let end = |status: &ContainerStatus| status.state.as_ref()?.terminated.clone();
    let own = end(jobs::container(pod, name)?)?;
    let goes_on = pods::main_statuses(pod).any(|status| status.name != name && end(status).is_none());
    if !goes_on || !pods::is_active(pod) {
        return None;
    }
    let is_lost = matches!(own.reason.as_deref(), Some("ContainerStatusUnknown" | "Unknown"));
    if own.exit_code != 0 || own.signal.unwrap_or(0) > 0 || is_lost {
        let ReleaseFailure { began, reason, message, exit_code, .. } = of_pod(job, pod);
        let stopped = Stopped::of(if began { Began::Yes } else { Began::No }, reason, message);
        return Some(Stopped { exit_code, ..stopped });
    }
    let message =
        "The release command ended with exit code 0, and its pod was ended with the containers that were added to it.";
    let success = Some(Success { digest: digest_of(job, std::slice::from_ref(pod)) });
    let ended = Stopped::of(Began::Yes, Reason::new("Completed"), message.to_owned());
    Some(Stopped { success, ..ended })
}

/// The end of a Job of which no pod can be made. Returns `None` if one was made, or may be at any moment.
pub(super) fn without_pod(events: Vec<Event>) -> Option<Stopped> {
    let why = jobs::refused_pod(events)?;
    let message = format!("The release command cannot begin, as the cluster makes no pod for it: {why}");
    Some(Stopped::unseen(None, Reason::new(jobs::FAILED_CREATE), message))
}

/// Whether these events of a pod, or of a Job, say that a container was made.
pub(super) fn says_begun(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event.reason.as_deref(), Some("Created" | "Started" | CREATED)))
}

/// The failure of a Job that ended by itself.
fn failed(job: &Job, pods: &[Pod]) -> ReleaseFailure {
    let (_, reason, message) = finished(job).unwrap_or_default();
    if reason == "DeadlineExceeded" {
        let limit = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or_default();
        let message = format!("The release command did not end within the {limit} s that it may run in the cluster.");
        return ended(Reason::RELEASE_DEADLINE, message);
    }
    match newest(pods) {
        Some(pod) => of_pod(job, pod),
        None if message.is_empty() => unknown("Its pod is gone, and its end with it.".to_owned()),
        None => unknown(format!("Its pod is gone, and its end with it ({}).", shortened(message))),
    }
}

fn ended(reason: &str, message: String) -> ReleaseFailure {
    ReleaseFailure { began: true, reason: Reason::new(reason), message, exit_code: None, log: Vec::new() }
}

fn unknown(why: String) -> ReleaseFailure {
    let message = format!("Whether the release command ran to its end is not known. {why}");
    ended(Reason::RELEASE_UNKNOWN, message)
}

/// The failure of a pod that has ended.
fn of_pod(job: &Job, pod: &Pod) -> ReleaseFailure {
    let status = pod.status.as_ref();
    let why = status.and_then(|status| status.message.as_deref()).map_or_else(String::new, shortened);
    let container = jobs::container(pod, container_name(job));
    // So the node says that it made no container of the pod.
    if container.is_none() && why.starts_with("Pod was rejected") {
        let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or(Reason::RELEASE_FAILED);
        let failure = ended(reason, format!("The release command cannot begin, as its node rejects it: {why}"));
        return ReleaseFailure { began: false, ..failure };
    }
    if jobs::is_evicted(pod) {
        return ended("Evicted", format!("The release command was evicted, as its node ran short: {why}"));
    }
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let disruption = conditions.iter().find(|found| found.type_ == "DisruptionTarget" && found.status == "True");
    if let Some(found) = disruption {
        let why = found.message.as_deref().map_or(why, shortened);
        let reason = found.reason.as_deref().unwrap_or("DisruptionTarget");
        return ended(reason, format!("The release command was interrupted from outside ({reason}): {why}"));
    }
    match container.and_then(|status| status.state.as_ref()?.terminated.as_ref()) {
        Some(end) => {
            let failure = of_container(job, end);
            // That of a container that was never made, or is lost, is the runtime's word, and not the command's.
            let is_commands = failure.began && failure.reason.as_str() != Reason::RELEASE_UNKNOWN && end.exit_code != 0;
            ReleaseFailure { exit_code: is_commands.then_some(end.exit_code), ..failure }
        }
        None => unknown(format!("Its pod has failed: {why}")),
    }
}

fn of_container(job: &Job, end: &ContainerStateTerminated) -> ReleaseFailure {
    let code = end.exit_code;
    let why = end.message.as_deref().map_or_else(String::new, shortened);
    match (end.reason.as_deref().unwrap_or_default(), end.signal) {
        ("OOMKilled", _) => ended("OOMKilled", out_of_memory(job)),
        ("ContainerStatusUnknown" | "Unknown", _) => unknown(format!("Its node lost it: {why}")),
        (reason @ ("StartError" | "ContainerCannotRun"), _) => {
            let failure = ended(reason, format!("The release command cannot be started: {why}"));
            // The image has no such program. Other failures to start may come after the program's own start.
            let has_none = why.contains("executable file not found") || why.contains("no such file or directory");
            ReleaseFailure { began: !has_none, ..failure }
        }
        (_, Some(signal)) if signal > 0 => {
            ended(Reason::RELEASE_FAILED, format!("The release command was ended by signal {signal}."))
        }
        // As shells report it, and container runtimes.
        _ if (129..=192).contains(&code) => {
            let message = format!("The release command was ended by signal {} (exit code {code}).", code - 128);
            ended(Reason::RELEASE_FAILED, message)
        }
        _ if code == 0 => {
            let message =
                "The release command ended with exit code 0, but its pod failed: another container was added to it.";
            ended(Reason::RELEASE_FAILED, message.to_owned())
        }
        _ => ended(Reason::RELEASE_FAILED, format!("The release command ended with exit code {code}.")),
    }
}

fn out_of_memory(job: &Job) -> String {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let container = pod.and_then(|pod| pod.containers.first());
    let limit = container.and_then(|container| container.resources.as_ref()?.limits.as_ref()?.get("memory"));
    let limit = limit.map(|limit| format!(" of {}", limit.0)).unwrap_or_default();
    format!(
        "The release command needed more than its memory limit{limit} (OOMKilled): have it use less, or raise the limit of \
         the workload's container."
    )
}

#[cfg(test)]
mod tests;
