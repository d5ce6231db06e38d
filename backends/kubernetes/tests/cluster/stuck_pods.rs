//! A StatefulSet whose broken pod blocks the way back.

use rollhook_core::ports::RolloutDriver;
use rollhook_kubernetes::WorkloadKind::StatefulSet;
use serde_json::json;

use crate::bed;

#[test]
fn rollback_replaces_the_stuck_pod_of_a_stateful_set() {
    bed::test("rollback_replaces_the_stuck_pod_of_a_stateful_set", async |bed| {
        bed.make(StatefulSet, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(StatefulSet, 1, "api:v2")).await;
        for (revision, image) in [(2, "api:missing"), (4, "api:hang"), (6, "api:gate")] {
            let broken = bed.order(StatefulSet, revision, image);
            bed.apply(&broken).await;
            bed.until(&broken, "begun", |seen| seen.progress.contains("new=1")).await;
            let back = bed.order(StatefulSet, revision + 1, "api:v2");
            bed.apply(&back).await;
            let seen = bed.until_complete(&back).await;
            assert_eq!(seen.deploy, Some(back.id), "{image}");
        }
    });
}

#[test]
fn pods_that_are_ready_are_never_deleted() {
    bed::test("pods_that_are_ready_are_never_deleted", async |bed| {
        bed.make(StatefulSet, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(StatefulSet, 1, "api:v2")).await;
        let broken = bed.order(StatefulSet, 2, "api:missing");
        bed.apply(&broken).await;
        bed.until(&broken, "in failure", |seen| seen.failure.is_some()).await;
        let uid = async || {
            let pods = bed.pods().await;
            pods.into_iter().find(|pod| pod.metadata.name.as_deref() == Some("api-0")).and_then(|pod| pod.metadata.uid)
        };
        let healthy = uid().await;
        // Repeated as after a restart: nothing older is left that is not ready.
        bed.apply(&broken).await;
        bed.driver.observe(&broken).await.unwrap();
        assert_eq!(uid().await, healthy);
    });
}
