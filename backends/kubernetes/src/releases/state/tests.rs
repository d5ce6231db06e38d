use serde_json::{Value, json};

use super::*;

const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

fn job(metadata: Value, suspended: bool, status: Value) -> Job {
    let container = json!({
        "name": "app", "image": "registry.example.com/api:v7", "resources": {"limits": {"memory": "128Mi"}},
    });
    serde_json::from_value(json!({
        "metadata": {"name": "release-1", "uid": "job", "annotations": metadata},
        "spec": {
            "suspend": suspended, "activeDeadlineSeconds": 18000,
            "template": {"spec": {"containers": [container]}},
        },
        "status": status,
    }))
    .unwrap()
}

fn started() -> Value {
    json!({STARTED: "true"})
}

fn stopped_as(stopped: &Stopped) -> Value {
    json!({STARTED: "true", STOPPED: serde_json::to_string(stopped).unwrap()})
}

fn running_job() -> Job {
    job(started(), false, json!({"active": 1, "startTime": "2026-11-21T10:00:00Z"}))
}

fn failure_status(reason: &str) -> Value {
    json!({"failed": 1, "terminating": 0, "conditions": [
        {"type": "FailureTarget", "status": "True", "reason": reason},
        {"type": "Failed", "status": "True", "reason": reason, "message": "Job has reached the specified backoff limit"},
    ]})
}

fn failed_job() -> Job {
    job(started(), false, failure_status("BackoffLimitExceeded"))
}

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "release-1-x", "uid": "pod", "creationTimestamp": "2026-11-21T10:00:01Z"},
        "spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v7"}]},
        "status": status,
    }))
    .unwrap()
}

fn with_state(phase: &str, state: Value) -> Pod {
    pod(json!({
        "phase": phase, "startTime": "2026-11-21T10:00:10Z",
        "containerStatuses": [{
            "name": "app", "image": "", "imageID": format!("registry.example.com/api@{DIGEST}"), "ready": false,
            "restartCount": 0, "state": state,
        }],
    }))
}

fn ended_pod(phase: &str, mut terminated: Value) -> Pod {
    if terminated.get("startedAt").is_none() {
        terminated["startedAt"] = json!("2026-11-21T10:00:20Z");
    }
    with_state(phase, json!({"terminated": terminated}))
}

fn waits(reason: &str, message: &str) -> Pod {
    with_state("Pending", json!({"waiting": {"reason": reason, "message": message}}))
}

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    start.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

fn observed(job: &Job, pods: &[Pod], seconds: i64) -> Observed {
    observe(job, pods, at(seconds))
}

fn failure(job: &Job, pods: &[Pod]) -> ReleaseFailure {
    let seen = observed(job, pods, 100);
    let Observed::Failed(failure) = seen else { panic!("not failed: {seen:?}") };
    failure
}

fn stuck(pods: &[Pod], seconds: i64) -> Option<Stopped> {
    let seen = observed(&running_job(), pods, seconds);
    if seen == Observed::Running {
        return None;
    }
    let Observed::Stuck(stopped) = seen else { panic!("neither stuck nor running: {seen:?}") };
    Some(stopped)
}

fn event(reason: &str, message: &str) -> Event {
    serde_json::from_value(json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": message})).unwrap()
}

#[test]
fn suspended_job_is_ready_until_it_was_started() {
    let ready = job(json!({}), true, json!({}));
    assert!(is_ready(&ready) && observed(&ready, &[], 0) == Observed::Prepared);
    let suspended_by_a_person = job(started(), true, json!({}));
    assert!(!is_ready(&suspended_by_a_person));
    assert_eq!(observed(&suspended_by_a_person, &[], 1000), Observed::Running);
}

#[test]
fn job_that_goes_on_is_running() {
    let resumed = job(started(), false, json!({}));
    assert_eq!(observed(&resumed, &[], 0), Observed::Running);
    let pods = [with_state("Running", json!({"running": {}})), pod(json!({"phase": "Pending"}))];
    for pod in pods {
        assert_eq!(observed(&running_job(), &[pod], 10_000), Observed::Running);
    }
    // Its pod has ended, and the Job's controller has not seen it yet.
    assert_eq!(observed(&running_job(), &[ended_pod("Succeeded", json!({"exitCode": 0}))], 9), Observed::Running);
}

#[test]
fn complete_job_succeeds_with_the_digest_that_ran() {
    let status = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    let complete = job(started(), false, status);
    let pod = ended_pod("Succeeded", json!({"exitCode": 0}));
    assert_eq!(observed(&complete, &[pod], 9), Observed::Succeeded(Some(DIGEST.parse().unwrap())));
    assert_eq!(observed(&complete, &[], 9), Observed::Succeeded(None), "the pod is gone");
    let mut pinned = complete;
    let pod = pinned.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    pod.containers[0].image = Some(format!("registry.example.com/api@{DIGEST}"));
    assert_eq!(observed(&pinned, &[], 9), Observed::Succeeded(Some(DIGEST.parse().unwrap())));
}

#[test]
fn end_of_the_container_is_named() {
    let unknown = Reason::RELEASE_UNKNOWN;
    for (terminated, reason, words, began) in [
        (
            json!({"exitCode": 1, "reason": "Error"}),
            Reason::RELEASE_FAILED,
            "The release command ended with exit code 1.",
            true,
        ),
        (json!({"exitCode": 137, "reason": "OOMKilled"}), "OOMKilled", "memory limit of 128Mi", true),
        (
            json!({"exitCode": 137, "reason": "Error"}),
            Reason::RELEASE_FAILED,
            "ended by signal 9 (exit code 137)",
            true,
        ),
        (json!({"exitCode": 2, "signal": 15}), Reason::RELEASE_FAILED, "ended by signal 15.", true),
        (json!({"exitCode": 255}), Reason::RELEASE_FAILED, "exit code 255", true),
        (json!({"exitCode": 0}), Reason::RELEASE_FAILED, "its pod failed", true),
        (json!({"exitCode": 137, "reason": "ContainerStatusUnknown"}), unknown, "is not known", true),
        (
            json!({"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z",
                   "message": "exec: \"bin/migrate\": executable file not found in $PATH"}),
            "StartError",
            "cannot be started: exec",
            false,
        ),
        (
            json!({"exitCode": 128, "reason": "StartError", "message": "context deadline exceeded"}),
            "StartError",
            "cannot be",
            true,
        ),
    ] {
        let failure = failure(&failed_job(), &[ended_pod("Failed", terminated)]);
        assert_eq!((failure.reason.as_str(), failure.began), (reason, began), "{failure:?}");
        assert!(failure.message.contains(words), "{failure:?}");
    }
}

#[test]
fn end_from_outside_is_named() {
    let mut evicted = ended_pod("Failed", json!({"exitCode": 137}));
    let status = evicted.status.as_mut().unwrap();
    status.reason = Some("Evicted".to_owned());
    status.message = Some("The node was low on resource: memory.".to_owned());
    let found = failure(&failed_job(), &[evicted]);
    assert!(found.began && found.reason.as_str() == "Evicted" && found.message.contains("memory"), "{found:?}");
    let conditions = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for web-1"}]);
    let found = failure(&failed_job(), &[pod(json!({"phase": "Failed", "conditions": conditions}))]);
    assert!(found.began && found.reason.as_str() == "PreemptionByScheduler", "{found:?}");
    let rejected =
        pod(json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough"}));
    let found = failure(&failed_job(), &[rejected]);
    assert!(!found.began && found.reason.as_str() == "OutOfcpu", "{found:?}");
    let found = failure(&failed_job(), &[]);
    assert!(found.began && found.reason.as_str() == Reason::RELEASE_UNKNOWN, "{found:?}");
    let found = failure(&job(started(), false, failure_status("DeadlineExceeded")), &[]);
    assert!(found.began && found.reason.as_str() == Reason::RELEASE_DEADLINE, "{found:?}");
    assert!(found.message.contains("18000 s"), "{found:?}");
}

#[test]
fn image_that_cannot_heal_stops_the_run_at_once_and_others_after_a_minute() {
    let gone = "failed to resolve reference \"registry.example.com/api:v7\": not found";
    let stopped = stuck(&[waits("ErrImagePull", gone)], 11).unwrap();
    assert_eq!(stopped.reason.as_str(), "ImagePullBackOff");
    assert_eq!(stopped.began, Began::Unseen { pod: Some("pod".to_owned()) });
    assert!(stopped.message.starts_with("The release command cannot begin: container app of pod release-1-x"));
    assert!(stuck(&[waits("InvalidImageName", "no")], 11).is_some());
    for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
        let pods = [waits(reason, "connection reset")];
        // From when the node has had it, which was 10 s later.
        assert_eq!((stuck(&pods, 69).is_some(), stuck(&pods, 70).is_some()), (false, true), "{reason}");
    }
    for reason in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(stuck(&[waits(reason, "")], 10_000), None, "{reason}");
    }
}

#[test]
fn job_without_a_pod_is_stuck_if_none_can_be_made() {
    assert_eq!(observed(&running_job(), &[], 59), Observed::Running);
    assert_eq!(observed(&running_job(), &[], 60), Observed::WithoutPod);
    let refused = event("FailedCreate", "pods is forbidden: exceeded quota: small");
    let stopped = without_pod(vec![refused.clone()]).unwrap();
    assert_eq!((stopped.reason.as_str(), &stopped.began), ("FailedCreate", &Began::Unseen { pod: None }));
    assert!(stopped.message.contains("exceeded quota"), "{}", stopped.message);
    assert_eq!(without_pod(vec![refused, event("SuccessfulCreate", "")]), None);
    assert_eq!(without_pod(Vec::new()), None);
}

#[test]
fn run_that_was_cancelled_before_its_start_has_ended() {
    let ready = job(json!({}), true, json!({}));
    let cancelled = Stopped::cancelled(&ready, &[], at(9));
    assert_eq!(cancelled.began, Began::No);
    let text = serde_json::to_string(&cancelled).unwrap();
    // Its Job is resumed without pods, so that it can finish.
    let stopped = job(json!({STOPPED: text}), false, json!({}));
    let failure = failure(&stopped, &[]);
    assert!(!failure.began && failure.reason.as_str() == Reason::CANCELLED && !is_ready(&stopped), "{failure:?}");
}

#[test]
fn run_that_was_cancelled_ends_once_nothing_of_it_runs() {
    let cancelled = Stopped { log: vec!["step 1".to_owned()], ..Stopped::cancelled(&running_job(), &[], at(9)) };
    assert_eq!(cancelled.began, Began::Yes);
    let stopped = |status: Value| job(stopped_as(&cancelled), false, status);
    let ended = failure_status("DeadlineExceeded");
    let pod = with_state("Running", json!({"running": {}}));
    assert_eq!(observed(&stopped(json!({"active": 1})), std::slice::from_ref(&pod), 9), Observed::Running);
    assert_eq!(observed(&stopped(ended.clone()), &[pod], 9), Observed::Running);
    let found = failure(&stopped(ended), &[]);
    assert!(found.began && found.reason.as_str() == Reason::CANCELLED && found.log == ["step 1"], "{found:?}");
    let by_itself = stopped(json!({"succeeded": 1, "conditions": [{"type": "Failed", "status": "True"}]}));
    assert_eq!(observed(&by_itself, &[], 9), Observed::Succeeded(None), "it had ended in that moment");
}

#[test]
fn run_whose_pod_could_not_begin_is_verified() {
    let stopped = stuck(&[waits("InvalidImageName", "no")], 11).unwrap();
    let over = job(stopped_as(&stopped), false, failure_status("DeadlineExceeded"));
    assert_eq!(observed(&over, &[], 9), Observed::Unverified(stopped.clone()));
    let never = ended_pod("Failed", json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null}));
    assert_eq!(observed(&over, &[never], 9), Observed::Unverified(stopped.clone()));
    assert!(failure(&over, &[ended_pod("Failed", json!({"exitCode": 137}))]).began, "it began after all");
    assert!(says_begun(&[event("Pulled", ""), event("Started", "")]));
    assert!(!says_begun(&[event("Pulling", ""), event("Failed", ""), event("BackOff", "")]));
    let verified = Stopped { began: Began::No, ..stopped };
    assert!(!failure(&job(stopped_as(&verified), false, json!({})), &[]).began);
}

#[test]
fn end_that_cannot_be_read_is_unknown() {
    let annotations = json!({STARTED: "true", STOPPED: "{}"});
    assert_eq!(observed(&job(annotations.clone(), false, json!({})), &[], 9), Observed::Running);
    let found = failure(&job(annotations, false, failure_status("DeadlineExceeded")), &[]);
    assert!(found.began && found.reason.as_str() == Reason::RELEASE_UNKNOWN, "{found:?}");
}

#[test]
fn run_that_was_cancelled_while_its_pod_waited_is_verified() {
    let unscheduled = pod(json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available",
    }]}));
    let gated = pod(json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "quota",
    }]}));
    for (pod, reason, words) in [
        (unscheduled, "Unschedulable", "no node takes the pod release-1-x (0/2 nodes are available)"),
        (gated, "SchedulingGated", "the pod release-1-x has no node (quota)"),
        (waits("ContainerCreating", ""), "ContainerCreating", "container app of pod release-1-x was waiting"),
        (waits("ErrImagePull", "connection reset"), "ImagePullBackOff", "cannot be pulled (connection reset)"),
        (pod(json!({"phase": "Pending"})), Reason::CANCELLED, "has not started its containers"),
    ] {
        let cancelled = Stopped::cancelled(&running_job(), std::slice::from_ref(&pod), at(600));
        assert_eq!(cancelled.began, Began::Unseen { pod: Some("pod".to_owned()) }, "{cancelled:?}");
        assert_eq!(cancelled.reason.as_str(), reason, "{cancelled:?}");
        assert!(cancelled.message.contains(words), "{cancelled:?}");
        let over = job(stopped_as(&cancelled), false, failure_status("DeadlineExceeded"));
        assert_eq!(observed(&over, &[], 9), Observed::Unverified(cancelled));
    }
    let has_run = [
        with_state("Running", json!({"running": {"startedAt": "2026-11-21T10:00:20Z"}})),
        ended_pod("Running", json!({"exitCode": 1})),
    ];
    for pod in has_run {
        let pods = [pod, self::pod(json!({"phase": "Pending"}))];
        let cancelled = Stopped::cancelled(&running_job(), &pods, at(600));
        assert_eq!((cancelled.began, cancelled.reason.as_str()), (Began::Yes, Reason::CANCELLED));
    }
}

#[test]
fn run_whose_pod_is_about_to_start_counts_as_begun_when_it_is_cancelled() {
    let starting = [waits("ContainerCreating", "")];
    let began = |seconds| Stopped::cancelled(&running_job(), &starting, at(seconds)).began;
    // The pod was made at the first second.
    assert_eq!((began(10), began(11)), (Began::Yes, Began::Unseen { pod: Some("pod".to_owned()) }));
}

#[test]
fn end_that_another_has_written_is_escaped_and_cut() {
    let lines: Vec<String> = (0..1000).map(|at| format!("{at}\t\u{1b}[31m{}", "x".repeat(1000))).collect();
    let forged = json!({
        "began": "yes", "reason": "no such\nreason", "message": format!("\u{202e}\u{1b}{}", "y".repeat(10_000)), "log": lines,
    });
    let found = failure(
        &job(json!({STARTED: "true", STOPPED: forged.to_string()}), false, failure_status("DeadlineExceeded")),
        &[],
    );
    assert_eq!(found.reason.as_str(), "nosuchreason");
    assert!(found.message.starts_with("\\u{202e}\\u{1b}yy") && found.message.len() == 2000, "{}", found.message);
    assert_eq!(found.log.len(), 50);
    assert!(found.log[49].starts_with("999\t\\u{1b}[31mx"), "{}", found.log[49]);
    assert!(found.log.iter().all(|line| line.chars().count() <= 500));
    let forged = json!({"began": {"unseen": {"pod": "a,involvedObject.name=b"}}, "reason": "a", "message": "b"});
    let over = job(json!({STOPPED: forged.to_string()}), false, failure_status("DeadlineExceeded"));
    assert!(failure(&over, &[]).began);
}

/// A pod whose own container has ended so, with a sidecar in this state.
fn with_sidecar(terminated: Value, sidecar: Value) -> Pod {
    let mut pod = ended_pod("Running", terminated);
    let sidecar =
        json!({"name": "proxy", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": sidecar});
    let statuses = &mut pod.status.as_mut().unwrap().container_statuses;
    statuses.as_mut().unwrap().push(serde_json::from_value(sidecar).unwrap());
    pod
}

#[test]
fn command_that_ended_beside_a_sidecar_is_judged_by_its_exit_code() {
    let runs = json!({"running": {}});
    let stopped = stuck(&[with_sidecar(json!({"exitCode": 0, "reason": "Completed"}), runs.clone())], 9).unwrap();
    let going = job(stopped_as(&stopped), false, json!({"active": 1}));
    assert_eq!(observed(&going, &[], 9), Observed::Running, "its pods are being ended");
    let over = job(stopped_as(&stopped), false, failure_status("DeadlineExceeded"));
    assert_eq!(observed(&over, &[], 9), Observed::Succeeded(Some(DIGEST.parse().unwrap())));

    let stopped = stuck(&[with_sidecar(json!({"exitCode": 3, "reason": "Error"}), runs.clone())], 9).unwrap();
    let found = failure(&job(stopped_as(&stopped), false, failure_status("DeadlineExceeded")), &[]);
    assert!(found.began && found.reason.as_str() == Reason::RELEASE_FAILED, "{found:?}");
    assert_eq!(found.message, "The release command ended with exit code 3.");
    let pods = [with_sidecar(json!({"exitCode": 0}), runs.clone())];
    assert_eq!(stuck(&pods, 9), Some(Stopped::cancelled(&running_job(), &pods, at(9))), "it has ended before");
    let lost = stuck(&[with_sidecar(json!({"exitCode": 0, "reason": "ContainerStatusUnknown"}), runs.clone())], 9);
    assert_eq!(lost.unwrap().reason.as_str(), Reason::RELEASE_UNKNOWN);

    let both = with_sidecar(json!({"exitCode": 0}), json!({"terminated": {"exitCode": 0}}));
    assert_eq!(stuck(&[both], 9), None, "the Job ends by itself");
    let mut deleted = with_sidecar(json!({"exitCode": 0}), runs);
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    assert_eq!(stuck(&[deleted], 9), None);
}
