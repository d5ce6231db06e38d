use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use rollhook_conformance::samples;
use serde_json::{Value, json};

use super::*;
use crate::builds::names::SPEC;

const FULL: &str = "0123456789abcdef0123456789abcdef01234567";
const PATIENCE: Duration = Duration::from_secs(60);

fn job(spec: Value, status: Value) -> Job {
    let spec_text = json!({"app": samples::app("shop", "test", "api").id, "source": samples::git_source(), "commit": FULL, "slots": 2});
    let mut object = json!({
        "metadata": {"name": "build-1", "annotations": {SPEC: spec_text.to_string()}},
        "spec": {"template": {}, "activeDeadlineSeconds": 7200}, "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn running() -> Job {
    job(json!({"suspend": false}), json!({"active": 1, "startTime": "2026-11-21T10:00:00Z"}))
}

fn failed(reason: &str) -> Job {
    job(
        json!({}),
        json!({"failed": 1, "terminating": 0, "conditions": [
            {"type": "FailureTarget", "status": "True", "reason": reason},
            {"type": "Failed", "status": "True", "reason": reason, "message": "Job has reached the specified backoff limit"},
        ]}),
    )
}

fn complete() -> Job {
    job(
        json!({}),
        json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True", "reason": "CompletionsReached"}]}),
    )
}

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "build-1-x", "creationTimestamp": "2026-11-21T10:00:01Z"},
        "spec": {"containers": [{"name": "build", "resources": {"limits": {"memory": "4Gi"}}}]},
        "status": status,
    }))
    .unwrap()
}

fn ended(phase: &str, terminated: Value) -> Pod {
    pod(json!({"phase": phase, "containerStatuses": [{
        "name": "build", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated},
    }]}))
}

fn waits(reason: &str, message: &str) -> Pod {
    pod(json!({"phase": "Pending", "containerStatuses": [{
        "name": "build", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }]}))
}

fn after(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    start.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

fn observed(job: &Job, pods: &[Pod], seconds: i64) -> Observed {
    observe(job, pods, after(seconds), PATIENCE)
}

fn failure(observed: Observed) -> StoredFailure {
    match observed {
        Observed::Ended(Outcome::Failed(failure)) | Observed::Stuck(failure) => failure,
        other @ (Observed::Waiting
        | Observed::Running
        | Observed::WithoutPod
        | Observed::Ended(_)
        | Observed::Recorded(_)) => {
            panic!("no failure: {other:?}")
        }
    }
}

#[test]
fn successful_build_has_the_image_of_its_message() {
    let image = format!("registry.example.com/shop/api@{}", samples::digest(3));
    let message = json!({"image": image, "commit": FULL}).to_string();
    let pods = [ended("Succeeded", json!({"exitCode": 0, "reason": "Completed", "message": message}))];
    let Observed::Ended(Outcome::Built { image: built, commit }) = observed(&complete(), &pods, 9) else { panic!() };
    assert_eq!((built.to_string(), commit.as_str()), (image, FULL));
    assert_eq!(observed(&running(), &pods, 9), Observed::Running, "the Job's controller has not seen it yet");
}

#[test]
fn out_of_memory_names_the_limit_to_raise() {
    let pods = [ended("Failed", json!({"exitCode": 137, "reason": "OOMKilled"}))];
    let failure = failure(observed(&failed("BackoffLimitExceeded"), &pods, 9));
    assert_eq!(failure.reason.as_str(), "OOMKilled");
    assert!(failure.message.contains("4Gi") && failure.message.contains("--build-memory"), "{}", failure.message);
}

#[test]
fn failure_is_the_one_that_the_builder_reports() {
    let message = json!({"reason": "commit-not-found", "message": "The source has no such commit."}).to_string();
    let pods = [ended("Failed", json!({"exitCode": 1, "reason": "Error", "message": message}))];
    assert_eq!(failure(observed(&failed("BackoffLimitExceeded"), &pods, 9)).reason.as_str(), "commit-not-found");
    let pods = [ended("Failed", json!({"exitCode": 2, "reason": "Error"}))];
    let failed = failure(observed(&failed("BackoffLimitExceeded"), &pods, 9));
    assert!(failed.message.contains("exit code 2"), "{failed:?}");
}

#[test]
fn eviction_by_the_node_fails_the_build_and_other_disruptions_do_not() {
    let message = "The node was low on resource: ephemeral-storage.";
    let evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": message}));
    let failed = failure(observed(&running(), std::slice::from_ref(&evicted), 2));
    assert_eq!(failed.reason.as_str(), "Evicted");
    assert!(failed.message.contains("ephemeral-storage"), "{}", failed.message);
    for reason in ["PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"] {
        let condition = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        let disrupted = pod(json!({"phase": "Failed", "conditions": condition}));
        assert_eq!(observed(&running(), &[disrupted], 2), Observed::Running, "{reason}");
    }
}

#[test]
fn job_deadline_is_the_reason() {
    let failed = failure(observed(&failed("DeadlineExceeded"), &[], 9));
    assert_eq!(failed.reason.as_str(), Reason::BUILD_DEADLINE);
    assert!(failed.message.contains("7200 s"), "{}", failed.message);
}

#[test]
fn ended_build_without_a_pod_is_lost() {
    assert_eq!(failure(observed(&failed("BackoffLimitExceeded"), &[], 9)).reason.as_str(), Reason::BUILD_LOST);
    assert_eq!(failure(observed(&complete(), &[], 9)).reason.as_str(), Reason::BUILD_LOST);
    let refused =
        pod(json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}));
    assert_eq!(failure(observed(&failed("BackoffLimitExceeded"), &[refused], 9)).reason.as_str(), "OutOfcpu");
}

#[test]
fn build_that_does_not_start_is_stuck_after_the_patience() {
    let pods = [waits("ImagePullBackOff", "Back-off pulling image \"builder\"")];
    assert_eq!(observed(&running(), &pods, 30), Observed::Running);
    let failed = failure(observed(&running(), &pods, 70));
    assert_eq!(failed.reason.as_str(), "ImagePullBackOff");
    assert!(failed.message.contains("Back-off pulling"), "{}", failed.message);
    assert_eq!(observed(&running(), &[waits("ContainerCreating", "")], 700), Observed::Running);
    assert_eq!(observed(&running(), &[], 30), Observed::Running);
    assert_eq!(observed(&running(), &[], 70), Observed::WithoutPod);
}

#[test]
fn unschedulable_build_is_stuck_after_five_times_the_patience() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"});
    let pods = [pod(json!({"phase": "Pending", "conditions": [condition]}))];
    assert_eq!(observed(&running(), &pods, 200), Observed::Running);
    assert_eq!(failure(observed(&running(), &pods, 400)).reason.as_str(), "Unschedulable");
}

#[test]
fn stopped_build_has_ended_once_its_pod_is_gone() {
    let stopped = StoredFailure::new(Reason::CANCELLED, "The build was ended.");
    let mut job = failed("DeadlineExceeded");
    job.metadata.annotations.as_mut().unwrap().insert(STOPPED.to_owned(), serde_json::to_string(&stopped).unwrap());
    assert_eq!(observed(&job, &[pod(json!({"phase": "Running"}))], 9), Observed::Running);
    assert_eq!(failure(observed(&job, &[], 9)), stopped);
    let mut early = running();
    early.metadata.annotations = job.metadata.annotations.clone();
    assert_eq!(observed(&early, &[], 9), Observed::Running);
    // A recorded outcome stays, whatever becomes of the pods.
    job.metadata.annotations.as_mut().unwrap().insert(OUTCOME.to_owned(), json!({"failed": stopped}).to_string());
    assert_eq!(observed(&job, &[], 9), Observed::Recorded(Outcome::Failed(stopped)));
    assert_eq!(observed(&job_suspended(), &[], 9), Observed::Waiting);
}

fn job_suspended() -> Job {
    job(json!({"suspend": true}), json!({}))
}

fn broken(mut job: Job, annotation: &str) -> Job {
    job.metadata.annotations.as_mut().unwrap().insert(annotation.to_owned(), "{".to_owned());
    job
}

#[test]
fn finished_build_with_a_damaged_annotation_is_lost() {
    for annotation in [OUTCOME, STOPPED, SPEC] {
        let state = observed(&broken(complete(), annotation), &[], 9);
        let (Observed::Recorded(Outcome::Failed(failed)) | Observed::Ended(Outcome::Failed(failed))) = state else {
            panic!("{annotation}")
        };
        assert_eq!(failed.reason.as_str(), Reason::BUILD_LOST, "{annotation}");
        assert!(failed.message.contains(annotation), "{}", failed.message);
        assert_eq!(
            observed(&broken(complete(), annotation), &[pod(json!({"phase": "Running"}))], 9),
            Observed::Running
        );
    }
}

#[test]
fn waiting_build_with_a_damaged_annotation_is_not_started() {
    assert_eq!(observed(&broken(job_suspended(), STOPPED), &[], 9), Observed::Running);
    assert_eq!(observed(&broken(job_suspended(), OUTCOME), &[], 9), Observed::Waiting);
}

#[test]
fn lost_pod_is_not_a_pod_that_cannot_be_made() {
    let event = |reason: &str, message: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {}, "type": "Warning", "reason": reason, "message": message,
        }))
        .unwrap()
    };
    let refused = || event("FailedCreate", "pods \"build-1-x\" is forbidden: exceeded quota: none");
    let failed = without_pod(vec![event("Suspended", "Job suspended"), refused()]).unwrap();
    assert!(failed.message.contains("exceeded quota"), "{}", failed.message);
    assert_eq!(without_pod(vec![refused(), event("SuccessfulCreate", "Created pod: build-1-x")]), None);
    assert_eq!(without_pod(Vec::new()), None);
}
