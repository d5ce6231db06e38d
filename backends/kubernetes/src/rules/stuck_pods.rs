//! Pods that block the rollout of a StatefulSet.
//!
//! A StatefulSet that makes its pods in order waits until each is ready before it replaces the next. It waits for a
//! broken pod for ever, even if a sound revision was applied meanwhile. Kubernetes' documentation says to delete that
//! pod by hand; the controller then makes it anew from the new revision.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use rollhook_core::ports::DeployId;

use super::{object::Stamp, pods};

/// The pods to delete so that the StatefulSet reaches the deploy that it carries, whose pods carry the stamp `own`.
pub(crate) fn of<'a>(object: &StatefulSet, deploy: DeployId, own: &Stamp, pods: &'a [Pod]) -> Vec<&'a Pod> {
    let Some(spec) = &object.spec else { return Vec::new() };
    // Without an order, each pod is replaced on its own.
    if spec.pod_management_policy.as_deref() == Some("Parallel") {
        return Vec::new();
    }
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    let first = rolling.and_then(|rolling| rolling.partition).unwrap_or(0).saturating_add(start);
    let uid = object.metadata.uid.as_deref();
    pods.iter()
        .filter(|pod| pods::controller(pod) == uid && pod.metadata.deletion_timestamp.is_none())
        .filter(|pod| ordinal(pod).is_some_and(|ordinal| ordinal >= first))
        .filter(|pod| is_older(pod, deploy, own) && !pods::is_ready(pod))
        .collect()
}

/// Whether the pod is of a deploy before this one, and not of a template that this one brought back. A pod of a newer
/// revision must stay.
fn is_older(pod: &Pod, deploy: DeployId, own: &Stamp) -> bool {
    match Stamp::among(pod.metadata.annotations.as_ref()) {
        stamp if stamp == *own => false,
        Stamp::Deploy(other) => other.app != deploy.app || other.revision < deploy.revision,
        Stamp::Absent | Stamp::Unreadable(_) => true,
    }
}

fn ordinal(pod: &Pod) -> Option<i32> {
    pods::name(pod).rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::{
        object::{Object, STAMP},
        samples,
    };

    fn set(patch: serde_json::Value) -> StatefulSet {
        let Object::StatefulSet(object) = samples::stateful_set(patch) else { panic!("no StatefulSet") };
        *object
    }

    fn pod(name: &str, revision: u64, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": {STAMP: samples::rollout(revision).id.to_string()},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "api", "controller": true,
                                     "uid": samples::UID}],
            },
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }))
        .unwrap()
    }

    fn names(object: &StatefulSet, pods: &[Pod]) -> Vec<String> {
        let id = samples::rollout(5).id;
        of(object, id, &Stamp::Deploy(id), pods).into_iter().map(|pod| pods::name(pod).to_owned()).collect()
    }

    #[test]
    fn pod_of_the_template_that_was_brought_back_is_not_stuck() {
        let pods = [pod("api-0", 4, false), pod("api-1", 5, false)];
        let (restore, kept) = (samples::rollout(6).id, Stamp::Deploy(samples::rollout(4).id));
        let object = set(json!({}));
        let stuck = of(&object, restore, &kept, &pods);
        assert_eq!(stuck.into_iter().map(pods::name).collect::<Vec<_>>(), ["api-1"], "the failed deploy's");
    }

    #[test]
    fn only_older_pods_that_are_not_ready_are_stuck() {
        let pods = [pod("api-0", 4, true), pod("api-1", 5, false), pod("api-2", 4, false), pod("api-3", 6, false)];
        assert_eq!(names(&set(json!({})), &pods), ["api-2"]);
    }

    #[test]
    fn none_below_the_partition_and_none_if_pods_are_made_in_parallel() {
        let pods = [pod("api-0", 4, false), pod("api-2", 4, false)];
        let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}});
        assert_eq!(names(&set(rolling), &pods), ["api-2"]);
        let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
        assert!(names(&set(parallel), &pods).is_empty());
    }

    #[test]
    fn pods_of_another_controller_are_not_stuck() {
        let mut other = pod("api-0", 4, false);
        other.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
        assert!(names(&set(json!({})), &[other]).is_empty());
    }
}
