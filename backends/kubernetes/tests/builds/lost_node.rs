//! A node that is lost in the middle of a build.

use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use rollhook_core::ports::{BuildState, BuildTrigger, Started};

use crate::{
    actor::{Actor, digit},
    bed::{self, Bed},
    harness::{ended, handle, order, settings, start, until},
};

/// On a cluster of its own, from which nodes can be taken.
fn test(name: &str, body: impl AsyncFnOnce(&Bed)) {
    let outcome = bed::cluster().and_then(|_| {
        let state = std::env::temp_dir().join(format!("rollhook-test-cluster-{name}.{}", std::process::id()));
        bed::bring_up(&state)
    });
    match outcome {
        Err(reason) => rollhook_conformance::report(
            &format!("{}/{name}", env!("CARGO_PKG_NAME")),
            Err(rollhook_conformance::Lack::Skip(reason)),
        ),
        Ok(state) => {
            bed::run(async {
                let bed = Bed::at(&state).await;
                body(&bed).await;
            });
            let down = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/cluster/down.sh");
            assert!(Command::new(down).arg(&state).status().unwrap().success());
        }
    }
}

#[test]
fn build_on_a_lost_node_begins_anew_after_the_old_pod_is_gone() {
    test("build_on_a_lost_node_begins_anew_after_the_old_pod_is_gone", async |bed| {
        let actor = Actor::start(bed.client.clone(), &bed.namespace, bed.state.clone());
        let builds = handle(bed, settings(&bed.namespace)).await;
        let order = order(1, 1, digit::HANGS);
        start(&builds, &order).await;
        until("it runs", async || is_running(bed).await).await;
        // Nobody plays from here on: the node's machine is gone, and its pod does not answer.
        drop(actor);
        let node = bed.pods().await[0].spec.as_ref().unwrap().node_name.clone().unwrap();
        Api::<Node>::all(bed.client.clone()).delete(&node, &DeleteParams::default()).await.unwrap();
        let lost = bed.pods().await[0].metadata.name.clone();
        until("another pod was made of it", async || {
            assert!(builds.observe(order.id).await.unwrap().is_under_way());
            let next = crate::harness::order(1, 2, digit::GOOD);
            let taken = builds.start(&next).await.unwrap();
            assert_eq!(taken, Started::Busy(order.id.revision), "{}", story(bed).await);
            let pods = bed.pods().await;
            let active = pods.iter().filter(|pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                !matches!(phase.as_str(), "Succeeded" | "Failed")
            });
            assert!(active.count() <= 1, "two of one build");
            pods.iter().any(|pod| pod.metadata.name != lost)
        })
        .await;
        let _actor = Actor::start(bed.client.clone(), &bed.namespace, bed.state.clone());
        until("it runs again", async || is_running(bed).await).await;
        builds.cancel(order.id).await.unwrap();
        assert!(matches!(ended(&builds, &order).await, BuildState::Failed(_)));
    });
}

async fn is_running(bed: &Bed) -> bool {
    let running = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            && pod.metadata.deletion_timestamp.is_none()
    };
    bed.pods().await.iter().any(running)
}

/// The statuses of Jobs and pods, for the message of a failed test.
async fn story(bed: &Bed) -> String {
    let jobs = Api::<k8s_openapi::api::batch::v1::Job>::namespaced(bed.client.clone(), &bed.namespace);
    let jobs = jobs.list(&kube::api::ListParams::default()).await.unwrap().items;
    let jobs =
        jobs.into_iter().map(|job| serde_json::json!([job.metadata.name, job.spec.unwrap().suspend, job.status]));
    let pods = bed.pods().await.into_iter().map(|pod| serde_json::json!([pod.metadata.name, pod.status]));
    jobs.chain(pods).map(|line| format!("{line}\n")).collect()
}
