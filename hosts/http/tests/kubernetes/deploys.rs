//! Deploys to a real Kubernetes: from CI's call to what the cluster runs, and back.

use std::thread;

use rollhook_testing::{
    App,
    beds::{Bed, FIRST},
    free_address, server, test_name, until,
};
use serde_json::json;

#[test]
fn an_app_without_a_workload_is_made_deployed_and_rolled_back() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    let cli = bed.cli();
    let kubectl = &bed.kubectl;
    cli.run(&format!("app create api --image {FIRST} --replicas 2 --settle 1s --wait")).ok();
    assert_eq!(kubectl.image("deployment/api"), FIRST);
    assert_eq!(kubectl.running("api"), [FIRST, FIRST]);

    let enabled = cli.run("app webhook enable api --output json").ok().json();
    let app = App::new(&kubectl.namespace, "api", enabled["token"].as_str().unwrap().to_owned());
    assert!(enabled["url"].as_str().unwrap().ends_with(&app.hook), "{enabled}");
    let v2 = "r.example.com/api:v2";
    let answer = bed.post(&app, v2).header("prefer", "wait=50").expect(200).json();
    assert_eq!((&answer["revision"], &answer["status"]), (&json!(2), &json!("succeeded")));
    let deployment = kubectl.get("deployment/api");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], v2);
    let cause = deployment["metadata"]["annotations"]["kubernetes.io/change-cause"].as_str().unwrap();
    assert_eq!(cause, "rollhook revision 2: webhook deploy by ci, commit v2");
    assert_eq!(kubectl.running("api"), [v2, v2]);
    let stamp = bed.stamp(&app, 2);
    for pod in kubectl.pods("api") {
        assert_eq!(pod["metadata"]["annotations"]["rollhook.dev/revision"], stamp);
    }
    let history = cli.run("app history api").ok().out;
    let lines: Vec<&str> = history.lines().collect();
    assert!(lines[1].starts_with("2 ") && lines[1].contains(v2) && lines[1].ends_with("(current)"), "{history}");
    assert!(lines[2].starts_with("1 ") && !lines[2].contains("current"), "{history}");

    let told = cli.run("app rollback api --wait").ok().out;
    assert!(told.contains(&format!("to revision 1 ({FIRST}): new revision 3")), "{told}");
    assert_eq!(kubectl.image("deployment/api"), FIRST);
    assert_eq!(kubectl.running("api"), [FIRST, FIRST]);
    let causes = kubectl.run(&["rollout", "history", "deployment/api"]);
    assert!(causes.contains("rollhook revision 3: rollback to revision 1 by "), "{causes}");
    assert_eq!(bed.entry(&app, 3)["current"], true);
}

#[test]
fn no_200_while_the_new_version_is_not_ready() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let gate = "r.example.com/api:gate";
    let call = bed.post(&app, gate).header("idempotency-key", "run-1");
    call.clone().header("prefer", "wait=3").expect(202);
    until("the new pod runs, unready", || bed.kubectl.pods("api").len() == 2);
    // The old pod is healthy all the while, and that counts for nothing.
    let again = call.clone().header("prefer", "wait=5").expect(202);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json()["status"], "rolling_out");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
    let waiting = thread::spawn({
        let call = call.clone().header("prefer", "wait=50");
        move || call.send()
    });
    call.clone().header("prefer", "wait=2").expect(202);
    assert!(!waiting.is_finished());
    bed.kubectl.open_gate("api");
    assert_eq!(waiting.join().unwrap().status, 200);
    assert_eq!(bed.kubectl.running("api"), [gate]);
}

#[test]
fn a_version_that_never_gets_ready_fails_though_the_old_one_is_healthy() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "replicas": 2 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s", "rollout_deadline": "8s" }));
    let available = bed.kubectl.watch("deployment/api", ".status.availableReplicas");
    let failed = bed.fails(&app, "r.example.com/api:gate");
    assert_eq!(failed["reason"], "rollout-deadline-exceeded", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("0 of 2 new pods are ready"), "{failed}");
    assert_eq!(bed.await_revision(&app, 3)["image"], FIRST);
    until("only the old version runs", || bed.kubectl.running("api") == [FIRST, FIRST]);
    let seen = available.finish();
    assert!(seen.len() > 1 && seen.iter().all(|count| count.parse::<u32>().unwrap() >= 2), "{seen:?}");
}

#[test]
fn a_stateful_set_is_deployed_and_freed_from_a_broken_pod() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("StatefulSet", "db", FIRST, json!({}));
    let app = bed.adopt("StatefulSet", "db", json!({ "settle": "1s" }));
    let v2 = "r.example.com/api:v2";
    bed.succeeds(&app, v2);
    assert_eq!(bed.kubectl.image("statefulset/db"), v2);
    assert_eq!(bed.kubectl.running("db"), [v2, v2]);
    // Its controller would wait for the broken pod for ever, whatever is ordered after it.
    assert_eq!(bed.fails(&app, "r.example.com/api:crash")["reason"], "CrashLoopBackOff");
    let restored = bed.await_revision(&app, 4);
    assert_eq!((&restored["status"], &restored["image"]), (&json!("succeeded"), &json!(v2)), "{restored}");
    assert_eq!(bed.kubectl.running("db"), [v2, v2]);
}

#[test]
fn a_daemon_set_is_deployed() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("DaemonSet", "agent", FIRST, json!({}));
    let app = bed.adopt("DaemonSet", "agent", json!({ "settle": "1s" }));
    let v2 = "r.example.com/api:v2";
    bed.succeeds(&app, v2);
    assert_eq!(bed.kubectl.image("daemonset/agent"), v2);
    assert_eq!(bed.kubectl.running("agent"), [v2, v2], "one on each of the two nodes");
    assert_eq!(bed.roll_back(&app)["to"]["revision"], 1);
    assert_eq!(bed.kubectl.running("agent"), [FIRST, FIRST]);
}

#[test]
fn a_cron_job_is_deployed_for_its_next_run() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("CronJob", "nightly", FIRST, json!({}));
    let app = bed.adopt("CronJob", "nightly", json!({ "settle": "0s" }));
    let v2 = "r.example.com/api:v2";
    let answer = bed.deploy(&app, v2);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["message"], "takes effect at the next schedule");
    assert_eq!(bed.kubectl.image("cronjob/nightly"), v2);
    bed.kubectl.run(&["create", "job", "now", "--from", "cronjob/nightly"]);
    let annotations = bed.kubectl.get("job/now")["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(annotations["rollhook.dev/revision"], bed.stamp(&app, 2));
    assert_eq!(bed.roll_back(&app)["to"]["revision"], 1);
    assert_eq!(bed.kubectl.image("cronjob/nightly"), FIRST);
}

#[test]
fn a_deleted_app_leaves_its_workload_and_another_takes_it_over_by_name_only() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let policy = json!({ "settle": "0s" });
    let app = bed.adopt("Deployment", "api", policy.clone());
    let call = bed.post(&app, "r.example.com/api:gate").header("prefer", "wait=50");
    let waiting = thread::spawn(move || call.send());
    until("the new image is there", || bed.kubectl.image("deployment/api").ends_with(":gate"));
    let before = bed.kubectl.get("deployment/api")["metadata"].clone();
    bed.manage("DELETE", &app.path).expect(204);
    assert_eq!(waiting.join().unwrap().problem(), "deploy-failed");
    bed.post(&app, FIRST).expect(401);

    let create = |take_over: bool| {
        let create = bed.create("api", json!({ "policy": policy, "take_over": take_over }));
        bed.manage("POST", "/api/v1/apps").json(&create)
    };
    assert_eq!(create(false).expect(409).problem(), "workload-taken");
    let after = bed.kubectl.get("deployment/api")["metadata"].clone();
    let key = "rollhook.dev/revision";
    assert_eq!(after["generation"], before["generation"]);
    assert_eq!(after["annotations"][key], before["annotations"][key]);

    bed.kubectl.open_gate("api");
    let again = bed.register("api", json!({ "policy": policy, "take_over": true }));
    assert_ne!(again.token, app.token);
    let v2 = "r.example.com/api:v2";
    assert_eq!(bed.succeeds(&again, v2), 2);
    assert_eq!(bed.kubectl.get("deployment/api")["metadata"]["annotations"][key], bed.stamp(&again, 2));
    assert_eq!(bed.kubectl.running("api"), [v2]);
}

#[test]
fn store_of_a_cluster_is_refused_to_another_driver_until_it_is_rebound() {
    let Some(mut bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({}));
    // The mistake: the same store, and the default driver.
    let simulated = bed.server().recipe().driver("simulated");
    let second = simulated.clone().at(free_address()).server_command().output().unwrap();
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && told.contains("another server works on"), "{told}");
    bed.stop();
    let mistaken = simulated.server_command().output().unwrap();
    let told = String::from_utf8_lossy(&mistaken.stderr).into_owned();
    let uid = bed.kubectl.get("namespace/kube-system")["metadata"]["uid"].as_str().unwrap().to_owned();
    for word in [&format!("\"kubernetes {uid}\""), "\"simulated\"", "rollhook-server store rebind"] {
        assert!(!mistaken.status.success() && told.contains(word), "{told}");
    }
    // A server that was killed counts as alive until its heartbeat has expired.
    let rebound = until("the store is rebound", || {
        let rebound = simulated.server_command().args(["store", "rebind"]).output().unwrap();
        rebound.status.success().then_some(rebound)
    });
    let said = String::from_utf8_lossy(&rebound.stdout).into_owned();
    assert_eq!(
        said.trim(),
        format!("the store is bound to simulated, and no longer to kubernetes {uid}"),
        "{rebound:?}"
    );
    let server = simulated.run();
    assert_eq!(server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json()["deploys"][0]["revision"], 1);
}
