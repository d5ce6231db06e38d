//! Stops and starts of each kind of workload.

use rollhook_core::{
    deploy::{Reason, Revision, Scale},
    ports::{Applied, Phase, Purpose, RolloutDriver, RolloutSpec},
};
use rollhook_kubernetes::WorkloadKind::{self, CronJob, DaemonSet, Deployment, StatefulSet};
use serde_json::{Value, json};

use crate::bed::{self, Bed, is_complete};

const KEPT: &str = "rollhook.dev/stopped-from";

fn scaling(bed: &Bed, kind: WorkloadKind, revision: u64, scale: Scale) -> RolloutSpec {
    bed.order(kind, revision, "api:v2").with(|spec| spec.scale = scale)
}

fn note(phase: Phase) -> String {
    match phase {
        Phase::Complete { note, .. } => note.unwrap_or_default(),
        Phase::Progressing => panic!("not complete"),
    }
}

async fn kept(bed: &Bed, kind: WorkloadKind) -> (Value, Value) {
    let object = bed.read(kind).await;
    let field = if kind == CronJob { "suspend" } else { "replicas" };
    (object["spec"][field].clone(), object["metadata"]["annotations"][KEPT].clone())
}

#[test]
fn deployments_and_stateful_sets_stop_and_start_with_what_they_had() {
    bed::test("deployments_and_stateful_sets_stop_and_start_with_what_they_had", async |bed| {
        for (kind, spec) in
            [(Deployment, json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})), (StatefulSet, json!({}))]
        {
            bed.make(kind, "api:v1", spec).await;
            bed.patch_as("ada", kind, json!({"spec": {"replicas": 3}})).await;
            bed.roll_out(&bed.order(kind, 1, "api:v2")).await;
            let stop = scaling(bed, kind, 2, Scale::Stop);
            bed.apply(&stop).await;
            let seen = bed.until(&stop, "stopped", |seen| is_complete(seen) || seen.failure.is_some()).await;
            assert_eq!((seen.deploy, seen.down_for), (Some(stop.id), None), "{kind}");
            assert!(bed.pods().await.is_empty(), "{kind}: complete while pods are left");
            assert_eq!(note(seen.phase), "stopped: no pod runs", "{kind}");
            assert_eq!(kept(bed, kind).await, (json!(0), json!("3")), "{kind}");
            let at_rest = bed.driver.target_reader().unwrap().at_rest(&bed.order(kind, 2, "api:v2")).await.unwrap();
            assert_eq!((at_rest.drift, at_rest.seen.failure), (None, None), "{kind}");

            let deploy = bed.order(kind, 3, "api:v3");
            let seen = bed.roll_out(&deploy).await;
            assert_eq!(note(seen.phase), "0 replicas: no pod runs", "{kind}");
            assert_eq!(kept(bed, kind).await, (json!(0), json!("3")), "{kind}");

            let start = bed.order(kind, 4, "api:v3").with(|spec| spec.scale = Scale::Start);
            assert_eq!(bed.roll_out(&start).await.message, "3 of 3 new pods are available", "{kind}");
            assert_eq!(kept(bed, kind).await, (json!(3), Value::Null), "{kind}");
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
            while !bed.pods().await.is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    });
}

#[test]
fn failed_start_is_stopped_again_and_a_stop_that_is_taken_back_runs_as_before() {
    bed::test("failed_start_is_stopped_again_and_a_stop_that_is_taken_back_runs_as_before", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        bed.roll_out(&scaling(bed, Deployment, 2, Scale::Stop)).await;
        let fails = bed.order(Deployment, 3, "api:crash").with(|spec| spec.scale = Scale::Start);
        bed.apply(&fails).await;
        bed.until(&fails, "in failure", |seen| seen.failure.is_some()).await;
        let restore = |revision: u64, to: u64, scale: Scale| {
            let purpose = Purpose::Restore { to: Revision::new(to).unwrap() };
            scaling(bed, Deployment, revision, scale).with(|spec| spec.purpose = purpose)
        };
        bed.roll_out(&restore(4, 2, Scale::Stop)).await;
        assert_eq!(kept(bed, Deployment).await, (json!(0), json!("2")));
        bed.roll_out(&scaling(bed, Deployment, 5, Scale::Start)).await;

        bed.apply(&scaling(bed, Deployment, 6, Scale::Stop)).await;
        bed.roll_out(&restore(7, 5, Scale::Start)).await;
        assert_eq!(kept(bed, Deployment).await, (json!(2), Value::Null));
    });
}

#[test]
fn number_that_somebody_has_set_since_the_stop_stays() {
    bed::test("number_that_somebody_has_set_since_the_stop_stays", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        bed.roll_out(&scaling(bed, Deployment, 2, Scale::Stop)).await;
        bed.kubectl(&["scale", "deployment/api", "--replicas=1"]);
        bed.roll_out(&scaling(bed, Deployment, 3, Scale::Start)).await;
        assert_eq!(kept(bed, Deployment).await, (json!(1), Value::Null));

        let stop = scaling(bed, Deployment, 4, Scale::Stop);
        bed.apply(&stop).await;
        bed.kubectl(&["scale", "deployment/api", "--replicas=2"]);
        let failure = bed.until(&stop, "in failure", |seen| seen.failure.is_some()).await.failure.unwrap();
        assert_eq!(failure.reason.as_str(), Reason::REVERTED);
        assert_eq!(failure.message, "Deployment api was scaled to 2 replicas while it stopped");
    });
}

#[test]
fn cron_job_is_suspended_and_resumed() {
    bed::test("cron_job_is_suspended_and_resumed", async |bed| {
        bed.make(CronJob, "api:v1", json!({})).await;
        let seen = bed.roll_out(&scaling(bed, CronJob, 1, Scale::Stop)).await;
        assert_eq!(note(seen.phase), "stopped: no Job is made any more, and one that runs goes on");
        assert_eq!(kept(bed, CronJob).await, (json!(true), json!("active")));
        bed.roll_out(&bed.order(CronJob, 2, "api:v3")).await;
        assert_eq!(kept(bed, CronJob).await.0, json!(true), "a deploy resumes nothing");
        bed.roll_out(&scaling(bed, CronJob, 3, Scale::Start)).await;
        assert_eq!(kept(bed, CronJob).await, (json!(false), Value::Null));
        bed.patch_as("ada", CronJob, json!({"spec": {"suspend": true}})).await;
        bed.roll_out(&scaling(bed, CronJob, 4, Scale::Stop)).await;
        bed.roll_out(&scaling(bed, CronJob, 5, Scale::Start)).await;
        assert_eq!(kept(bed, CronJob).await, (json!(true), Value::Null), "it was suspended before");
    });
}

#[test]
fn daemon_set_is_refused_and_not_changed() {
    bed::test("daemon_set_is_refused_and_not_changed", async |bed| {
        bed.make(DaemonSet, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(DaemonSet, 1, "api:v2")).await;
        let before = bed.read(DaemonSet).await["metadata"]["generation"].clone();
        let stop = scaling(bed, DaemonSet, 2, Scale::Stop);
        assert!(bed.driver.unstoppable(&stop.target).is_some());
        let Applied::Refused { reason, message } = bed.driver.apply(&stop).await.unwrap() else {
            panic!("not refused")
        };
        assert_eq!(reason.as_str(), Reason::UNSUPPORTED);
        assert!(message.starts_with("DaemonSet api has a pod on each of its nodes"), "{message}");
        assert_eq!(bed.read(DaemonSet).await["metadata"]["generation"], before);
    });
}
