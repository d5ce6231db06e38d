//! What becomes of a container after its deploy.

use std::{thread, time::Duration};

use rollhook_testing::{server, test_name, until};
use serde_json::json;

use crate::bench::Bench;

const DEGRADED: &str = "rollhook_apps_degraded";

#[test]
fn container_that_exits_every_14_s_succeeds_and_is_shown_as_degraded_until_the_next_deploy() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    // It settles beside the old one, and again in its place.
    let app = bench.register(&name, &json!({ "policy": { "settle": "2s" } }));
    let deployed = bench.succeeds(&app, "app:loops");

    until("it is degraded", || bench.server.counted(DEGRADED) == 1);
    let shown = bench.server.manage("GET", &app.path).expect(200).json();
    let restarts = bench.inspect(&name).unwrap()["RestartCount"].as_u64().unwrap();
    assert!(restarts <= 2, "at its second end: {restarts} restarts, {shown}");
    assert_eq!((&shown["current"]["revision"], &shown["drift"]), (&deployed["revision"], &json!(null)), "{shown}");
    assert!(shown["degraded"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}");
    let listed = bench.cli().run("app list").ok().out;
    assert!(listed.lines().any(|line| line.contains(&name) && line.contains("degraded: ")), "{listed}");
    assert!(bench.cli().run(&format!("app show {name}")).ok().out.contains("Degraded "));
    let log = bench.server.log();
    assert_eq!(
        log.lines().filter(|line| line.contains("is degraded: ") && line.contains(&name)).count(),
        1,
        "one line"
    );
    assert_eq!(bench.entry(&app, 2)["status"], "succeeded", "the history says what was judged");
    assert!(bench.inspect(&name).is_some(), "nothing is put right by itself");

    bench.succeeds(&app, "app:v2");
    until("the next version runs well", || bench.server.counted(DEGRADED) == 0);
}

#[test]
fn container_that_ended_for_good_is_degraded_until_it_is_started_again() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "no"], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    bench.docker.run(&["kill", &name]);
    until("it is degraded", || bench.server.counted(DEGRADED) == 1);
    let shown = bench.server.manage("GET", &app.path).expect(200).json();
    assert_eq!((&shown["degraded"]["reason"], &shown["drift"]), (&json!("container-exited"), &json!(null)), "{shown}");
    bench.docker.run(&["start", &name]);
    until("it has recovered", || bench.server.counted(DEGRADED) == 0);
}

#[test]
fn deploy_that_failed_by_its_readiness_path_has_not_recovered_by_running() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let template = json!({ "port": 8080, "network": bench.docker.network(), "readiness_path": "/no" });
    let policy = json!({ "settle": "1s", "rollout_deadline": "8s" });
    let app = bench.server.register(&name, &json!({ "image": "app:v1", "template": template, "policy": policy }));
    assert_eq!(bench.ended(&app, 1)["status"], "failed");
    // It runs and is healthy, for longer than it would have to settle.
    for _ in 0..6 {
        bench.server.manage("GET", &app.path).expect(200);
        thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(bench.entry(&app, 1)["recovered_at"], json!(null));
    // It has not got the app's name.
    let made = bench.containers(&name);
    bench.docker.run(&["exec", &made[0], "touch", "/www/no"]);
    until("it has recovered", || {
        bench.server.manage("GET", &app.path).expect(200);
        bench.entry(&app, 1)["recovered_at"].is_string()
    });
}
