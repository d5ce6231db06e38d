//! Successful rollouts of each kind of workload.

use rollhook_core::ports::Phase;
use rollhook_kubernetes::WorkloadKind::{CronJob, DaemonSet, Deployment, StatefulSet};
use serde_json::{Value, json};

use crate::bed;

#[test]
fn deployments_stateful_sets_and_daemon_sets_roll_out() {
    bed::test("deployments_stateful_sets_and_daemon_sets_roll_out", async |bed| {
        for kind in [Deployment, StatefulSet, DaemonSet] {
            bed.make(kind, "api:v1", json!({})).await;
            let order = bed.order(kind, 1, "api:v2");
            let seen = bed.roll_out(&order).await;
            assert_eq!(seen.deploy, Some(order.id), "{kind}");
            assert_eq!(seen.message, "2 of 2 new pods are available", "{kind}");
            // Simulated pods do not tell a digest.
            assert_eq!(seen.phase, Phase::Complete { digest: None, note: None }, "{kind}");
            let pods = bed.pods().await;
            let ours = pods.iter().filter(|pod| {
                let annotations = pod.metadata.annotations.as_ref();
                annotations.and_then(|all| all.get("rollhook.dev/revision")) == Some(&order.id.to_string())
            });
            assert_eq!(ours.count(), 2, "each pod names its revision: {kind}");
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
            while !bed.pods().await.is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    });
}

#[test]
fn nothing_but_images_and_annotations_changes() {
    bed::test("nothing_but_images_and_annotations_changes", async |bed| {
        let init = json!([{"name": "migrate", "image": "migrate:1"}, {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}]);
        let containers = json!([{"name": "app", "image": "api:v1", "env": [{"name": "A", "value": "1"}]},
                                {"name": "web", "image": "web:1"}]);
        let spec = json!({"template": {"spec": {"initContainers": init, "containers": containers}}});
        bed.make(Deployment, "api:v1", spec).await;
        let before = bed.read(Deployment).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let mut after = bed.read(Deployment).await;
        assert_eq!(after["metadata"]["annotations"]["kubernetes.io/change-cause"], order.cause);
        assert_eq!(after["metadata"]["annotations"]["rollhook.dev/revision"], order.id.to_string());
        let spec = &mut after["spec"]["template"];
        assert_eq!(spec["metadata"]["annotations"], json!({"rollhook.dev/revision": order.id.to_string()}));
        spec["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(spec["spec"]["containers"][0]["image"].take(), "api:v2");
        spec["spec"]["containers"][0]["image"] = json!("api:v1");
        assert_eq!(after["spec"], before["spec"]);
        let ours = |entry: &&Value| entry["manager"] == "rollhook";
        assert_eq!(after["metadata"]["managedFields"].as_array().unwrap().iter().filter(ours).count(), 1);
    });
}

#[test]
fn zero_replicas_succeed_with_a_note() {
    bed::test("zero_replicas_succeed_with_a_note", async |bed| {
        bed.make(Deployment, "api:v1", json!({"replicas": 0})).await;
        let seen = bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        assert_eq!(seen.phase, Phase::Complete { digest: None, note: Some("0 replicas: no pod runs".to_owned()) });
    });
}

#[test]
fn a_cron_job_takes_effect_at_the_next_schedule() {
    bed::test("a_cron_job_takes_effect_at_the_next_schedule", async |bed| {
        bed.make(CronJob, "api:v1", json!({})).await;
        let order = bed.order(CronJob, 1, "api:v2");
        bed.apply(&order).await;
        let seen = rollhook_core::ports::RolloutDriver::observe(&*bed.driver, &order).await.unwrap();
        assert_eq!(
            seen.phase,
            Phase::Complete { digest: None, note: Some("takes effect at the next schedule".to_owned()) }
        );
        let job = bed.read(CronJob).await;
        let template = &job["spec"]["jobTemplate"]["spec"]["template"];
        assert_eq!(template["spec"]["containers"][0]["image"], "api:v2");
        assert_eq!(template["metadata"]["annotations"]["rollhook.dev/revision"], order.id.to_string());
    });
}

#[test]
fn partition_rolls_out_its_share_of_pods() {
    bed::test("partition_rolls_out_its_share_of_pods", async |bed| {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
        bed.make(StatefulSet, "api:v1", json!({"updateStrategy": strategy})).await;
        let seen = bed.roll_out(&bed.order(StatefulSet, 1, "api:v2")).await;
        let Phase::Complete { note, .. } = seen.phase else { panic!("{seen:?}") };
        assert_eq!(note.as_deref(), Some("1 of 2 pods run it: the partition holds 1 back"));
    });
}

#[test]
fn pod_that_falls_back_makes_the_rollout_incomplete() {
    bed::test("pod_that_falls_back_makes_the_rollout_incomplete", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:dies");
        bed.roll_out(&order).await;
        let seen = bed.until(&order, "no longer complete", |seen| !bed::is_complete(seen)).await;
        assert!(seen.restarts > 0, "{seen:?}");
    });
}
