//! Pods that keep a StatefulSet from moving on.
//!
//! A StatefulSet that makes its pods in order waits for each to be ready before it touches the next, and for a broken
//! one for ever, even if a sound revision was ordered meanwhile. Kubernetes' documentation says to delete that pod by
//! hand; it is made anew from the new revision.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use rollhook_core::ports::DeployId;

use super::{object::Mark, pods};

/// The pods that are to be deleted, so that the StatefulSet gets to the stamp that it carries.
pub(crate) fn stuck<'a>(object: &StatefulSet, stamp: DeployId, pods: &'a [Pod]) -> Vec<&'a Pod> {
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
        .filter(|pod| is_older(pod, stamp) && !pods::is_ready(pod))
        .collect()
}

/// Whether the pod is from before the stamp; a pod of a newer revision is nobody's to delete.
fn is_older(pod: &Pod, stamp: DeployId) -> bool {
    match Mark::among(pod.metadata.annotations.as_ref()) {
        Mark::Stamp(other) => other.app != stamp.app || other.revision < stamp.revision,
        Mark::Absent | Mark::Unreadable(_) => true,
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
                "annotations": {STAMP: samples::order(revision).stamp.to_string()},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "api", "controller": true,
                                     "uid": samples::UID}],
            },
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }))
        .unwrap()
    }

    fn names(object: &StatefulSet, pods: &[Pod]) -> Vec<String> {
        stuck(object, samples::order(5).stamp, pods).into_iter().map(|pod| pods::name(pod).to_owned()).collect()
    }

    #[test]
    fn only_older_pods_that_are_not_ready() {
        let pods = [pod("api-0", 4, true), pod("api-1", 5, false), pod("api-2", 4, false), pod("api-3", 6, false)];
        assert_eq!(names(&set(json!({})), &pods), ["api-2"]);
    }

    #[test]
    fn not_below_the_partition_nor_where_there_is_no_order() {
        let pods = [pod("api-0", 4, false), pod("api-2", 4, false)];
        let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}});
        assert_eq!(names(&set(rolling), &pods), ["api-2"]);
        let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
        assert!(names(&set(parallel), &pods).is_empty());
    }

    #[test]
    fn not_pods_of_another_controller() {
        let mut other = pod("api-0", 4, false);
        other.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
        assert!(names(&set(json!({})), &[other]).is_empty());
    }
}
