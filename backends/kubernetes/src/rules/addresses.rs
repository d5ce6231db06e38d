//! The addresses of the pods of a revision that are ready.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use rollhook_core::{
    instance::InstanceName,
    ports::{InstanceAddress, ReadyInstances},
};

use super::{object::Object, pod_list::PodList, pods};
use crate::workload::Rollout;

/// Returns the pods of the rollout's revision that are ready, with the addresses of this port.
pub(crate) fn of(rollout: &Rollout, object: &Object, list: &PodList, port: u16) -> ReadyInstances {
    let own = object.pods_stamp(rollout.id);
    let is_asked = |pod: &&Pod| {
        pods::is_active(pod)
            && pods::is_ready(pod)
            && pods::is_new(rollout, &own, pod)
            && pods::is_of(object, pod)
            && pods::is_of_app(rollout, object, pod)
    };
    let named = list
        .kept
        .iter()
        .filter(is_asked)
        .map(|pod| InstanceAddress { instance: InstanceName::shortened(pods::name(pod)), address: address(pod, port) });
    let ready = ReadyInstances::of(named);
    ReadyInstances { is_part: ready.is_part || list.is_part || list.counted.new > 0, ..ready }
}

/// Returns the address of a pod's port. A pod in the network of its node has that one's address, where each port leads to
/// whatever listens there.
fn address(pod: &Pod, port: u16) -> Option<SocketAddr> {
    let is_of_node = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    let status = pod.status.as_ref().filter(|_| !is_of_node)?;
    let own = status.pod_ip.as_ref().filter(|own| Some(*own) != status.host_ip.as_ref())?;
    Some(SocketAddr::new(own.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use rollhook_core::ports::DeployId;
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::{listed::ListedPod, object::TEMPLATE_STAMP, samples};

    /// A pod of the Deployment, as an API server lists it.
    fn pod(name: &str, stamp: Option<DeployId>, change: Value) -> Pod {
        let annotations = stamp.map(|stamp| json!({ "rollhook.dev/revision": stamp.to_string() }));
        let owner =
            json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-1", "uid": "rs", "controller": true });
        let pod = json!({
            "metadata": { "name": name, "annotations": annotations, "ownerReferences": [owner] },
            "spec": { "containers": [{ "name": "app", "image": "api:v2" }] },
            "status": {
                "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.7",
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        serde_json::from_value::<ListedPod>(samples::merged(pod, change)).unwrap().with_containers(&["app".to_owned()])
    }

    fn named(rollout: &Rollout, object: &Object, pods: Vec<Pod>) -> Vec<(String, Option<String>)> {
        let list = PodList { kept: pods, ..PodList::default() };
        let found = of(rollout, object, &list, 8080);
        assert!(!found.is_part);
        let shown =
            |found: InstanceAddress| (found.instance.to_string(), found.address.map(|address| address.to_string()));
        found.instances.into_iter().map(shown).collect()
    }

    fn stamped(revision: u64) -> Object {
        let id = samples::spec(revision).id.to_string();
        samples::deployment(json!({ "metadata": { "annotations": { "rollhook.dev/revision": id } } }))
    }

    #[test]
    fn pods_of_the_revision_that_are_ready_have_addresses() {
        let rollout = samples::rollout(2);
        let (old, new) = (samples::spec(1).id, rollout.id);
        let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let by_hand = json!({ "metadata": { "ownerReferences": null } });
        let pods = vec![
            pod("b", Some(new), json!({})),
            pod("a", Some(new), json!({ "status": { "podIP": "fd00::7" } })),
            pod("old", Some(old), json!({})),
            pod("unstamped", None, json!({})),
            pod("unready", Some(new), unready),
            pod("going", Some(new), going),
            pod("over", Some(new), json!({ "status": { "phase": "Succeeded" } })),
            pod("by-hand", Some(new), by_hand),
            pod("without", Some(new), json!({ "status": { "podIP": null } })),
        ];
        let at = |name: &str, address: Option<&str>| (name.to_owned(), address.map(str::to_owned));
        let expected = [at("a", Some("[fd00::7]:8080")), at("b", Some("10.1.0.7:8080")), at("without", None)];
        assert_eq!(named(&rollout, &stamped(2), pods), expected);
    }

    #[test]
    fn pod_in_the_network_of_its_node_has_no_address() {
        let rollout = samples::rollout(2);
        let pods = vec![
            pod("a", Some(rollout.id), json!({ "spec": { "hostNetwork": true } })),
            pod("b", Some(rollout.id), json!({ "status": { "podIP": "10.0.0.1" } })),
        ];
        let found = named(&rollout, &stamped(2), pods);
        assert_eq!(found, [("a".to_owned(), None), ("b".to_owned(), None)]);
    }

    #[test]
    fn pods_that_a_restore_has_kept_and_those_of_an_adopted_workload_have_addresses() {
        let (before, restore) = (samples::spec(1).id, samples::rollout(3));
        let annotations =
            json!({ "rollhook.dev/revision": restore.id.to_string(), TEMPLATE_STAMP: before.to_string() });
        let object = samples::deployment(json!({ "metadata": { "annotations": annotations } }));
        let pods = vec![pod("kept", Some(before), json!({})), pod("failed", Some(samples::spec(2).id), json!({}))];
        let found = named(&restore, &object, pods);
        assert_eq!(found, [("kept".to_owned(), Some("10.1.0.7:8080".to_owned()))]);
        let adopted = Rollout { adopted: true, ..samples::rollout(1) };
        let found = named(&adopted, &samples::deployment(json!({})), vec![pod("a", None, json!({}))]);
        assert_eq!(found, [("a".to_owned(), Some("10.1.0.7:8080".to_owned()))]);
    }

    #[test]
    fn pods_that_were_not_kept_are_known_to_be_more() {
        let rollout = samples::rollout(2);
        let mut list = PodList { kept: vec![pod("a", Some(rollout.id), json!({}))], ..PodList::default() };
        list.counted.new = 1;
        assert!(of(&rollout, &stamped(2), &list, 8080).is_part);
    }
}
