//! Strangers' pods with the labels of a workload: many, and large ones. They slow the control plane down, so that tests which
//! depend on its pace stand elsewhere.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use rollhook_core::ports::{Observation, RolloutDriver};
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::json;

use crate::bed::Bed;

/// The number of strangers' pods. With the default they are more bytes than are read of a list.
fn strangers() -> usize {
    std::env::var("ROLLHOOK_TEST_STRANGERS").map_or(280, |count| count.parse().unwrap())
}

/// Makes pods that the workload `api` selects and nobody runs, before its own by name, each with 250 KiB of annotations.
async fn crowd(bed: &Bed, count: usize) {
    let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
    let make = |at: usize| {
        let pod = json!({
            "metadata": {"name": format!("a-{at}"), "labels": {"app": "api", "stranger": "yes"},
                         "annotations": {"theirs": "x".repeat(250 << 10)}},
            "spec": {"schedulingGates": [{"name": "example.com/never"}], "containers": [{"name": "app", "image": "api:v9"}]},
        });
        let pods = pods.clone();
        async move { pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap() }
    };
    stream::iter(0..count).map(make).buffer_unordered(8).for_each(async |_| {}).await;
}

#[test]
fn deploy_among_large_pods_of_strangers_is_no_success_until_its_own_are_read() {
    bed::test("deploy_among_large_pods_of_strangers_is_no_success_until_its_own_are_read", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        crowd(bed, strangers()).await;
        let next = bed.order(Deployment, 2, "api:v3");
        bed.apply(&next).await;
        let is_rolled_out = |seen: &Observation| seen.message.contains("0 of 2 new pods");
        let seen = bed.until(&next, "its own pods are not reached", is_rolled_out).await;
        assert!(!bed::is_complete(&seen), "{seen:?}");
        assert!(seen.message.contains("not all pods were read"), "{seen:?}");
        let evidence = bed.driver.evidence(&next, None).await.unwrap();
        assert_eq!(evidence.pod, None);
        eprintln!("peak memory of this process: {}", peak());
        let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
        let theirs = ListParams::default().labels("stranger=yes");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete_collection(&now, &theirs).await.unwrap();
        assert_eq!(bed.until_complete(&next).await.message, "2 of 2 new pods are available");
    });
}

#[test]
fn deploy_whose_own_pods_are_read_among_those_of_strangers_succeeds() {
    bed::test("deploy_whose_own_pods_are_read_among_those_of_strangers_succeeds", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        crowd(bed, 60).await;
        let order = bed.order(Deployment, 1, "api:v2");
        assert_eq!(bed.roll_out(&order).await.message, "2 of 2 new pods are available");
    });
}

/// The most memory that this process has had.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("unknown").to_owned()
}
