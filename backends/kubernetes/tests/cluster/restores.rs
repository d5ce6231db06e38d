//! Restores: pods of the version before that still run are kept, whatever the cluster lacks.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rollhook_core::{
    deploy::Revision,
    ports::{Applied, Phase, Purpose, RolloutDriver, RolloutSpec},
};
use rollhook_kubernetes::WorkloadKind::{self, DaemonSet, Deployment, StatefulSet};
use serde_json::{Value, json};

use crate::bed::{self, Bed, is_complete};

fn restore(bed: &Bed, kind: WorkloadKind, revision: u64, to: u64, image: &str) -> RolloutSpec {
    let purpose = Purpose::Restore { to: Revision::new(to).unwrap() };
    bed.order(kind, revision, image).with(|spec| spec.purpose = purpose)
}

/// The uids of the pods that are ready, by their images.
async fn ready(bed: &Bed) -> BTreeMap<String, String> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
            && pod.metadata.deletion_timestamp.is_none()
    };
    let image = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    let pods = bed.pods().await;
    pods.iter().filter(|pod| is_ready(pod)).map(|pod| (pod.metadata.uid.clone().unwrap(), image(pod))).collect()
}

/// Rolls out revision 2, which must fail; returns the pods that are ready then.
async fn fails(bed: &Bed, kind: WorkloadKind, image: &str) -> BTreeMap<String, String> {
    let failed = bed.order(kind, 2, image);
    bed.apply(&failed).await;
    let seen = bed.until(&failed, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
    assert!(seen.failure.is_some(), "{seen:?}");
    ready(bed).await
}

fn note(seen: &rollhook_core::ports::Observation) -> &str {
    match &seen.phase {
        Phase::Complete { note, .. } => note.as_deref().unwrap_or_default(),
        Phase::Progressing => panic!("not complete: {seen:?}"),
    }
}

/// Restores revision 1 as revision 3: the pods that are left run on.
async fn keeps(bed: &Bed, kind: WorkloadKind, image: &str, left: &BTreeMap<String, String>) {
    let order = restore(bed, kind, 3, 1, image);
    bed.apply(&order).await;
    let seen = bed.until(&order, "complete", |seen| seen.failure.is_some() || is_complete(seen)).await;
    assert!(note(&seen).contains("were kept"), "{seen:?}");
    let after = ready(bed).await;
    for uid in left.keys() {
        assert!(after.contains_key(uid), "pod {uid} was replaced: {left:?} {after:?}");
    }
    assert!(after.values().all(|other| other == image), "{after:?}");
    // The fence stays with the workload, and a process that was started since sees the same.
    assert_eq!(bed.driver.apply(&order).await.unwrap(), Applied::Done);
    let late = bed.driver.apply(&bed.order(kind, 2, "api:late")).await.unwrap();
    assert_eq!(late, Applied::Newer(order.id.revision));
    assert_eq!(bed.driver.target_reader().unwrap().at_rest(&order).await.unwrap().drift, None);
    // The next deploy replaces all of them, though its image be the same.
    bed.roll_out(&bed.order(kind, 4, image)).await;
    let next = ready(bed).await;
    assert!(next.keys().all(|uid| !after.contains_key(uid)), "{after:?} {next:?}");
}

async fn limit_pods(bed: &Bed, pods: &str) {
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": pods}}});
    let quotas = Api::<ResourceQuota>::namespaced(bed.client.clone(), &bed.namespace);
    quotas.create(&Default::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    // A quota counts a moment after it was made.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// A Deployment that never has less than its 2 pods.
fn careful() -> Value {
    json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}})
}

#[test]
fn mistyped_tag_replaces_no_healthy_pod() {
    for (kind, kept) in [(Deployment, 2), (StatefulSet, 1), (DaemonSet, 1)] {
        bed::test("mistyped_tag_replaces_no_healthy_pod", async |bed| {
            bed.make(kind, "api:v1", json!({})).await;
            bed.roll_out(&bed.order(kind, 1, "api:v2")).await;
            let left = fails(bed, kind, "api:missing").await;
            assert!(left.len() >= kept, "{kind}: {left:?}");
            keeps(bed, kind, "api:v2", &left).await;
        });
    }
}

#[test]
fn version_from_before_the_first_deploy_is_kept() {
    bed::test("version_from_before_the_first_deploy_is_kept", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        bed.until_complete(&bed.order(Deployment, 1, "api:v1").with(|spec| spec.adopted = true)).await;
        let left = fails(bed, Deployment, "api:missing").await;
        assert_eq!(left.len(), 2);
        keeps(bed, Deployment, "api:v1", &left).await;
    });
}

#[test]
fn restore_needs_no_quota() {
    bed::test("restore_needs_no_quota", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        limit_pods(bed, "2").await;
        let left = fails(bed, Deployment, "api:v3").await;
        assert_eq!(left.len(), 2);
        let order = restore(bed, Deployment, 3, 1, "api:v2");
        let seen = bed.roll_out(&order).await;
        assert_eq!(seen.failure, None);
        assert_eq!(ready(bed).await, left);
    });
}

#[test]
fn restore_needs_no_registry() {
    bed::test("restore_needs_no_registry", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        // A pod of this image that is made from now on gets ready only where a test lets it.
        let order = bed.order(Deployment, 1, "api:gate");
        bed.apply(&order).await;
        let open = json!({"metadata": {"annotations": {"rollhook.test/open": "true"}}});
        let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
        rollhook_testing::until_async("all pods are ready", async || {
            for pod in bed.pods().await {
                let name = pod.metadata.name.unwrap();
                let _ = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&open)).await;
            }
            let last = bed.driver.observe(&order).await.unwrap();
            if is_complete(&last) { Ok(()) } else { Err(last) }
        })
        .await;
        let left = fails(bed, Deployment, "api:missing").await;
        assert_eq!(left.len(), 2);
        bed.roll_out(&restore(bed, Deployment, 3, 1, "api:gate")).await;
        assert_eq!(ready(bed).await, left);
    });
}

#[test]
fn condition_of_the_failed_deploy_is_not_the_restores() {
    bed::test("condition_of_the_failed_deploy_is_not_the_restores", async |bed| {
        let mut spec = careful();
        spec["replicas"] = json!(1);
        spec["progressDeadlineSeconds"] = json!(2);
        bed.make(Deployment, "api:v1", spec).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        let left = fails(bed, Deployment, "api:hang").await;
        keeps(bed, Deployment, "api:v2", &left).await;
    });
}

#[test]
fn version_that_the_cluster_retains_no_more_is_made_anew() {
    bed::test("version_that_the_cluster_retains_no_more_is_made_anew", async |bed| {
        let mut spec = careful();
        spec["strategy"] = json!({"type": "Recreate", "rollingUpdate": null});
        spec["revisionHistoryLimit"] = json!(0);
        bed.make(Deployment, "api:v1", spec).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        fails(bed, Deployment, "api:missing").await;
        // The controller prunes once a rollout is complete; a person may at any time.
        let sets = Api::<k8s_openapi::api::apps::v1::ReplicaSet>::namespaced(bed.client.clone(), &bed.namespace);
        for set in sets.list(&Default::default()).await.unwrap() {
            let image =
                serde_json::to_value(&set).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"].clone();
            if image == "api:v2" {
                sets.delete(set.metadata.name.as_deref().unwrap(), &Default::default()).await.unwrap();
            }
        }
        rollhook_testing::until_async("the version is pruned", async || {
            let left = sets.list(&Default::default()).await.unwrap().items.len();
            if left == 1 { Ok(()) } else { Err(left) }
        })
        .await;
        let seen = bed.roll_out(&restore(bed, Deployment, 3, 1, "api:v2")).await;
        assert!(note(&seen).contains("made anew"), "{seen:?}");
    });
}

#[test]
fn configuration_that_a_person_changed_since_stays() {
    bed::test("configuration_that_a_person_changed_since_stays", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        fails(bed, Deployment, "api:missing").await;
        bed.kubectl(&["set", "env", "deployment/api", "MODE=repaired"]);
        let seen = bed.roll_out(&restore(bed, Deployment, 3, 1, "api:v2")).await;
        assert!(note(&seen).contains("made anew"), "{seen:?}");
        let container = bed.read(Deployment).await["spec"]["template"]["spec"]["containers"][0].clone();
        assert_eq!((&container["image"], &container["env"][0]["value"]), (&json!("api:v2"), &json!("repaired")));
    });
}

#[test]
fn rollback_from_a_deploy_that_is_stuck_keeps_what_still_runs() {
    bed::test("rollback_from_a_deploy_that_is_stuck_keeps_what_still_runs", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        let stuck = bed.order(Deployment, 2, "api:hang");
        bed.apply(&stuck).await;
        bed.until(&stuck, "begun", |seen| seen.progress.contains("new=1")).await;
        let left = ready(bed).await;
        let purpose = Purpose::Rollback { to: Revision::new(1).unwrap() };
        bed.roll_out(&bed.order(Deployment, 3, "api:v2").with(|spec| spec.purpose = purpose)).await;
        assert_eq!(ready(bed).await, left);
        // To the image that is set, a person rolls back to have other pods.
        bed.roll_out(&bed.order(Deployment, 4, "api:v2").with(|spec| spec.purpose = purpose)).await;
        assert!(ready(bed).await.keys().all(|uid| !left.contains_key(uid)));
    });
}

#[test]
fn image_that_a_person_set_since_is_drift_of_a_restore() {
    bed::test("image_that_a_person_set_since_is_drift_of_a_restore", async |bed| {
        bed.make(Deployment, "api:v1", careful()).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        fails(bed, Deployment, "api:missing").await;
        let order = restore(bed, Deployment, 3, 1, "api:v2");
        bed.roll_out(&order).await;
        bed.kubectl(&["set", "image", "deployment/api", "app=api:hotfix"]);
        let seen = bed.driver.observe(&order).await.unwrap();
        let failure = seen.failure.unwrap();
        assert!(failure.message.contains("\"kubectl-set\"") && failure.message.contains("api:hotfix"), "{failure:?}");
        bed.roll_out(&bed.order(Deployment, 4, "api:v4")).await;
    });
}
