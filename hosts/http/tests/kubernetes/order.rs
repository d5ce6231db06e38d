//! The order of deploys on a real Kubernetes, whoever calls at the same time and whatever goes away meanwhile.

use std::{thread, time::Duration};

use rollhook_testing::{
    beds::{Bed, FIRST, is_over},
    server, test_name, until, usually_or_long,
};
use serde_json::{Value, json};

#[test]
fn fifty_calls_at_once_and_the_highest_revision_runs() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "replicas": 2 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    let stamps = bed.kubectl.watch("deployment/api", r".metadata.annotations.rollhook\.dev/revision");
    let images: Vec<String> = (0..50).map(|number| format!("r.example.com/api:n{number}")).collect();
    let answers: Vec<Value> = thread::scope(|scope| {
        let calls: Vec<_> = images.iter().map(|image| bed.post(&app, image)).collect();
        let calls: Vec<_> = calls.into_iter().map(|call| scope.spawn(move || call.expect(202).json())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut revisions: Vec<u64> = answers.iter().map(|answer| answer["revision"].as_u64().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=51).collect::<Vec<_>>());

    let last = bed.ended(&app, 51);
    assert_eq!((&last["status"], &last["current"]), (&json!("succeeded"), &json!(true)), "{last}");
    let history = bed.history(&app);
    assert_eq!(history.len(), 51);
    for answer in &answers {
        let entry = history.iter().find(|entry| entry["revision"] == answer["revision"]).unwrap();
        assert_eq!(entry["image"], answer["image"]);
        assert!(entry["status"] == "superseded" || entry["status"] == "succeeded", "{entry}");
    }
    let image = last["image"].as_str().unwrap();
    assert_eq!(bed.kubectl.image("deployment/api"), image);
    assert_eq!(bed.kubectl.running("api"), [image, image]);
    assert_sorted(&stamps.finish(), 51);
}

/// Never backwards, up to this revision.
fn assert_sorted(stamps: &[String], last: u64) {
    let number = |stamp: &String| stamp.rsplit('/').next().unwrap().parse().unwrap_or(0);
    let numbers: Vec<u64> = stamps.iter().map(number).collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&last), "{numbers:?}");
}

#[test]
fn a_killed_server_rolls_nothing_out_twice() {
    let Some(mut bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "2s" }));
    let before = bed.kubectl.generation("deployment/api");

    // Accepted only just.
    bed.post(&app, "r.example.com/api:v2").expect(202);
    bed.kill_and_restart();
    assert_eq!(bed.ended(&app, 2)["status"], "succeeded");
    assert_eq!(bed.kubectl.generation("deployment/api"), before + 1);

    // In the middle of a rollout that cannot end yet.
    let gate = "r.example.com/api:gate";
    let call = bed.post(&app, gate).header("idempotency-key", "run-1");
    call.expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/api") == gate);
    bed.kill_and_restart();
    bed.await_rollout(&app, 3);
    until("the new pod runs, unready", || bed.kubectl.pods("api").len() == 2);
    bed.kubectl.open_gate("api");
    assert_eq!(bed.ended(&app, 3)["status"], "succeeded");
    assert_eq!(bed.kubectl.running("api"), [gate]);
    assert_eq!(bed.kubectl.generation("deployment/api"), before + 2);

    // While the new pods settle.
    bed.post(&app, "r.example.com/api:v4").expect(202);
    until("the new pods run", || bed.kubectl.running("api") == ["r.example.com/api:v4"]);
    bed.kill_and_restart();
    assert_eq!(bed.ended(&app, 4)["status"], "succeeded");
    assert_eq!(bed.kubectl.generation("deployment/api"), before + 3);

    // The call of before still is the same call, to the server of now.
    let again = bed.post(&app, gate).header("idempotency-key", "run-1").expect(202);
    assert_eq!((&again.json()["revision"], again.header("idempotent-replayed")), (&json!(3), Some("true")));
    assert_eq!(bed.history(&app).len(), 4);
}

#[test]
fn a_server_that_was_paused_takes_nothing_backwards() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let stamps = bed.kubectl.watch("deployment/api", r".metadata.annotations.rollhook\.dev/revision");
    bed.post(&app, "r.example.com/api:gate").expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/api").ends_with(":gate"));
    // Paused, it holds its connections, its claim, and what it believed.
    bed.server().signal("STOP");
    let v3 = "r.example.com/api:v3";
    bed.direct_cli().run(&format!("app deploy api --image {v3}")).ok();
    assert_eq!(bed.kubectl.running("api"), [v3]);
    let generation = bed.kubectl.generation("deployment/api");
    bed.server().signal("CONT");
    // It is driving again once it has brought a deploy to its end.
    assert_eq!(bed.ended(&app, 2)["status"], "superseded");
    assert_eq!(bed.kubectl.generation("deployment/api"), generation);
    let v4 = "r.example.com/api:v4";
    assert_eq!(bed.succeeds(&app, v4), 4);
    assert_eq!(bed.kubectl.running("api"), [v4]);
    assert_eq!(bed.kubectl.generation("deployment/api"), generation + 1);
    assert_sorted(&stamps.finish(), 4);
}

#[test]
fn a_failed_deploy_is_put_right_once_though_the_server_is_killed_meanwhile() {
    let Some(mut bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    bed.post(&app, "r.example.com/api:crash").expect(202);
    until("it has failed", || is_over(&bed.entry(&app, 2)));
    bed.kill_and_restart();
    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    assert_eq!(bed.history(&app).len(), 3);
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
}

#[test]
fn calls_are_accepted_while_the_cluster_is_away_and_deployed_after() {
    let Some(mut bed) = Bed::own_cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s", "rollout_deadline": "90s" }));
    bed.kubectl.make("Deployment", "busy", FIRST, json!({}));
    let busy = bed.adopt("Deployment", "busy", json!({ "settle": "1s", "rollout_deadline": "90s" }));
    // One rollout is under way, and a long outage lasts longer than its deadline. Afterwards, controllers need up to
    // half a minute to notice that the API server is back.
    bed.post(&busy, "r.example.com/api:gate").expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/busy").ends_with(":gate"));
    until("the new pod runs, unready", || bed.kubectl.pods("busy").len() == 2);

    bed.api_server("stop");
    let away = Duration::from_secs(usually_or_long(20, 120));
    for tag in ["v2", "v3"] {
        bed.post(&app, &format!("r.example.com/api:{tag}")).expect(202);
    }
    thread::sleep(away / 2);
    let call = |bed: &Bed| bed.post(&app, "r.example.com/api:v4").header("idempotency-key", "run-1");
    call(&bed).header("prefer", "wait=2").expect(202);
    bed.server().call("GET", "/healthz").expect(200);
    // Nor does a server need the cluster to start.
    bed.kill_and_restart();
    thread::sleep(away / 2);
    assert!(!is_over(&bed.entry(&app, 4)) && !is_over(&bed.entry(&busy, 2)), "time without a cluster does not count");
    let call = call(&bed);
    let waiting = thread::spawn(move || call.repeat());
    bed.api_server("start");
    bed.kubectl.open_gate("busy");
    assert_eq!(waiting.join().unwrap().status, 200);
    assert_eq!(bed.kubectl.running("api"), ["r.example.com/api:v4"]);
    assert_eq!(bed.ended(&busy, 2)["status"], "succeeded");
    for revision in [2, 3] {
        assert_eq!(bed.ended(&app, revision)["status"], "superseded");
    }
    assert_eq!(bed.history(&app).len(), 4);
}
