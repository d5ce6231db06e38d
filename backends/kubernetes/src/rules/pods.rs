//! What a workload's pods say about a revision, beside the counts of its controller.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use rollhook_core::{image::Digest, ports::RolloutFailure};

use super::{
    digest,
    object::{Mark, Object},
    trouble,
};
use crate::workload::Rollout;

/// What the pods of one revision are doing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Pods of the revision that are not about to go.
    pub(crate) new: usize,
    /// Those of them that are ready.
    pub(crate) ready: usize,
    /// Those of them that are ready and never had a container restarted.
    pub(crate) steady: usize,
    /// Containers that run or are done, in pods that never had one restarted.
    pub(crate) started: usize,
    /// Pods of the workload that are not of the revision; a Deployment counts its own.
    pub(crate) old: usize,
    /// Restarts of the containers of the revision's pods.
    pub(crate) restarts: u32,
    /// The digest that all its ready pods run.
    pub(crate) digest: Option<Digest>,
    /// What is wrong with those that are not ready.
    pub(crate) trouble: Option<RolloutFailure>,
}

/// What the pods say about the order.
pub(crate) fn facts(order: &Rollout, object: &Object, pods: &[Pod]) -> Facts {
    let new: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod) && is_new(order, pod)).collect();
    let ready: Vec<&Pod> = new.iter().copied().filter(|pod| is_ready(pod)).collect();
    let steady = |pod: &&Pod| restarts(pod) == 0;
    let uid = object.metadata().uid.as_deref();
    Facts {
        new: new.len(),
        ready: ready.len(),
        steady: ready.iter().copied().filter(steady).count(),
        started: new.iter().copied().filter(steady).map(started).sum(),
        old: pods.iter().filter(|pod| is_active(pod) && !is_new(order, pod) && controller(pod) == uid).count(),
        restarts: new.iter().map(|pod| restarts(pod)).fold(0, u32::saturating_add),
        digest: digest::common(&order.workload.containers, &ready),
        trouble: trouble::worst(new.iter().copied().filter(|pod| !is_ready(pod))),
    }
}

/// Whether the pod is of the order's revision. What was adopted is observed as it is: all its pods are.
pub(crate) fn is_new(order: &Rollout, pod: &Pod) -> bool {
    order.adopted || Mark::among(pod.metadata.annotations.as_ref()).stamp() == Some(order.stamp)
}

/// Whether the pod is neither on its way out nor over; evicted pods stay listed for long.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether the pod's condition says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The uid of the controller that made the pod.
pub(crate) fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The states of all its containers, init ones first.
pub(crate) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    init.iter().chain(main)
}

/// The pod's name.
pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Restarts of all its containers.
pub(crate) fn restarts(pod: &Pod) -> u32 {
    statuses(pod).map(|status| u32::try_from(status.restart_count).unwrap_or(0)).fold(0, u32::saturating_add)
}

fn started(pod: &Pod) -> usize {
    let begun = |status: &&ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    statuses(pod).filter(begun).count()
}
