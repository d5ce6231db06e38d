//! The watch wakes a driver when its workload changes.

use std::time::Duration;

use rollhook_core::ports::RolloutDriver;
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::bed;

#[test]
fn watch_wakes_on_changes_alone() {
    bed::test("watch_wakes_on_changes_alone", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        // The watch begins, and rings for what was listed; then nothing happens, and nothing is told.
        let mut quiet = 0;
        while quiet < 2 {
            quiet =
                if timeout(Duration::from_secs(1), bed.driver.changed(&order)).await.is_err() { quiet + 1 } else { 0 };
        }
        // A change between two calls is not lost.
        bed.patch_as("kubectl-scale", Deployment, json!({"spec": {"replicas": 3}})).await;
        sleep(Duration::from_millis(500)).await;
        timeout(Duration::from_secs(1), bed.driver.changed(&order)).await.expect("told at once");
        bed.until_complete(&order).await;
    });
}

#[test]
fn watch_follows_a_rollout_to_its_end() {
    bed::test("watch_follows_a_rollout_to_its_end", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.apply(&order).await;
        let follow = async {
            while !bed::is_complete(&bed.driver.observe(&order).await.unwrap()) {
                bed.driver.changed(&order).await;
            }
        };
        timeout(Duration::from_secs(15), follow).await.expect("told of all that was needed");
    });
}
