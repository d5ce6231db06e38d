//! The driver on a node with a real kubelet and real containers: digests, logs, and containers that die.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;
mod conformance;

use std::{process::Command, time::Duration};

use rollhook_conformance::samples;
use rollhook_core::{
    deploy::Revision,
    image::{Digest, ImageRef},
    ports::{Observation, Phase, Purpose, RolloutDriver, RolloutFailureKind, RolloutSpec},
};
use rollhook_kubernetes::WorkloadKind::{self, Deployment, StatefulSet};
use rollhook_testing::beds::{Kind, script};
use serde_json::json;

use crate::bed::Bed;

/// Runs a test on the node that the runner lends, or says that it was skipped.
fn test(name: &str, body: impl AsyncFnOnce(&Bed)) {
    let Some(state) = Kind::Node.lent_for(&format!("{}/node::{name}", env!("CARGO_PKG_NAME"))) else { return };
    bed::run(async {
        let bed = Bed::at(&state).await;
        body(&bed).await;
    });
}

/// Puts a program into the registry under this name and tag, and returns the reference with its digest.
fn push(bed: &Bed, name: &str, program: &str) -> ImageRef {
    let pushed = Command::new(script("node/push.sh")).arg(&bed.state).arg(name).arg(program).output().unwrap();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    String::from_utf8(pushed.stdout).unwrap().trim().parse().unwrap()
}

fn order(bed: &Bed, kind: WorkloadKind, revision: u64, image: &ImageRef) -> RolloutSpec {
    bed.order(kind, revision, &image.to_string())
}

fn digest(seen: Observation) -> Option<Digest> {
    let Phase::Complete { digest, .. } = seen.phase else { panic!("not complete: {seen:?}") };
    digest
}

#[test]
fn digest_is_that_of_the_running_containers() {
    test("digest_is_that_of_the_running_containers", async |bed| {
        let [v1, v2] = ["app-v1", "app-v2"].map(|program| push(bed, &format!("app:{}", &program[4..]), program));
        bed.make(Deployment, &v1.clone().unpinned().to_string(), json!({})).await;
        let mut adopted = order(bed, Deployment, 1, &v1.clone().unpinned());
        adopted.adopted = true;
        assert_eq!(digest(bed.until_complete(&adopted).await).as_ref(), v1.digest());
        let next = order(bed, Deployment, 2, &v2.clone().unpinned());
        assert_eq!(digest(bed.roll_out(&next).await).as_ref(), v2.digest());
    });
}

#[test]
fn moving_tag_is_identified_by_its_digest() {
    test("moving_tag_is_identified_by_its_digest", async |bed| {
        let before = push(bed, "app:moving", "app-v1");
        let tag = before.clone().unpinned();
        let container = json!([{"name": "app", "image": tag.to_string(), "imagePullPolicy": "Always"}]);
        bed.make(Deployment, "-", json!({"template": {"spec": {"containers": container}}})).await;
        assert_eq!(digest(bed.roll_out(&order(bed, Deployment, 1, &tag)).await).as_ref(), before.digest());
        let after = push(bed, "app:moving", "app-v2");
        assert_ne!(before.digest(), after.digest());
        // The same reference again is a rollout of its own, and brings the new bits.
        assert_eq!(digest(bed.roll_out(&order(bed, Deployment, 2, &tag)).await).as_ref(), after.digest());
        // Pinned, the tag does not bring them back.
        assert_eq!(digest(bed.roll_out(&order(bed, Deployment, 3, &before)).await).as_ref(), before.digest());
    });
}

#[test]
fn container_that_dies_after_it_was_ready_is_a_crash() {
    test("container_that_dies_after_it_was_ready_is_a_crash", async |bed| {
        let [v1, dies] = [("app:v1", "app-v1"), ("app:dies", "dies")].map(|(name, program)| push(bed, name, program));
        bed.make(Deployment, &v1.to_string(), json!({})).await;
        bed.roll_out(&order(bed, Deployment, 1, &v1)).await;
        let order = order(bed, Deployment, 2, &dies);
        // Without a probe it counts as available for 3 s, by Kubernetes' rules and kubectl's.
        let ready = bed.roll_out(&order).await;
        let seen = bed.until(&order, "restarted", |seen| seen.restarts > ready.restarts).await;
        let seen = match &seen.failure {
            Some(_) => seen,
            None => bed.until(&order, "in failure", |seen| seen.failure.is_some()).await,
        };
        let failure = seen.failure.unwrap();
        assert_eq!(failure.kind, RolloutFailureKind::Crash, "{failure:?}");
        let evidence = bed.evidence_with_log(&order, Some(&failure)).await;
        assert!(evidence.log.iter().any(|line| line == "dies: exiting 1"), "{evidence:?}");
    });
}

#[test]
fn containers_have_the_variables_and_a_restore_those_from_before() {
    test("containers_have_the_variables_and_a_restore_those_from_before", async |bed| {
        let v1 = push(bed, "app:v1", "app-v1");
        // A busy kubelet calls the container ready before it has seen its end: that alone must replace nothing.
        bed.make(Deployment, &v1.to_string(), json!({"minReadySeconds": 5})).await;
        let configured = |revision: u64, number: u128, refused: &str| {
            let configuration = samples::configuration(number, &[("REFUSES", refused)]);
            order(bed, Deployment, revision, &v1).with(|spec| spec.configuration = Some(configuration))
        };
        bed.roll_out(&configured(1, 1, "$(HOSTNAME)\nnone")).await;
        let running = async || {
            let pods = bed.pods().await.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            pods.map(|pod| pod.metadata.uid).collect::<Vec<Option<String>>>()
        };
        let before = running().await;
        let bad = configured(2, 2, "v1");
        bed.apply(&bad).await;
        let failure = bed.until(&bad, "in failure", |seen| seen.failure.is_some()).await.failure;
        let evidence = bed.evidence_with_log(&bad, failure.as_ref()).await;
        assert_eq!(evidence.log, ["app v1 refuses to run here"]);
        let purpose = Purpose::Restore { to: Revision::new(1).unwrap() };
        bed.roll_out(&configured(3, 1, "$(HOSTNAME)\nnone").with(|spec| spec.purpose = purpose)).await;
        let after = running().await;
        assert!(
            before.iter().all(|uid| after.contains(uid)),
            "what the failed deploy did not replace is kept: {before:?}"
        );
    });
}

#[test]
fn crash_has_its_log_as_evidence() {
    test("crash_has_its_log_as_evidence", async |bed| {
        let [v1, crash] =
            [("app:v1", "app-v1"), ("app:crash", "crash")].map(|(name, program)| push(bed, name, program));
        bed.make(Deployment, &v1.to_string(), json!({})).await;
        bed.roll_out(&order(bed, Deployment, 1, &v1)).await;
        let order = order(bed, Deployment, 2, &crash);
        bed.apply(&order).await;
        let failure = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await.failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Crash, "CrashLoopBackOff"));
        assert!(failure.message.contains("exited with code 1"), "{}", failure.message);
        let evidence = bed.evidence_with_log(&order, Some(&failure)).await;
        assert_eq!(evidence.container.as_deref(), Some("app"));
        assert_eq!(evidence.log, ["crash: exiting 1"]);
        assert!(evidence.state.is_some_and(|state| state.contains("exit code 1")));
        assert!(!evidence.events.is_empty());
    });
}

#[test]
fn image_missing_in_the_registry_fails() {
    test("image_missing_in_the_registry_fails", async |bed| {
        let v1 = push(bed, "app:v1", "app-v1");
        bed.make(Deployment, &v1.to_string(), json!({})).await;
        let missing = format!("{}:nosuch", v1.repository()).parse().unwrap();
        let order = order(bed, Deployment, 1, &missing);
        bed.apply(&order).await;
        let failure = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await.failure.unwrap();
        // The bed's registry speaks HTTP alone, and containerd may report the attempt by HTTPS, which is no answer.
        assert!(matches!(failure.kind, RolloutFailureKind::Image | RolloutFailureKind::Final), "{failure:?}");
        assert_eq!(failure.reason.as_str(), "ImagePullBackOff");
        let evidence = bed.driver.evidence(&order, Some(&failure)).await.unwrap();
        assert!(evidence.events.iter().any(|event| event.contains("nosuch")), "{evidence:?}");
        assert!(evidence.log.is_empty());
    });
}

#[test]
fn missing_secret_is_a_configuration_failure() {
    test("missing_secret_is_a_configuration_failure", async |bed| {
        let v1 = push(bed, "app:v1", "app-v1");
        let from = json!([{"secretRef": {"name": "settings"}}]);
        let container = json!([{"name": "app", "image": v1.to_string(), "envFrom": from}]);
        bed.make(Deployment, "-", json!({"template": {"spec": {"containers": container}}})).await;
        let order = order(bed, Deployment, 1, &v1);
        bed.apply(&order).await;
        let failure = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await.failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Config, "CreateContainerConfigError"));
        assert!(failure.message.contains("\"settings\" not found"), "{}", failure.message);
    });
}

#[test]
fn command_that_cannot_be_started_is_a_crash() {
    test("command_that_cannot_be_started_is_a_crash", async |bed| {
        let v1 = push(bed, "app:v1", "app-v1");
        let container = json!([{"name": "app", "image": v1.to_string(), "command": ["/no-such-program"]}]);
        bed.make(Deployment, "-", json!({"template": {"spec": {"containers": container}}})).await;
        let order = order(bed, Deployment, 1, &v1);
        bed.apply(&order).await;
        let failure = bed.until(&order, "in failure", |seen| seen.failure.is_some()).await.failure.unwrap();
        assert_eq!(failure.kind, RolloutFailureKind::Crash, "{failure:?}");
        assert!(failure.message.contains("no-such-program"), "{}", failure.message);
    });
}

#[test]
fn rollback_replaces_the_stuck_pod_of_a_stateful_set() {
    test("rollback_replaces_the_stuck_pod_of_a_stateful_set", async |bed| {
        let [v1, crash] =
            [("app:v1", "app-v1"), ("app:crash", "crash")].map(|(name, program)| push(bed, name, program));
        bed.make(StatefulSet, &v1.to_string(), json!({})).await;
        bed.roll_out(&order(bed, StatefulSet, 1, &v1)).await;
        let broken = order(bed, StatefulSet, 2, &crash);
        bed.apply(&broken).await;
        bed.until(&broken, "in failure", |seen| seen.failure.is_some()).await;
        let back = order(bed, StatefulSet, 3, &v1);
        let seen = bed.roll_out(&back).await;
        assert_eq!((seen.restarts, seen.deploy), (0, Some(back.id)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(bed::is_complete(&bed.driver.observe(&back).await.unwrap()));
    });
}
