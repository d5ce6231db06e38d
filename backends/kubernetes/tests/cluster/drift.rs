//! Writes of other managers to a workload while it rolls out.

use rollhook_core::{
    deploy::Reason,
    ports::{Applied, RolloutDriver, RolloutFailure, RolloutFailureKind},
};
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::bed::{self, Bed};

async fn after(bed: &Bed, manager: &str, patch: Value) -> RolloutFailure {
    bed.make(Deployment, "api:v1", json!({})).await;
    let order = bed.order(Deployment, 1, "api:v2");
    bed.roll_out(&order).await;
    // Managers' times are whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    bed.patch_as(manager, Deployment, patch).await;
    let seen = bed.driver.observe(&order).await.unwrap();
    assert!(!bed::is_complete(&seen), "{seen:?}");
    let failure = seen.failure.unwrap();
    assert_eq!(
        (failure.kind, failure.reason.as_str()),
        (RolloutFailureKind::Final, Reason::REVERTED),
        "{}",
        failure.message
    );
    // To apply the order again is not to fight: it ends in the same way as if nothing had been restarted.
    assert_eq!(bed.driver.apply(&order).await.unwrap(), Applied::Done);
    assert_eq!(bed.driver.observe(&order).await.unwrap().failure.as_ref(), Some(&failure));
    failure
}

#[test]
fn a_manager_that_reverts_the_image_is_named() {
    bed::test("a_manager_that_reverts_the_image_is_named", async |bed| {
        let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "api:v1"}]}}}});
        let message = after(bed, "argocd-controller", image).await.message;
        for part in ["\"argocd-controller\"", "to api:v1", "ignoreDifferences"] {
            assert!(message.contains(part), "{message}");
        }
    });
}

#[test]
fn a_manager_that_removes_the_stamp_is_named() {
    bed::test("a_manager_that_removes_the_stamp_is_named", async |bed| {
        let strip = json!({"spec": {"template": {"metadata": {"annotations": {"rollhook.dev/revision": null, "theirs": "1"}}}}});
        let message = after(bed, "kustomize-controller", strip).await.message;
        assert!(message.contains("\"kustomize-controller\"") && message.contains("Flux"), "{message}");
    });
}

#[test]
fn a_rollback_by_kubectl_is_named_and_the_next_deploy_goes_on() {
    bed::test("a_rollback_by_kubectl_is_named_and_the_next_deploy_goes_on", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        let order = bed.order(Deployment, 2, "api:v3");
        bed.roll_out(&order).await;
        bed.kubectl(&["rollout", "undo", "deployment/api"]);
        let failure = bed.driver.observe(&order).await.unwrap().failure.unwrap();
        assert_eq!(failure.reason.as_str(), Reason::REVERTED);
        assert!(failure.message.contains("\"kubectl\""), "{}", failure.message);
        bed.roll_out(&bed.order(Deployment, 3, "api:v4")).await;
    });
}

#[test]
fn change_of_another_field_is_no_drift() {
    bed::test("change_of_another_field_is_no_drift", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        bed.patch_as("kubectl-scale", Deployment, json!({"spec": {"replicas": 3}})).await;
        let seen = bed.until(&order, "complete with 3", |seen| seen.message.starts_with("3 of 3")).await;
        assert_eq!(seen.failure, None);
    });
}

#[test]
fn deleted_workload_is_a_final_failure() {
    bed::test("deleted_workload_is_a_final_failure", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.apply(&order).await;
        bed.objects(Deployment).delete("api", &Default::default()).await.unwrap();
        let seen = bed.until(&order, "gone", |seen| seen.failure.is_some()).await;
        assert_eq!(seen.failure.unwrap().reason.as_str(), Reason::TARGET_MISSING);
    });
}
