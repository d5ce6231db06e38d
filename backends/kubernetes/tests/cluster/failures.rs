//! Revisions that do not come up: the failure is named, and the old version's health is not their success.

use rollhook_core::ports::{RolloutDriver, RolloutFailureKind};
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::json;

use crate::bed::{self, is_complete};

async fn sees(bed: &bed::Bed, image: &str, kind: RolloutFailureKind, reason: &str) {
    bed.make(Deployment, "api:v1", json!({})).await;
    let order = bed.order(Deployment, 1, image);
    bed.apply(&order).await;
    let seen = bed.until(&order, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
    let failure = seen.failure.unwrap();
    assert_eq!((failure.kind, failure.reason.as_str()), (kind, reason), "{}", failure.message);
    assert_eq!(failure.container.as_deref(), Some("app"));
    let evidence = bed.driver.evidence(&order, Some(&failure)).await.unwrap();
    assert_eq!(evidence.container.as_deref(), Some("app"));
    assert!(evidence.pod.is_some() && evidence.state.is_some_and(|state| state.contains(reason)));
    assert!(!evidence.events.is_empty(), "the scheduler tells at least where the pod went");
}

#[test]
fn missing_image_is_final_and_a_registry_without_an_answer_is_not() {
    bed::test("missing_image_is_final_and_a_registry_without_an_answer_is_not", async |bed| {
        sees(bed, "api:missing", RolloutFailureKind::Final, "ImagePullBackOff").await;
        let flaky = bed.order(Deployment, 2, "api:flaky");
        bed.apply(&flaky).await;
        let seen = bed.until(&flaky, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
        assert_eq!(seen.failure.unwrap().kind, RolloutFailureKind::Image);
        bed.until_complete(&flaky).await;
    });
}

#[test]
fn crashing_container_is_a_crash() {
    bed::test("crashing_container_is_a_crash", async |bed| {
        sees(bed, "api:crash", RolloutFailureKind::Crash, "CrashLoopBackOff").await;
    });
}

#[test]
fn bad_configuration_is_a_configuration_failure() {
    bed::test("bad_configuration_is_a_configuration_failure", async |bed| {
        sees(bed, "api:badconfig", RolloutFailureKind::Config, "CreateContainerConfigError").await;
    });
}

#[test]
fn crashing_init_container_is_a_crash() {
    bed::test("crashing_init_container_is_a_crash", async |bed| {
        let init = json!([{"name": "migrate", "image": "migrate:initcrash"}]);
        bed.make(Deployment, "api:v1", json!({"template": {"spec": {"initContainers": init}}})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.apply(&order).await;
        let seen = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await;
        let failure = seen.failure.unwrap();
        assert_eq!((failure.kind, failure.container.as_deref()), (RolloutFailureKind::Crash, Some("migrate")));
    });
}

#[test]
fn hanging_pod_is_neither_complete_nor_failed() {
    bed::test("hanging_pod_is_neither_complete_nor_failed", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:hang");
        bed.apply(&order).await;
        bed.until(&order, "begun", |seen| seen.progress.contains("new=1")).await;
        for _ in 0..10 {
            let seen = bed.driver.observe(&order).await.unwrap();
            assert!(!is_complete(&seen) && seen.failure.is_none(), "{seen:?}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn pod_without_a_node_is_unschedulable() {
    bed::test("pod_without_a_node_is_unschedulable", async |bed| {
        let spec = json!({"template": {"spec": {"nodeSelector": {"no-such": "node"}}}});
        bed.make(Deployment, "api:v1", spec).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.apply(&order).await;
        let seen = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await;
        assert_eq!(seen.failure.unwrap().kind, RolloutFailureKind::Capacity);
    });
}

#[test]
fn full_quota_is_waited_for() {
    bed::test("full_quota_is_waited_for", async |bed| {
        bed.make(Deployment, "api:v1", json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}))
            .await;
        let mut adopted = bed.order(Deployment, 1, "api:v1");
        adopted.adopted = true;
        bed.until_complete(&adopted).await;
        let quota =
            serde_json::from_value(json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}})).unwrap();
        let quotas =
            kube::Api::<k8s_openapi::api::core::v1::ResourceQuota>::namespaced(bed.client.clone(), &bed.namespace);
        quotas.create(&Default::default(), &quota).await.unwrap();
        let order = bed.order(Deployment, 2, "api:v2");
        // A quota counts a moment after it was made.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        bed.apply(&order).await;
        let seen = bed.until(&order, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
        let failure = seen.failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Capacity, "FailedCreate"));
        assert!(failure.message.contains("exceeded quota"), "{}", failure.message);
        let evidence = bed.driver.evidence(&order, Some(&failure)).await.unwrap();
        assert_eq!(evidence.pod, None);
    });
}

#[test]
fn progress_deadline_exceeded_is_final() {
    bed::test("progress_deadline_exceeded_is_final", async |bed| {
        bed.make(Deployment, "api:v1", json!({"progressDeadlineSeconds": 2})).await;
        let order = bed.order(Deployment, 1, "api:hang");
        bed.apply(&order).await;
        let seen = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await;
        let failure = seen.failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Final, "ProgressDeadlineExceeded"));
        // The verdict on this revision is not that on the next one.
        let next = bed.order(Deployment, 2, "api:v2");
        bed.apply(&next).await;
        let seen = bed.until(&next, "complete", |seen| seen.failure.is_some() || is_complete(seen)).await;
        assert!(is_complete(&seen), "{seen:?}");
    });
}

#[test]
fn the_old_version_stays_while_the_new_one_fails() {
    bed::test("the_old_version_stays_while_the_new_one_fails", async |bed| {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
        bed.make(Deployment, "api:v1", json!({"replicas": 4, "strategy": strategy})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        let failing = bed.order(Deployment, 2, "api:missing");
        bed.apply(&failing).await;
        bed.until(&failing, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
        let restore = bed.order(Deployment, 3, "api:v2");
        for at in 0..30 {
            let order = if at < 15 { &failing } else { &restore };
            if at == 15 {
                bed.apply(&restore).await;
            }
            let seen = bed.driver.observe(order).await.unwrap();
            assert!(at >= 15 || !is_complete(&seen), "the old version's health is not the new one's: {seen:?}");
            let available = bed.read(Deployment).await["status"]["availableReplicas"].as_i64().unwrap_or(0);
            assert!(available >= 4, "{available} of 4 are left");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        bed.until_complete(&restore).await;
    });
}
