//! Deploys that fail on a real Kubernetes: what is told, and how it is put right.

use std::{thread, time::Duration};

use rollhook_testing::{
    beds::{Bed, FIRST},
    server, test_name, until,
};
use serde_json::{Value, json};

#[test]
fn a_missing_image_is_told_and_the_app_put_right_without_losing_a_pod() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "replicas": 4 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let available = bed.kubectl.watch("deployment/api", ".status.availableReplicas");

    let missing = "r.example.com/api:missing";
    let failed = bed.fails(&app, missing);
    assert_eq!(failed["reason"], "ImagePullBackOff", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("container app of pod api-"), "{failed}");
    let entry = bed.entry(&app, 2);
    assert_eq!((&entry["status"], &entry["evidence"]["container"]), (&json!("failed"), &json!("app")), "{entry}");
    assert!(entry["evidence"]["pod"].as_str().unwrap().starts_with("api-"), "{entry}");
    assert!(entry["evidence"]["state"].as_str().unwrap().contains("ImagePullBackOff"), "{entry}");
    assert!(!entry["evidence"]["events"].as_array().unwrap().is_empty(), "{entry}");

    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["image"]), (&json!("succeeded"), &json!(FIRST)), "{restored}");
    assert_eq!((&restored["current"], &restored["from"]["revision"]), (&json!(true), &json!(1)), "{restored}");
    assert_eq!(bed.kubectl.image("deployment/api"), FIRST);

    // The same image once more is a deploy of its own, and goes the same way.
    assert_eq!(bed.fails(&app, missing)["revision"], 4);
    bed.await_revision(&app, 5);
    let (posted, restore) = ("webhook ci failed", "rollback auto succeeded");
    let outline = bed.outline(&app);
    assert_eq!(
        outline[1..],
        [format!("2 {posted}"), format!("3 {restore}"), format!("4 {posted}"), format!("5 {restore}")]
    );
    assert!(outline[0].starts_with("1 manual "), "{outline:?}");
    assert_eq!(bed.kubectl.running("api"), [FIRST; 4]);
    let seen = available.finish();
    assert!(seen.len() > 1 && seen.iter().all(|count| count.parse::<u32>().unwrap() >= 4), "{seen:?}");
}

#[test]
fn each_failure_has_its_own_reason() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    let fails = |word: &str, policy: Value| {
        bed.kubectl.make("Deployment", word, FIRST, json!({}));
        let app = bed.adopt("Deployment", word, policy);
        let failed = bed.fails(&app, &format!("r.example.com/api:{word}"));
        // It is left as it is: the old pod serves on.
        assert_eq!(bed.kubectl.running(word), [FIRST], "{word}");
        let message = failed["message"].as_str().unwrap().to_owned();
        (failed["reason"].as_str().unwrap().to_owned(), message, bed.entry(&app, 2)["evidence"].clone())
    };
    let leave = json!({ "settle": "0s", "on_failure": "leave" });
    let short = json!({ "settle": "0s", "on_failure": "leave", "rollout_deadline": "8s" });
    let [crash, badconfig, hang] = thread::scope(|scope| {
        [("crash", &leave), ("badconfig", &leave), ("hang", &short)]
            .map(|(word, policy)| scope.spawn(move || fails(word, policy.clone())))
            .map(|thread| thread.join().unwrap())
    });
    let (reason, message, evidence) = crash;
    assert_eq!((reason.as_str(), &evidence["container"]), ("CrashLoopBackOff", &json!("app")), "{message}");
    assert!(message.contains("exited with code 1, 3 restarts"), "{message}");
    let (reason, message, evidence) = badconfig;
    assert_eq!((reason.as_str(), &evidence["container"]), ("CreateContainerConfigError", &json!("app")), "{message}");
    assert!(message.contains("secret \"settings\" not found"), "{message}");
    let (reason, message, _) = hang;
    assert_eq!(reason, "rollout-deadline-exceeded", "{message}");
    assert!(message.contains("0 of 1 new pods are ready"), "{message}");
}

#[test]
fn failed_restore_is_not_repeated() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    let spec = |image| json!({ "template": { "spec": { "initContainers": [{ "name": "setup", "image": image }] } } });
    bed.kubectl.make("Deployment", "api", FIRST, spec("r.example.com/setup:v1"));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    // Somebody breaks the configuration, which no image of the app's own can help.
    let broken = json!({ "spec": spec("r.example.com/setup:initcrash") }).to_string();
    bed.kubectl.run(&["patch", "deployment/api", "--patch", &broken]);
    let failed = bed.fails(&app, "r.example.com/api:v2");
    assert_eq!(failed["reason"], "CrashLoopBackOff", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("container setup of pod api-"), "{failed}");
    assert_eq!(bed.entry(&app, 2)["evidence"]["container"], "setup");
    assert_eq!(bed.await_revision(&app, 3)["reason"], "CrashLoopBackOff");
    // Time for another, were there to be one.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(bed.outline(&app)[1..], ["2 webhook ci failed", "3 rollback auto failed"]);
    assert_eq!(bed.kubectl.running("api"), [FIRST], "the pod of before the change");
}

#[test]
fn a_container_that_dies_after_it_was_ready_is_no_success() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({}));
    let failed = bed.fails(&app, "r.example.com/api:dies");
    assert_eq!(failed["reason"], "CrashLoopBackOff", "{failed}");
    assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
}

#[test]
fn a_container_that_is_ready_between_its_ends_is_no_success() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    // It counts as complete 3 s after its first start, and lives for 5 s: longer than it settles, but for the first time.
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "minReadySeconds": 3 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "4s" }));
    let failed = bed.fails(&app, "r.example.com/api:relapse");
    assert_eq!(failed["reason"], "containers-restarting", "{failed}");
    assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
}

#[test]
fn a_version_that_is_down_is_put_back_before_the_deadline_where_the_old_one_had_to_stop() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    let rolling = json!({ "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } });
    let kinds = [
        ("Deployment", "recreated", json!({ "strategy": { "type": "Recreate", "rollingUpdate": null } })),
        ("Deployment", "rolled", rolling),
        ("StatefulSet", "one", json!({ "replicas": 1 })),
    ];
    for (kind, name, spec) in kinds {
        bed.kubectl.make(kind, name, FIRST, spec);
        let app = bed.adopt(kind, name, json!({ "settle": "0s", "patience": "10m", "ready_within": "4s" }));
        let failed = bed.fails(&app, "r.example.com/api:hang");
        assert_eq!(failed["reason"], "not-ready", "{failed}");
        assert!(failed["message"].as_str().unwrap().contains("not ready within 4 s"), "{failed}");
        assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded", "{name}");
        // One end is enough, whatever the patience is.
        assert_eq!(bed.fails(&app, "r.example.com/api:crash")["reason"], "CrashLoopBackOff", "{name}");
        assert_eq!(bed.await_revision(&app, 5)["status"], "succeeded", "{name}");
    }
}

#[test]
fn a_manager_that_takes_the_image_back_is_named() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let accepted = bed.post(&app, "r.example.com/api:gate").header("idempotency-key", "run-1");
    accepted.expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/api").ends_with(":gate"));
    let image = format!("app={FIRST}");
    bed.kubectl.run(&["set", "image", "deployment/api", &image, "--field-manager", "argocd-controller"]);
    let reply = accepted.header("prefer", "wait=50").expect(424);
    let failed = reply.json()["deploy"].clone();
    assert_eq!(failed["reason"], "workload-changed-by-another", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("\"argocd-controller\"") && message.contains("ignoreDifferences"), "{message}");
    assert!(message.contains("nothing is restored"), "{message}");
    // The change stays, the app is shown with it, and a rollback is the way on.
    until("the drift is shown", || bed.manage("GET", &app.path).expect(200).json()["drift"].is_object());
    let drift = bed.manage("GET", &app.path).expect(200).json()["drift"].clone();
    assert!(drift["message"].as_str().unwrap().contains("\"argocd-controller\""), "{drift}");
    assert_eq!((drift["image"].as_str(), bed.kubectl.image("deployment/api").as_str()), (Some(FIRST), FIRST));
    assert_eq!(bed.outline(&app)[1..], ["2 webhook ci failed"]);
    assert_eq!(bed.roll_back(&app)["to"]["revision"], 1);
    assert_eq!(bed.manage("GET", &app.path).expect(200).json()["drift"], Value::Null);
}

#[test]
fn hotfix_by_kubectl_during_a_rollout_is_not_overwritten() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    bed.post(&app, "r.example.com/api:gate").expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/api").ends_with(":gate"));
    let hotfix = "r.example.com/api:hotfix";
    bed.kubectl.run(&["set", "image", "deployment/api", &format!("app={hotfix}")]);
    let failed = bed.ended(&app, 2);
    assert_eq!(failed["reason"], "workload-changed-by-another", "{failed}");
    until("the hotfix runs", || bed.kubectl.running("api") == [hotfix]);
    // Time for a restore, were there to be one.
    thread::sleep(Duration::from_secs(2));
    assert_eq!((bed.kubectl.image("deployment/api").as_str(), bed.history(&app).len()), (hotfix, 2));
    let told = bed.cli().run("app show api").ok().out;
    assert!(told.contains("kubectl-set") && told.contains("hotfix"), "{told}");
    // The next deploy replaces it.
    bed.succeeds(&app, "r.example.com/api:v3");
}

#[test]
fn restore_keeps_the_pods_of_a_deploy_that_had_no_quota() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "replicas": 3, "progressDeadlineSeconds": 4 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let uids = || -> Vec<Value> { bed.kubectl.pods("api").iter().map(|pod| pod["metadata"]["uid"].clone()).collect() };
    let before = uids();
    bed.kubectl.create(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" }, "spec": { "hard": { "pods": "3" } },
    }));
    // A quota counts a moment after it was made.
    thread::sleep(Duration::from_secs(1));
    let failed = bed.fails(&app, "r.example.com/api:v2");
    assert!(failed["message"].as_str().unwrap().contains("exceeded quota"), "{failed}");
    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    assert!(restored.to_string().contains("were kept"), "{restored}");
    let after = uids();
    assert!(before.len() == 3 && before.iter().all(|uid| after.contains(uid)), "{before:?} {after:?}");
    // What a chart is given then is what the workload has, and not the same bits by their digest.
    assert_eq!(bed.cli().run("app image api").ok().out.trim(), bed.kubectl.image("deployment/api"));
}
