//! Release commands: one runs before each rollout, its failure rolls nothing out, and a rollback past it asks first.

use rollhook_testing::{App, Reply, Server, image, server};
use serde_json::{Value, json};

fn set_command(server: &Server, app: &App, words: &[&str]) {
    let patch = json!({ "policy": { "release_command": words } });
    server.manage("PATCH", &app.path).json(&patch).expect(200);
}

/// Returns an entry at its end.
fn ended(server: &Server, app: &App, revision: u64) -> Value {
    let path = format!("{}/deploys/{revision}", app.path);
    server.manage("GET", &path).header("prefer", "wait=50").expect(200).json()
}

fn log(server: &Server, app: &App, call: &str) -> Reply {
    server.manage("GET", &format!("{}/deploys/{call}", app.path)).send()
}

/// Returns the lines of a log without the lengths of its chunks.
fn lines(log: &Reply) -> Vec<String> {
    assert_eq!(log.status, 200, "{}", log.text());
    let is_length = |line: &str| line.bytes().all(|byte| byte.is_ascii_hexdigit());
    log.text().lines().filter(|line| !is_length(line)).map(str::to_owned).collect()
}

fn roll_back(server: &Server, app: &App, body: &Value) -> Reply {
    server.manage("POST", &format!("{}/rollback", app.path)).json(body).send()
}

#[test]
fn release_command_runs_before_the_rollout_and_a_failed_one_rolls_nothing_out() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    set_command(&server, &app, &["migrate", "all"]);
    assert_eq!(ended(&server, &app, 1).get("release"), None, "there was no command");

    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    assert_eq!(ended(&server, &app, 2)["release"], "done");
    let (begin, end) = ("running migrate all with r.example.com/api:v2", "it ended");
    assert_eq!(lines(&log(&server, &app, "2/log?step=release")), [begin, end]);
    assert_eq!(lines(&log(&server, &app, "2/log?step=release&follow=true")), [begin, end]);
    let from = begin.len() + 1;
    assert_eq!(lines(&log(&server, &app, &format!("2/log?step=release&from={from}"))), [end]);
    assert_eq!(log(&server, &app, "1/log?step=release").problem(), "no-release-log");
    let unknown = log(&server, &app, "2/log?step=deploy");
    assert_eq!((unknown.status, unknown.problem().as_str()), (400, "malformed"));
    assert!(unknown.json()["detail"].as_str().unwrap().contains("step must be build or release"), "{}", unknown.text());

    set_command(&server, &app, &["migrate", "fail"]);
    let failed = server.post(&app, &image("v3")).header("prefer", "wait=50").expect(424).json();
    assert_eq!(
        (&failed["deploy"]["reason"], &failed["deploy"]["release"]),
        (&json!("release-failed"), &json!("may-have-run"))
    );
    let detail = failed["detail"].as_str().unwrap();
    assert!(detail.contains("exit code 1") && detail.contains("Nothing was rolled out."), "{detail}");
    assert_eq!(failed.get("restore"), None);
    let evidence = ended(&server, &app, 3)["evidence"]["log"].clone();
    assert_eq!(evidence.as_array().unwrap().last().unwrap(), "it failed");
    let shown = server.manage("GET", &app.path).expect(200).json();
    assert_eq!((&shown["current"]["revision"], &shown["on_cluster"]["revision"]), (&json!(2), &json!(2)));
    let released: Vec<_> = shown["released"].as_array().unwrap().iter().map(|it| it["revision"].clone()).collect();
    assert_eq!(released, [json!(2), json!(3)]);

    // The image is not there: the command has certainly not begun.
    set_command(&server, &app, &["migrate"]);
    let failed = server.post(&app, &image("missing")).header("prefer", "wait=50").expect(424).json();
    assert_eq!((&failed["deploy"]["reason"], failed["deploy"].get("release")), (&json!("ErrImagePull"), None));
}

#[test]
fn rollback_past_release_commands_asks_first_and_runs_none() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "release_command": ["migrate"] }));
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    server.post(&app, &image("v3")).header("prefer", "wait=50").expect(200);

    let refused = roll_back(&server, &app, &json!({ "revision": 1 }));
    assert_eq!((refused.status, refused.problem().as_str()), (409, "release-between"));
    let refused = refused.json();
    assert_eq!(refused["target"], 1);
    let named: Vec<_> = refused["released"].as_array().unwrap().iter().map(|it| it["revision"].clone()).collect();
    assert_eq!(named, [json!(2), json!(3)]);
    assert!(refused["released"][0]["at"].is_string());
    assert!(refused["detail"].as_str().unwrap().contains("past_releases"), "{refused}");

    let done = roll_back(&server, &app, &json!({ "revision": 1, "past_releases": true }));
    assert_eq!(done.status, 202, "{}", done.text());
    let back = ended(&server, &app, 4);
    assert_eq!((&back["status"], back.get("release")), (&json!("succeeded"), None), "a rollback runs none");
    assert_eq!(log(&server, &app, "4/log?step=release").problem(), "no-release-log");
    let app_shown = server.manage("GET", "/api/v1/apps").expect(200).json();
    assert_eq!(app_shown["apps"][0].get("released"), None, "lists are without them");
}

#[test]
fn failure_of_a_rollout_says_that_the_release_command_had_run() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "release_command": ["migrate"] }));
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    let failed = server.post(&app, &image("crash")).header("prefer", "wait=50").expect(424).json();
    assert_eq!(failed["deploy"]["release"], "done");
    assert!(failed["detail"].as_str().unwrap().contains("Its release command had run"), "{failed}");
    assert!(failed["restore"].is_object(), "{failed}");
}
