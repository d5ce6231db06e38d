//! The pods of a workload, as far as they tell more about a revision than the counts of its controller.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use rollhook_core::{
    image::Digest,
    ports::{PastLives, RolloutFailure},
};

use super::{
    digest, failure, lives,
    object::{Object, Stamp},
    pod_list::{KEPT, PodList},
};
use crate::workload::Rollout;

/// The most pods that a stop names.
const NAMED: usize = 3;
/// The time after which a pod that should have ended is not waited for: its node is away, or a finalizer keeps it.
const OVERDUE: Duration = Duration::from_secs(30);

/// The state of the pods of one revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSummary {
    /// The active pods of the revision.
    pub(crate) new: usize,
    /// The new pods that are ready.
    pub(crate) ready: usize,
    /// The ready pods without any restart.
    pub(crate) steady: usize,
    /// The containers that run or are done, in new pods without any restart.
    pub(crate) started: usize,
    /// The active pods of other revisions that the workload itself controls; a Deployment's are controlled by
    /// ReplicaSets.
    pub(crate) old: usize,
    /// The pods of the workload that are left, of any revision, those that are being deleted among them.
    pub(crate) left: usize,
    /// The pods of earlier revisions that are being deleted, and still have the time for it that their specification gives them.
    pub(crate) leaving: usize,
    /// Those that have not ended long after it.
    pub(crate) overdue: usize,
    /// The names of the first of those that are left, as far as they were kept.
    pub(crate) left_names: Vec<String>,
    /// The restarts of the containers of new pods.
    pub(crate) restarts: u32,
    /// The past lives of the containers of new pods.
    pub(crate) past_lives: Vec<PastLives>,
    /// For how long no pod has been ready, as far as the new ones tell; `None` if one is, also an old one, or if not all
    /// pods were read.
    pub(crate) unready_for: Option<Duration>,
    /// The digest that all ready pods run; `None` also if not all of them were read.
    pub(crate) digest: Option<Digest>,
    /// The failure of a new pod that is not ready.
    pub(crate) failure: Option<RolloutFailure>,
    /// The failure of a new pod that is not ready, and of which a container ended and runs again.
    pub(crate) restarted: Option<RolloutFailure>,
    /// Whether there are pods that were not read.
    pub(crate) is_part: bool,
}

impl PodSummary {
    /// Whether so many new pods are ready that the controller's counts can be believed about those that were not read: all
    /// that were, and no fewer than are kept.
    pub(crate) fn is_sample(&self) -> bool {
        self.is_part && self.ready == self.new && self.ready >= KEPT
    }
}

/// The state of the pods of the rollout's revision.
pub(crate) fn summary(rollout: &Rollout, object: &Object, list: &PodList, now: Timestamp) -> PodSummary {
    let PodList { kept: pods, counted, is_part } = list;
    let own = object.pods_stamp(rollout.id);
    let new: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod) && is_new(rollout, &own, pod)).collect();
    let ready: Vec<&Pod> = new.iter().copied().filter(|pod| is_ready(pod)).collect();
    let steady = |pod: &&Pod| restarts(pod) == 0;
    let uid = object.metadata().uid.as_deref();
    let old = pods.iter().filter(|pod| is_active(pod) && !is_new(rollout, &own, pod) && controller(pod) == uid).count();
    let leaving = pods.iter().filter(|pod| is_leaving(rollout, object, &own, pod));
    let (overdue, leaving): (Vec<&Pod>, Vec<&Pod>) = leaving.partition(|pod| is_overdue(ends_by(pod), now));
    let (counted_leaving, counted_overdue) = match is_overdue(counted.leaving_until, now) {
        true => (0, counted.leaving),
        false => (counted.leaving, 0),
    };
    let left: Vec<&Pod> = pods.iter().filter(|pod| !is_over(pod) && is_of(object, pod)).collect();
    PodSummary {
        new: new.len() + counted.new,
        ready: ready.len() + counted.ready,
        steady: ready.iter().copied().filter(steady).count(),
        started: new.iter().copied().filter(steady).map(started).sum(),
        old: old + counted.old,
        left: left.len() + counted.new + counted.old,
        leaving: leaving.len() + counted_leaving,
        overdue: overdue.len() + counted_overdue,
        left_names: left.iter().take(NAMED).map(|pod| name(pod).to_owned()).collect(),
        restarts: new.iter().map(|pod| restarts(pod)).fold(0, u32::saturating_add),
        past_lives: new.iter().flat_map(|pod| lives::past(pod, now)).collect(),
        unready_for: unready_for(&new, pods, now).filter(|_| !counted.is_any_ready && !is_part),
        digest: digest::common(&rollout.workload.containers, &ready)
            .filter(|digest| counted.digests.iter().all(|other| other.as_ref() == Some(digest)) && !is_part),
        failure: failure::worst(new.iter().copied().filter(|pod| !is_ready(pod))),
        restarted: new.iter().copied().filter(|pod| !is_ready(pod)).find_map(failure::restarted),
        is_part: *is_part,
    }
}

/// For how long none of the pods has been ready; `None` if one is.
fn unready_for(new: &[&Pod], pods: &[Pod], now: Timestamp) -> Option<Duration> {
    if pods.iter().any(|pod| is_active(pod) && is_ready(pod)) {
        return None;
    }
    Some(new.iter().filter_map(|pod| unready_since(pod)).max().map_or(Duration::ZERO, |since| lives::span(since, now)))
}

/// The time since which a pod is not ready.
fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let changed = conditions.iter().find(|condition| condition.type_ == "Ready");
    let changed = changed.and_then(|condition| condition.last_transition_time.as_ref());
    changed.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Whether the pod is of the rollout's revision, whose pods carry the stamp `own`. An adopted workload is observed as it
/// is: all its pods are.
pub(crate) fn is_new(rollout: &Rollout, own: &Stamp, pod: &Pod) -> bool {
    rollout.adopted || Stamp::among(pod.metadata.annotations.as_ref()) == *own
}

/// Whether the pod is neither being deleted nor over; evicted pods stay listed for long.
pub(crate) fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !is_over(pod)
}

/// Whether all containers of the pod have ended for good.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
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

/// Whether the pod is of an earlier revision of this app's workload, is being deleted, and has not ended. Jobs of a CronJob
/// run on beside the next version.
pub(crate) fn is_leaving(rollout: &Rollout, object: &Object, own: &Stamp, pod: &Pod) -> bool {
    let is_ended_by_rollout = match object {
        Object::Deployment(_) | Object::StatefulSet(_) | Object::DaemonSet(_) => true,
        Object::CronJob(_) => false,
    };
    let is_deleted = pod.metadata.deletion_timestamp.is_some() && !is_over(pod);
    is_ended_by_rollout
        && is_deleted
        && !is_new(rollout, own, pod)
        && is_of(object, pod)
        && is_of_app(rollout, object, pod)
}

/// Whether a pod that the workload made is this app's. The selectors of two Deployments may cover each other's pods: those of
/// this one carry the app's stamp or, from before its first deploy, have a ReplicaSet that is named like the Deployment with a
/// hash behind it.
pub(crate) fn is_of_app(rollout: &Rollout, object: &Object, pod: &Pod) -> bool {
    let stamp = Stamp::among(pod.metadata.annotations.as_ref());
    if !matches!(object, Object::Deployment(_)) || stamp.id().is_some_and(|id| id.app == rollout.id.app) {
        return true;
    }
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let made_by = owners.iter().find(|owner| owner.controller == Some(true));
    let deployment = made_by.and_then(|owner| owner.name.rsplit_once('-')).map(|(name, _)| name);
    deployment == object.metadata().name.as_deref()
}

/// The time by which a pod that is being deleted has ended, with the time that its specification gives it.
pub(crate) fn ends_by(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

fn is_overdue(ends_by: Option<Timestamp>, now: Timestamp) -> bool {
    ends_by.is_some_and(|ends_by| lives::span(ends_by, now) > OVERDUE)
}

/// Whether the workload made the pod; of a Deployment, a ReplicaSet did.
pub(crate) fn is_of(object: &Object, pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let made_by = owners.iter().find(|owner| owner.controller == Some(true));
    made_by.is_some_and(|owner| match object {
        Object::Deployment(_) => owner.kind == "ReplicaSet",
        Object::StatefulSet(_) | Object::DaemonSet(_) | Object::CronJob(_) => {
            Some(&owner.uid) == object.metadata().uid.as_ref()
        }
    })
}

/// The states of all containers, init containers first.
pub(crate) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    init_statuses(pod).chain(main_statuses(pod))
}

/// The states of init and sidecar containers.
pub(crate) fn init_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default().iter()
}

/// The states of the containers that run for as long as the pod does.
pub(crate) fn main_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default().iter()
}

/// The pod's name.
pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The restarts of all containers.
pub(crate) fn restarts(pod: &Pod) -> u32 {
    statuses(pod).map(|status| u32::try_from(status.restart_count).unwrap_or(0)).fold(0, u32::saturating_add)
}

fn started(pod: &Pod) -> usize {
    let has_run = |status: &&ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    statuses(pod).filter(has_run).count()
}
