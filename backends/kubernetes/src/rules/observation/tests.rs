mod terminating;

use k8s_openapi::api::core::v1::Pod;
use rollhook_core::{deploy::Revision, ports::Purpose};
use serde_json::{Value, json};
use std::time::Duration;

use super::*;
use crate::rules::{
    object::{STAMP, TEMPLATE_STAMP},
    pod_list::Counted,
    samples::{self, UID, merged, rollout, stamped},
};

/// A pod of the Deployment `api`, by revision.
fn pod(name: &str, revision: u64, patch: Value) -> Pod {
    let base = json!({
        "metadata": {
            "name": name,
            "annotations": {STAMP: rollout(revision).id.to_string()},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api", "controller": true, "uid": UID}],
        },
        "spec": {"containers": [{"name": "app", "image": format!("registry.example.com/api:v{revision}")}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [container(0, json!({"running": {}}))],
        },
    });
    serde_json::from_value(merged(base, patch)).unwrap()
}

/// The observation at the end of the first minute of 2026.
fn of(rollout: &Rollout, object: &Object, pods: &[Pod]) -> Observation {
    super::of(rollout, object, &PodList::from(pods), "2026-01-01T00:01:00Z".parse().unwrap())
}

fn container(restarts: u32, state: Value) -> Value {
    json!({"name": "app", "image": "registry.example.com/api:v5", "imageID": "", "ready": true, "restartCount": restarts,
           "state": state})
}

fn broken(restarts: u32, reason: &str) -> Value {
    json!({"status": {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [container(restarts, json!({"waiting": {"reason": reason}}))],
    }})
}

/// The sample Deployment of 3 replicas at revision 5, all of it rolled out unless the patch says otherwise.
fn deployment(patch: Value) -> Object {
    let done = json!({"status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                                 "availableReplicas": 3}});
    stamped(samples::deployment(merged(done, patch)), &rollout(5))
}

fn pods(revision: u64) -> Vec<Pod> {
    ["a", "b", "c"].map(|name| pod(name, revision, json!({}))).into()
}

fn is_complete(observation: &Observation) -> bool {
    matches!(observation.phase, Phase::Complete { .. })
}

fn code(observation: &Observation) -> Option<(RolloutFailureKind, &str)> {
    observation.failure.as_ref().map(|failure| (failure.kind, failure.reason.as_str()))
}

#[test]
fn complete_when_the_controller_and_the_pods_say_so() {
    let seen = of(&rollout(5), &deployment(json!({})), &pods(5));
    assert!(is_complete(&seen));
    assert_eq!(seen.deploy, Some(rollout(5).id));
    assert_eq!(seen.message, "3 of 3 new pods are available");
    assert_eq!(seen.instances, Some(Instances { ready: 3, wanted: 3 }));
    assert_eq!((seen.restarts, seen.failure), (0, None));
}

#[test]
fn old_version_is_never_the_new_ones_success() {
    // Every count is as it should be, because the controller has not looked yet.
    let object = deployment(json!({"status": {"observedGeneration": 2}}));
    let early = of(&rollout(5), &object, &pods(4));
    assert!(!is_complete(&early) && early.instances.is_none());
    // And if it had: the pods of the new revision are what counts.
    let old = of(&rollout(5), &deployment(json!({})), &pods(4));
    assert!(!is_complete(&old));
    assert_eq!(old.instances, Some(Instances { ready: 0, wanted: 3 }));
}

#[test]
fn pod_that_falls_back_is_noticed_before_the_controller_counts_it() {
    let mut pods = pods(5);
    pods[1] = pod("b", 5, broken(1, "CrashLoopBackOff"));
    let seen = of(&rollout(5), &deployment(json!({})), &pods);
    assert!(!is_complete(&seen));
    assert_eq!(seen.restarts, 1);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Crash, "CrashLoopBackOff")));
}

#[test]
fn app_is_down_while_no_pod_is_ready_and_the_old_ones_had_to_stop() {
    let recreated = deployment(json!({"spec": {"strategy": {"type": "Recreate"}}}));
    let unready = |name: &str, since: &str| {
        let unready =
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]}});
        pod(name, 5, unready)
    };
    let pods = [unready("a", "2026-01-01T00:00:30Z"), unready("b", "2026-01-01T00:00:40Z")];
    let down_for = |object: &Object, pods: &[Pod]| of(&rollout(5), object, pods).down_for;
    assert_eq!(down_for(&recreated, &pods), Some(Duration::from_secs(20)));
    assert_eq!(down_for(&deployment(json!({})), &pods), None, "old ones go on until new ones are ready");
    assert_eq!(down_for(&recreated, &[&pods[..], &[pod("c", 5, json!({}))]].concat()), None);
    assert_eq!(
        down_for(&recreated, &[&pods[..], &[pod("old", 4, json!({}))]].concat()),
        None,
        "it has not stopped yet"
    );
    assert_eq!(down_for(&recreated, &[]), Some(Duration::ZERO), "its pods are not made yet");
}

#[test]
fn container_that_runs_again_has_failed_where_the_old_pods_stopped_first() {
    let again = merged(container(1, json!({"running": {}})), json!({"lastState": {"terminated": {"exitCode": 7}}}));
    let status = |again: &Value| {
        let unready = json!([{"type": "Ready", "status": "False"}]);
        [pod("a", 5, json!({"status": {"conditions": unready, "containerStatuses": [again]}}))]
    };
    let recreated = deployment(json!({"spec": {"strategy": {"type": "Recreate"}}}));
    let seen = of(&rollout(5), &recreated, &status(&again));
    assert_eq!(code(&seen), Some((RolloutFailureKind::Crash, "CrashLoopBackOff")));
    assert!(seen.failure.unwrap().message.contains("exited with code 7"));
    assert_eq!(code(&of(&rollout(5), &deployment(json!({})), &status(&again))), None, "elsewhere it may get ready");
    let with_its_node = merged(again, json!({"lastState": {"terminated": {"exitCode": 255, "reason": "Unknown"}}}));
    assert_eq!(code(&of(&rollout(5), &recreated, &status(&with_its_node))), None);
}

#[test]
fn failure_is_that_of_the_new_revisions_pods() {
    let rolling = deployment(json!({"status": {"replicas": 4, "updatedReplicas": 1}}));
    let mut pods = pods(4);
    pods[0] = pod("a", 4, broken(7, "CrashLoopBackOff"));
    let seen = of(&rollout(5), &rolling, &pods);
    assert_eq!((code(&seen), seen.restarts), (None, 0));
    pods.push(pod("d", 5, broken(0, "ErrImagePull")));
    let seen = of(&rollout(5), &rolling, &pods);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Image, "ImagePullBackOff")));
    assert_eq!(seen.failure.unwrap().container.as_deref(), Some("app"));
    assert_eq!(seen.message, "0 of 3 new pods are ready, 3 old ones are left");
}

/// The sample Deployment after restore 6 brought back the template of revision 4, while revision 5 fails.
fn restored(patch: Value) -> (Object, Rollout) {
    let restore =
        Rollout { purpose: Purpose::Restore { to: Revision::new(4).unwrap() }, image: rollout(4).image, ..rollout(6) };
    let annotations = json!({STAMP: restore.id.to_string(), TEMPLATE_STAMP: rollout(4).id.to_string()});
    let ours = json!([{"manager": "rollhook", "operation": "Update", "time": "2026-01-01T00:10:00Z", "fieldsV1": {}}]);
    let Object::Deployment(object) = deployment(json!({})) else { panic!() };
    let object = stamped(Object::Deployment(object), &rollout(4));
    let Object::Deployment(object) = object else { panic!() };
    let marked = json!({"metadata": {"annotations": annotations, "managedFields": ours}});
    let object = merged(merged(serde_json::to_value(object).unwrap(), marked), patch);
    (samples::deployment(object), restore)
}

fn condition(type_: &str, status: &str, reason: &str, minute: u8) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "forbidden: violates PodSecurity",
           "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z")})
}

#[test]
fn pods_of_the_template_that_a_restore_brought_back_are_its_own() {
    let (object, restore) = restored(json!({}));
    let seen = of(&restore, &object, &pods(4));
    assert!(is_complete(&seen), "{seen:?}");
    assert_eq!((seen.deploy, seen.failure), (Some(restore.id), None));
    let Phase::Complete { note, .. } = seen.phase else { panic!() };
    assert!(note.unwrap().contains("were kept"));
    let failed = of(&restore, &object, &pods(5));
    assert!(!is_complete(&failed), "those of the failed deploy are not");
    assert_eq!(failed.instances, Some(Instances { ready: 0, wanted: 3 }));
    // For the deploy before, the workload is at another one.
    assert_eq!(of(&rollout(4), &object, &pods(4)).failure, None);
    assert!(!is_complete(&of(&rollout(4), &object, &pods(4))));
}

#[test]
fn restore_whose_pods_are_made_anew_says_so() {
    let restore = Rollout { purpose: Purpose::Restore { to: Revision::FIRST }, ..rollout(5) };
    let Phase::Complete { note, .. } = of(&restore, &deployment(json!({})), &pods(5)).phase else { panic!() };
    assert!(note.unwrap().contains("made anew"));
}

#[test]
fn stamp_of_a_template_that_was_brought_back_is_drift_if_another_changed_it() {
    let theirs = json!({"spec": {"template": {"metadata": {"annotations": {STAMP: rollout(3).id.to_string()}}}}});
    let (object, restore) = restored(theirs);
    assert_eq!(code(&of(&restore, &object, &pods(4))), Some((RolloutFailureKind::Final, Reason::REVERTED)));
}

#[test]
fn conditions_from_before_a_restore_are_of_the_failed_deploy() {
    let rolling = |conditions: Value| json!({"status": {"updatedReplicas": 2, "conditions": conditions}});
    let found = |conditions: Value| {
        let (object, restore) = restored(rolling(conditions));
        of(&restore, &object, &pods(4)).failure.map(|failure| failure.kind)
    };
    let late = |minute| json!([condition("Progressing", "False", "ProgressDeadlineExceeded", minute)]);
    assert_eq!(found(late(10)), None);
    assert_eq!(found(late(11)), Some(RolloutFailureKind::Final));
    let forbidden = |minute| json!([condition("ReplicaFailure", "True", "FailedCreate", minute)]);
    assert_eq!(found(forbidden(10)), Some(RolloutFailureKind::Capacity), "it may go with the failed deploy");
    assert_eq!(found(forbidden(11)), Some(RolloutFailureKind::Final));
}

#[test]
fn ended_pods_do_not_count() {
    let mut pods = pods(5);
    pods.push(pod("evicted", 5, json!({"status": {"phase": "Failed", "reason": "Evicted", "conditions": []}})));
    pods.push(pod(
        "going",
        5,
        merged(broken(3, "CrashLoopBackOff"), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ));
    let seen = of(&rollout(5), &deployment(json!({})), &pods);
    assert!(is_complete(&seen));
    assert_eq!(seen.restarts, 0);
}

#[test]
fn crash_loop_is_no_progress() {
    let rolling = deployment(json!({"status": {"replicas": 4, "updatedReplicas": 1, "availableReplicas": 3}}));
    let up = pod("d", 5, json!({"status": {"containerStatuses": [container(1, json!({"running": {}}))]}}));
    let down = pod("d", 5, broken(2, "CrashLoopBackOff"));
    let progress = |new: Pod| of(&rollout(5), &rolling, &[new]).progress;
    assert_eq!(progress(up.clone()), progress(down));
    assert_ne!(progress(up), progress(pod("d", 5, json!({}))));
}

#[test]
fn exceeded_progress_deadline_is_final() {
    let stuck = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    let rolling = |conditions: &Value, observed: i64| {
        deployment(json!({"status": {"updatedReplicas": 1, "observedGeneration": observed, "conditions": conditions}}))
    };
    let seen = of(&rollout(5), &rolling(&stuck, 3), &[pod("d", 5, broken(0, "ErrImagePull"))]);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Final, "ProgressDeadlineExceeded")));
    assert!(seen.failure.unwrap().message.contains("cannot be pulled"));
    // The verdict on the revision before is not this one's.
    assert_eq!(code(&of(&rollout(5), &rolling(&stuck, 2), &[])), None);
}

#[test]
fn pods_that_cannot_be_made() {
    let conditions = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                             "message": "pods \"api-x\" is forbidden: exceeded quota: small"}]);
    let object = deployment(json!({"status": {"updatedReplicas": 0, "conditions": conditions}}));
    let seen = of(&rollout(5), &object, &[]);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Capacity, "FailedCreate")));
    assert!(seen.failure.unwrap().message.contains("exceeded quota: small"));
}

#[test]
fn paused_on_the_way_is_final() {
    let object = deployment(json!({"spec": {"paused": true}, "status": {"updatedReplicas": 1}}));
    assert_eq!(code(&of(&rollout(5), &object, &[])), Some((RolloutFailureKind::Final, Reason::PAUSED)));
}

#[test]
fn deployment_that_is_paused_after_it_has_rolled_out_goes_on() {
    let paused = |status: Value| deployment(json!({"spec": {"paused": true}, "status": status}));
    assert!(is_complete(&of(&rollout(5), &paused(json!({})), &pods(5))), "all of it runs");
    // The controller has not seen the pause yet.
    let seen = of(&rollout(5), &paused(json!({"observedGeneration": 2})), &pods(5));
    assert_eq!((is_complete(&seen), code(&seen)), (false, None));
    let mut pods = pods(5);
    pods[0] = pod("a", 5, json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    let seen = of(&rollout(5), &paused(json!({"availableReplicas": 2})), &pods);
    assert_eq!((is_complete(&seen), code(&seen)), (false, None), "a pod that is not ready for a moment");
}

#[test]
fn update_strategy_that_stops_the_rollout_is_named_at_once() {
    let rollout = samples::rollout_of(crate::workload::WorkloadKind::StatefulSet, 5);
    let set = |strategy: Value, updated: i32| {
        let set = samples::stateful_set(json!({
            "spec": {"updateStrategy": strategy},
            "status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3,
                       "availableReplicas": 3, "currentRevision": "api-1", "updateRevision": "api-2"},
        }));
        of(&rollout, &stamped(set, &rollout), &pods(5)[..usize::try_from(updated).unwrap()])
    };
    let everything = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}});
    for (strategy, word) in [(json!({"type": "OnDelete"}), "OnDelete"), (everything, "partition 3")] {
        let seen = set(strategy.clone(), 0);
        assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::UNSUPPORTED)));
        assert!(!is_complete(&seen), "no pod runs it");
        let message = seen.failure.unwrap().message;
        assert!(message.contains(word), "{message}");
        assert_eq!(code(&set(strategy, 3)), None, "it has rolled out");
    }
    let daemon_set = samples::rollout_of(crate::workload::WorkloadKind::DaemonSet, 5);
    let object = samples::daemon_set(json!({
        "spec": {"updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": 3, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                   "updatedNumberScheduled": 1, "numberAvailable": 3, "numberReady": 3, "numberMisscheduled": 0},
    }));
    let seen = of(&daemon_set, &stamped(object, &daemon_set), &pods(5)[..1]);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::UNSUPPORTED)));
}

#[test]
fn newer_revision_is_recognised_by_its_stamp() {
    let object = stamped(samples::deployment(json!({"status": {"observedGeneration": 3}})), &rollout(6));
    let seen = of(&rollout(5), &object, &pods(6));
    assert_eq!(seen.deploy, Some(rollout(6).id));
    assert!(!is_complete(&seen));
    assert_eq!(seen.failure, None);
}

#[test]
fn another_manager_is_named() {
    let owner = json!([
        {"manager": "rollhook", "operation": "Update", "time": "2026-01-01T00:00:00Z",
         "fieldsV1": {"f:metadata": {"f:annotations": {"f:rollhook.dev/revision": {}}}}},
        {"manager": "argocd-controller", "operation": "Apply", "time": "2026-01-01T00:01:00Z",
         "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}}}}},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
         "time": "2026-01-01T00:02:00Z", "fieldsV1": {}},
    ]);
    let object = samples::deployment(merged(
        serde_json::to_value(match deployment(json!({"metadata": {"managedFields": owner}})) {
            Object::Deployment(object) => object,
            Object::StatefulSet(_) | Object::DaemonSet(_) | Object::CronJob(_) => unreachable!(),
        })
        .unwrap(),
        json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v4"}]}}}}),
    ));
    let seen = of(&rollout(5), &object, &pods(5));
    assert!(!is_complete(&seen));
    assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::REVERTED)));
    let message = seen.failure.unwrap().message;
    for part in
        ["\"argocd-controller\"", "registry.example.com/api:v4", "registry.example.com/api:v5", "ignoreDifferences"]
    {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn removed_stamp_is_reverted() {
    for strip in
        [json!({"metadata": {"annotations": null}}), json!({"spec": {"template": {"metadata": {"annotations": null}}}})]
    {
        let Object::Deployment(object) = deployment(json!({})) else { panic!("no Deployment") };
        let object = samples::deployment(merged(serde_json::to_value(object).unwrap(), strip));
        let seen = of(&rollout(5), &object, &pods(5));
        assert!(!is_complete(&seen));
        assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::REVERTED)));
    }
}

#[test]
fn an_image_rewritten_at_admission_is_still_ours() {
    let ours = json!([{"manager": "rollhook", "operation": "Update", "time": "2026-01-01T00:00:00Z",
        "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}}}}}]);
    let Object::Deployment(object) = deployment(json!({"metadata": {"managedFields": ours}})) else { panic!() };
    let mirrored = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "mirror.example.com/api:v5"}]}}}});
    let object = samples::deployment(merged(serde_json::to_value(object).unwrap(), mirrored));
    assert!(is_complete(&of(&rollout(5), &object, &pods(5))));
}

#[test]
fn adopted_workload_is_observed_as_it_is() {
    let mut adopted = rollout(1);
    adopted.adopted = true;
    adopted.image = "docker.io/library/nginx:latest".parse().unwrap();
    let object = |image: &str| {
        let status = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
        let containers = json!([{"name": "app", "image": image}]);
        samples::deployment(json!({"status": status, "spec": {"template": {"spec": {"containers": containers}}}}))
    };
    let unstamped: Vec<Pod> =
        ["a", "b", "c"].map(|name| pod(name, 9, json!({"metadata": {"annotations": null}}))).into();
    let seen = of(&adopted, &object("nginx"), &unstamped);
    assert!(is_complete(&seen), "{seen:?}");
    assert_eq!(seen.deploy, None);
    let seen = of(&adopted, &object("nginx:1.27"), &unstamped);
    assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::REVERTED)));
}

#[test]
fn daemon_set_is_complete_once_its_old_pods_are_gone() {
    let done = json!({"status": {"observedGeneration": 3, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2, "numberMisscheduled": 0}});
    let rollout = samples::rollout_of(crate::workload::WorkloadKind::DaemonSet, 5);
    let object = stamped(samples::daemon_set(done), &rollout);
    let new = [pod("a", 5, json!({})), pod("b", 5, json!({}))];
    assert!(is_complete(&of(&rollout, &object, &new)));
    let with_old = [new[0].clone(), new[1].clone(), pod("c", 4, json!({}))];
    assert!(!is_complete(&of(&rollout, &object, &with_old)));
}

#[test]
fn cron_job_is_complete_once_read_back() {
    let rollout = samples::rollout_of(crate::workload::WorkloadKind::CronJob, 5);
    let seen = of(&rollout, &stamped(samples::cron_job(json!({})), &rollout), &[]);
    assert_eq!(
        seen.phase,
        Phase::Complete { digest: None, note: Some("takes effect at the next schedule".to_owned()) }
    );
    assert!(!is_complete(&of(&rollout, &samples::cron_job(json!({})), &[])));
}

#[test]
fn deleted_workload_is_a_final_failure() {
    let seen = of_missing(&rollout(5));
    assert_eq!(code(&seen), Some((RolloutFailureKind::Final, Reason::TARGET_MISSING)));
}

#[test]
fn stop_names_the_pods_that_it_waits_for() {
    let stop = Rollout { scale: Scale::Stop, ..rollout(5) };
    let resting = || deployment(json!({"spec": {"replicas": 0}, "status": {"replicas": 0, "updatedReplicas": 0}}));
    let message = |names: &[&str]| {
        let pods: Vec<Pod> = names.iter().map(|name| pod(name, 4, json!({}))).collect();
        of(&stop, &resting(), &pods).message
    };
    assert_eq!(message(&["a"]), "1 pod has not ended yet: a");
    assert_eq!(message(&["a", "b", "c"]), "3 pods have not ended yet: a, b, c");
    assert_eq!(message(&["a", "b", "c", "d", "e"]), "5 pods have not ended yet: a, b, c and 2 more");
    let unread = PodList { counted: Counted { old: 2, ..Counted::default() }, ..PodList::default() };
    let seen = super::of(&stop, &resting(), &unread, Timestamp::now());
    assert_eq!(seen.message, "2 pods have not ended yet");
}

#[test]
fn stop_without_a_pod_that_is_left_says_what_else_it_waits_for() {
    let stop = Rollout { scale: Scale::Stop, ..rollout(5) };
    let resting = deployment(json!({"spec": {"replicas": 0}, "status": {"replicas": 1, "updatedReplicas": 0}}));
    let seen = of(&stop, &resting, &[]);
    assert!(!is_complete(&seen), "{seen:?}");
    assert_eq!(seen.message, "0 of 0 new pods are ready, 1 old one is left");
    let part = PodList { is_part: true, ..PodList::default() };
    let rests = deployment(json!({"spec": {"replicas": 0}, "status": {"replicas": 0, "updatedReplicas": 0}}));
    let seen = super::of(&stop, &rests, &part, Timestamp::now());
    assert!(!is_complete(&seen) && seen.message.contains("not all pods were read"), "{seen:?}");
}
