//! The state of a Job that has at most one pod at a time.

use std::cmp::Reverse;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStatus, Event, Pod},
};

use super::{diagnostics, pods};

/// The reason by which the Job's controller reports a pod that it could not make.
pub(crate) const FAILED_CREATE: &str = "FailedCreate";
/// The reason by which the Job's controller reports a pod that it made.
pub(crate) const CREATED: &str = "SuccessfulCreate";

/// Whether nothing of the Job runs, or will run.
pub(crate) fn is_over(job: &Job) -> bool {
    let Some(status) = &job.status else { return false };
    let finished = finished(job).is_some();
    finished && status.active.unwrap_or(0) == 0 && status.terminating.unwrap_or(0) == 0
}

/// Whether the Job is suspended.
pub(crate) fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

/// The condition that finished the Job: its type, reason and message.
pub(crate) fn finished(job: &Job) -> Option<(&str, &str, &str)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found =
        conditions.iter().find(|found| found.status == "True" && matches!(&*found.type_, "Complete" | "Failed"))?;
    Some((&found.type_, found.reason.as_deref().unwrap_or_default(), found.message.as_deref().unwrap_or_default()))
}

/// The reason why no pod of the Job can be made, by the Job's events. Returns `None` if one was made: it was lost, and its
/// successor is about to be made.
pub(crate) fn refused_pod(events: Vec<Event>) -> Option<String> {
    let has = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
    if has(CREATED) || !has(FAILED_CREATE) {
        return None;
    }
    let refused = events.into_iter().filter(|event| event.reason.as_deref() == Some(FAILED_CREATE)).collect();
    Some(diagnostics::event_lines(refused).pop().unwrap_or_default())
}

/// The most pods of a Job that are kept.
const KEPT_PODS: usize = 10;

/// Adds a page of a list to the pods of this Job that are kept: those that are not over come first, then the newest. A person
/// who writes in its namespace may make any number of pods that name it as their controller.
pub(crate) fn keep_pods(kept: &mut Vec<Pod>, page: impl Iterator<Item = Pod>, job: &str) {
    kept.extend(page.filter(|pod| pods::controller(pod) == Some(job)));
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    kept.sort_by_key(|pod| (pods::is_over(pod), Reverse(created(pod))));
    kept.truncate(KEPT_PODS);
}

/// The newest of a Job's pods.
pub(crate) fn newest(pods: &[Pod]) -> Option<&Pod> {
    pods.iter().max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// The status of the pod's container of this name.
pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pods::main_statuses(pod).find(|status| status.name == name)
}

/// Whether the node ended the pod for lack of a resource, and not for a reason outside of the Job.
pub(crate) fn is_evicted(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted")
}
