//! Pods of the version before that are to end and have not ended yet.

use rollhook_core::ports::RolloutDriver;
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::json;

use crate::bed::{self, is_complete};

#[test]
fn deploy_waits_for_old_pods_that_still_terminate() {
    bed::test("deploy_waits_for_old_pods_that_still_terminate", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        let old = bed.pods().await.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let old: Vec<String> = old.filter_map(|pod| pod.metadata.name).collect();
        let hold = |held: &str| {
            let patch = format!(r#"{{"metadata":{{"finalizers":{held}}}}}"#);
            old.iter().for_each(|pod| bed.kubectl(&["patch", "pod", pod, "--type=merge", "-p", &patch]));
        };
        hold(r#"["example.com/held"]"#);
        let next = bed.order(Deployment, 2, "api:v3");
        bed.apply(&next).await;
        let seen = bed.until(&next, "complete but for the old pods", is_complete).await;
        assert_eq!(seen.leaving.as_deref(), Some("2 pods of the version before still terminate"), "{seen:?}");
        hold("null");
        bed.until(&next, "without the old pods", |seen| is_complete(seen) && seen.leaving.is_none()).await;
        assert_eq!(bed.driver.observe(&next).await.unwrap().restarts, 0);
    });
}
