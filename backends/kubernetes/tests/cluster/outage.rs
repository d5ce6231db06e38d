//! An outage of the cluster. The test needs a cluster of its own, as other tests would fail with it.

use std::time::Duration;

use rollhook_core::ports::RolloutDriver;
use rollhook_kubernetes::WorkloadKind::Deployment;
use rollhook_testing::{beds::OwnCluster, skip, test_name};
use serde_json::json;

use crate::bed::{self, Bed};

/// The time after which a call counts as hanging.
const HANGING: Duration = Duration::from_secs(60);

#[test]
fn outage_is_unavailable_in_bounded_time_and_passes() {
    let cluster = match OwnCluster::named("away") {
        Err(reason) => return skip(&test_name!(), reason),
        Ok(cluster) => cluster,
    };
    bed::run(async {
        let bed = Bed::at(&cluster.state).await;
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let request = bed.request(Deployment);
        // Paused, connections hang; stopped, they are refused.
        for (away, back) in [("pause", "resume"), ("stop", "start")] {
            cluster.service("apiserver", away);
            let next = bed.order(Deployment, 2, "api:v3");
            let answers = tokio::time::timeout(HANGING, async {
                futures_util::join!(
                    async { bed.driver.observe(&order).await.err() },
                    async { bed.driver.apply(&next).await.err() },
                    async { bed.driver.evidence(&order, None).await.err() },
                    async { bed.driver.validate(&request).await.err() },
                )
            });
            let answers = answers.await.unwrap_or_else(|_| panic!("{away}: a call hangs"));
            for error in <[_; 4]>::from(answers) {
                assert!(error.is_some_and(|error| error.is_unavailable()), "{away}");
            }
            cluster.service("apiserver", back);
            assert!(bed::is_complete(&bed.driver.observe(&order).await.unwrap()), "{away}");
        }
        let next = bed.order(Deployment, 2, "api:v3");
        bed.roll_out(&next).await;
    });
}
