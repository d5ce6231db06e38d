//! Pods of the version before that are to end and have not ended yet.

use super::*;
use crate::workload::WorkloadKind;

/// A pod that is being deleted, and should have ended by this time.
fn terminating(name: &str, revision: u64, ends_by: &str) -> Pod {
    pod(name, revision, json!({"metadata": {"deletionTimestamp": ends_by}}))
}

#[test]
fn old_pods_that_terminate_are_waited_for_while_they_have_the_time() {
    const LATER: &str = "2026-01-01T01:00:00Z";
    let unstamped = |replica_set: &str| {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "controller": true, "uid": "1"}]);
        let metadata = json!({"deletionTimestamp": LATER, "annotations": null, "ownerReferences": owners});
        pod("x", 4, json!({"metadata": metadata}))
    };
    let over = merged(json!({"status": {"phase": "Succeeded"}}), json!({"metadata": {"deletionTimestamp": LATER}}));
    let one = Some("1 pod of the version before still terminates");
    let cases = [
        ("none terminates", vec![], None),
        ("an hour is left to it", vec![terminating("x", 4, LATER)], one),
        ("its time has just passed", vec![terminating("x", 4, "2026-01-01T00:00:40Z")], one),
        ("its node is away", vec![terminating("x", 4, "2026-01-01T00:00:20Z")], None),
        (
            "two do",
            vec![terminating("x", 4, LATER), terminating("y", 3, LATER)],
            Some("2 pods of the version before still terminate"),
        ),
        ("one of the new version, such as of a drained node", vec![terminating("x", 5, LATER)], None),
        ("it has ended, and a finalizer keeps it", vec![pod("x", 4, over)], None),
        ("from before the first deploy", vec![unstamped("api-7d4b9c")], one),
        ("another Deployment's, which the selector covers", vec![unstamped("api-worker-7d4b9c")], None),
    ];
    for (name, others, leaving) in cases {
        let seen = of(&rollout(5), &deployment(json!({})), &[pods(5), others].concat());
        assert!(is_complete(&seen), "{name}: the new ones are there");
        assert_eq!(seen.leaving.as_deref(), leaving, "{name}");
    }
    let stuck =
        of(&rollout(5), &deployment(json!({})), &[pods(5), vec![terminating("x", 4, "2026-01-01T00:00:20Z")]].concat());
    let Phase::Complete { note, .. } = stuck.phase else { panic!("{stuck:?}") };
    assert_eq!(
        note.as_deref(),
        Some("1 pod of the version before still terminates, long after its time: look at its node")
    );
}

#[test]
fn pods_of_every_kind_are_waited_for_and_jobs_run_on() {
    let owned = |mut pod: Pod, kind: &str| {
        let owner = &mut pod.metadata.owner_references.as_mut().unwrap()[0];
        owner.kind = kind.to_owned();
        pod
    };
    let old = |kind: &str| owned(terminating("x", 4, "2026-01-01T01:00:00Z"), kind);
    let done = json!({"status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                                 "availableReplicas": 3, "currentRevision": "2", "updateRevision": "2"}});
    let nodes = json!({"status": {"observedGeneration": 3, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                                  "updatedNumberScheduled": 3, "numberAvailable": 3}});
    for (kind, object, waits) in [
        (WorkloadKind::StatefulSet, samples::stateful_set(done), true),
        (WorkloadKind::DaemonSet, samples::daemon_set(nodes), true),
        (WorkloadKind::CronJob, samples::cron_job(json!({})), false),
    ] {
        let rollout = samples::rollout_of(kind, 5);
        let all =
            [pods(5).into_iter().map(|pod| owned(pod, kind.as_str())).collect(), vec![old(kind.as_str())]].concat();
        let seen = of(&rollout, &stamped(object, &rollout), &all);
        assert!(is_complete(&seen), "{kind}: {seen:?}");
        assert_eq!(seen.leaving.is_some(), waits, "{kind}");
    }
}

#[test]
fn count_of_the_controller_stands_in_for_pods_that_were_not_read() {
    let object = deployment(json!({"spec": {"replicas": 600}, "status": {
        "replicas": 600, "updatedReplicas": 600, "readyReplicas": 600, "availableReplicas": 600, "terminatingReplicas": 2,
    }}));
    let kept: Vec<Pod> = (0..500).map(|number| pod(&number.to_string(), 5, json!({}))).collect();
    let leaving = |is_part| {
        let counted = Counted { new: 100, ready: 100, ..Counted::default() };
        let list = PodList { kept: kept.clone(), counted, is_part };
        super::super::of(&rollout(5), &object, &list, "2026-01-01T00:01:00Z".parse().unwrap()).leaving
    };
    assert_eq!(leaving(true).as_deref(), Some("2 pods of the version before still terminate"));
    assert_eq!(leaving(false), None, "the pods say that those are of the new version");
}
