//! An outage of the cluster. The test needs a cluster of its own, as other tests would fail with it.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rollhook_conformance::{Lack, report};
use rollhook_core::ports::RolloutDriver;
use rollhook_kubernetes::WorkloadKind::Deployment;
use serde_json::json;

use crate::bed::{self, Bed};

const NAME: &str = "outage_is_unavailable_in_bounded_time_and_passes";

fn apiserver(state: &Path, what: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/cluster/apiserver.sh");
    assert!(Command::new(script).arg(state).arg(what).status().unwrap().success(), "apiserver.sh {what}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn outage_is_unavailable_in_bounded_time_and_passes() {
    let state = match bed::cluster() {
        Err(reason) => return report(&format!("{}/{NAME}", env!("CARGO_PKG_NAME")), Err(Lack::Skip(reason))),
        Ok(shared) => shared.with_file_name(format!("cluster-away.{}", std::process::id())),
    };
    bed::bring_up(&state).unwrap();
    bed::run(async {
        let bed = Bed::at(&state).await;
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let request = bed.request(Deployment);
        // Paused, connections hang; stopped, they are refused.
        for (away, back) in [("pause", "resume"), ("stop", "start")] {
            apiserver(&state, away);
            let next = bed.order(Deployment, 2, "api:v3");
            let begin = Instant::now();
            let answers = futures_util::join!(
                async { bed.driver.observe(&order).await.err() },
                async { bed.driver.apply(&next).await.err() },
                async { bed.driver.evidence(&order, None).await.err() },
                async { bed.driver.validate(&request).await.err() },
            );
            assert!(begin.elapsed() <= Duration::from_secs(10), "{away}: {:?}", begin.elapsed());
            for error in <[_; 4]>::from(answers) {
                assert!(error.is_some_and(|error| error.is_unavailable()), "{away}");
            }
            apiserver(&state, back);
            assert!(bed::is_complete(&bed.driver.observe(&order).await.unwrap()), "{away}");
        }
        let next = bed.order(Deployment, 2, "api:v3");
        bed.roll_out(&next).await;
    });
}
