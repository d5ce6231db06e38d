use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use rollhook_conformance::samples;
use serde_json::{Value, json};

use super::*;
use crate::builds::names::ABOUT;

const FULL: &str = "0123456789abcdef0123456789abcdef01234567";
const PATIENCE: Duration = Duration::from_secs(60);

fn job(spec: Value, status: Value) -> Job {
    let about = json!({"app": samples::app("shop", "test", "api").id, "source": samples::git_source(), "commit": FULL, "places": 2});
    let mut object = json!({
        "metadata": {"name": "build-1", "annotations": {ABOUT: about.to_string()}},
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

fn look(job: &Job, pods: &[Pod], seconds: i64) -> Seen {
    seen(job, pods, after(seconds), PATIENCE)
}

fn failure(seen: Seen) -> Failure {
    match seen {
        Seen::Ended(End::Failed(failure)) | Seen::Stuck(failure) => failure,
        other @ (Seen::Waiting | Seen::Running | Seen::WithoutPod | Seen::Ended(_) | Seen::Noted(_)) => {
            panic!("no failure: {other:?}")
        }
    }
}

#[test]
fn a_build_that_ended_well_is_what_its_message_says() {
    let image = format!("registry.example.com/shop/api@{}", samples::digest(3));
    let message = json!({"image": image, "commit": FULL}).to_string();
    let pods = [ended("Succeeded", json!({"exitCode": 0, "reason": "Completed", "message": message}))];
    let Seen::Ended(End::Built { image: built, commit }) = look(&complete(), &pods, 9) else { panic!() };
    assert_eq!((built.to_string(), commit.as_str()), (image, FULL));
    assert_eq!(look(&running(), &pods, 9), Seen::Running, "the Job's controller has not seen it yet");
}

#[test]
fn out_of_memory_says_which_limit_to_raise() {
    let pods = [ended("Failed", json!({"exitCode": 137, "reason": "OOMKilled"}))];
    let failure = failure(look(&failed("BackoffLimitExceeded"), &pods, 9));
    assert_eq!(failure.reason.as_str(), "OOMKilled");
    assert!(failure.message.contains("4Gi") && failure.message.contains("--build-memory"), "{}", failure.message);
}

#[test]
fn a_failure_by_the_builder_is_the_builders() {
    let message = json!({"reason": "commit-not-found", "message": "The source has no such commit."}).to_string();
    let pods = [ended("Failed", json!({"exitCode": 1, "reason": "Error", "message": message}))];
    assert_eq!(failure(look(&failed("BackoffLimitExceeded"), &pods, 9)).reason.as_str(), "commit-not-found");
    let pods = [ended("Failed", json!({"exitCode": 2, "reason": "Error"}))];
    let told = failure(look(&failed("BackoffLimitExceeded"), &pods, 9));
    assert!(told.message.contains("exit code 2"), "{told:?}");
}

#[test]
fn an_eviction_by_the_node_ends_the_build_and_others_do_not() {
    let message = "The node was low on resource: ephemeral-storage.";
    let evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": message}));
    let told = failure(look(&running(), std::slice::from_ref(&evicted), 2));
    assert_eq!(told.reason.as_str(), "Evicted");
    assert!(told.message.contains("ephemeral-storage"), "{}", told.message);
    for reason in ["PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"] {
        let condition = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        let disrupted = pod(json!({"phase": "Failed", "conditions": condition}));
        assert_eq!(look(&running(), &[disrupted], 2), Seen::Running, "{reason}");
    }
}

#[test]
fn the_deadline_of_the_cluster_is_told() {
    let told = failure(look(&failed("DeadlineExceeded"), &[], 9));
    assert_eq!(told.reason.as_str(), Reason::BUILD_DEADLINE);
    assert!(told.message.contains("7200 s"), "{}", told.message);
}

#[test]
fn an_end_that_left_no_trace_is_lost() {
    assert_eq!(failure(look(&failed("BackoffLimitExceeded"), &[], 9)).reason.as_str(), Reason::BUILD_LOST);
    assert_eq!(failure(look(&complete(), &[], 9)).reason.as_str(), Reason::BUILD_LOST);
    let refused =
        pod(json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}));
    assert_eq!(failure(look(&failed("BackoffLimitExceeded"), &[refused], 9)).reason.as_str(), "OutOfcpu");
}

#[test]
fn patience_ends_with_what_does_not_start() {
    let pods = [waits("ImagePullBackOff", "Back-off pulling image \"builder\"")];
    assert_eq!(look(&running(), &pods, 30), Seen::Running);
    let told = failure(look(&running(), &pods, 70));
    assert_eq!(told.reason.as_str(), "ImagePullBackOff");
    assert!(told.message.contains("Back-off pulling"), "{}", told.message);
    assert_eq!(look(&running(), &[waits("ContainerCreating", "")], 700), Seen::Running);
    assert_eq!(look(&running(), &[], 30), Seen::Running);
    assert_eq!(look(&running(), &[], 70), Seen::WithoutPod);
}

#[test]
fn no_room_is_waited_for_longer() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"});
    let pods = [pod(json!({"phase": "Pending", "conditions": [condition]}))];
    assert_eq!(look(&running(), &pods, 200), Seen::Running);
    assert_eq!(failure(look(&running(), &pods, 400)).reason.as_str(), "Unschedulable");
}

#[test]
fn what_we_ended_has_ended_once_its_pod_is_gone() {
    let verdict = Failure::new(Reason::CANCELLED, "The build was ended.");
    let mut job = failed("DeadlineExceeded");
    job.metadata.annotations.as_mut().unwrap().insert(VERDICT.to_owned(), serde_json::to_string(&verdict).unwrap());
    assert_eq!(look(&job, &[pod(json!({"phase": "Running"}))], 9), Seen::Running);
    assert_eq!(failure(look(&job, &[], 9)), verdict);
    let mut early = running();
    early.metadata.annotations = job.metadata.annotations.clone();
    assert_eq!(look(&early, &[], 9), Seen::Running);
    // What was noted stays, whatever becomes of the pods.
    job.metadata.annotations.as_mut().unwrap().insert(END.to_owned(), json!({"failed": verdict}).to_string());
    assert_eq!(look(&job, &[], 9), Seen::Noted(End::Failed(verdict)));
    assert_eq!(look(&job_suspended(), &[], 9), Seen::Waiting);
}

fn job_suspended() -> Job {
    job(json!({"suspend": true}), json!({}))
}

fn broken(mut job: Job, annotation: &str) -> Job {
    job.metadata.annotations.as_mut().unwrap().insert(annotation.to_owned(), "{".to_owned());
    job
}

#[test]
fn what_cannot_be_read_on_a_job_that_is_over_is_lost() {
    for annotation in [END, VERDICT, ABOUT] {
        let seen = look(&broken(complete(), annotation), &[], 9);
        let (Seen::Noted(End::Failed(told)) | Seen::Ended(End::Failed(told))) = seen else { panic!("{annotation}") };
        assert_eq!(told.reason.as_str(), Reason::BUILD_LOST, "{annotation}");
        assert!(told.message.contains(annotation), "{}", told.message);
        assert_eq!(look(&broken(complete(), annotation), &[pod(json!({"phase": "Running"}))], 9), Seen::Running);
    }
}

#[test]
fn what_cannot_be_read_on_a_job_that_waits_starts_nothing() {
    assert_eq!(look(&broken(job_suspended(), VERDICT), &[], 9), Seen::Running);
    assert_eq!(look(&broken(job_suspended(), END), &[], 9), Seen::Waiting);
}

#[test]
fn a_lost_pod_is_no_pod_that_cannot_be_made() {
    let event = |reason: &str, message: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {}, "type": "Warning", "reason": reason, "message": message,
        }))
        .unwrap()
    };
    let refused = || event("FailedCreate", "pods \"build-1-x\" is forbidden: exceeded quota: none");
    let told = without_pod(vec![event("Suspended", "Job suspended"), refused()]).unwrap();
    assert!(told.message.contains("exceeded quota"), "{}", told.message);
    assert_eq!(without_pod(vec![refused(), event("SuccessfulCreate", "Created pod: build-1-x")]), None);
    assert_eq!(without_pod(Vec::new()), None);
}
