//! Commands by hand: begun once, shown, followed, ended; by deployers, and never as a revision.

use rollhook_testing::{App, Server, server};
use serde_json::{Value, json};

fn path(app: &App, rest: &str) -> String {
    format!("{}/runs{rest}", app.path)
}

fn ended(server: &Server, app: &App, number: u64) -> Value {
    server.manage("GET", &path(app, &format!("/{number}"))).header("prefer", "wait=50").expect(200).json()
}

#[test]
fn command_runs_once_and_its_end_and_log_are_read() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let body = json!({ "command": ["bin/fail-3", "all"], "deadline": "10m" });
    let call = || server.manage("POST", &path(&app, "")).json(&body).header("idempotency-key", "fix-1");
    let begun = call().expect(201);
    assert_eq!(begun.header("location"), Some("/api/v1/apps/shop-test/api/runs/1"));
    let begun = begun.json();
    assert_eq!(
        (&begun["number"], &begun["status"], &begun["deadline"]),
        (&json!(1), &json!("preparing"), &json!("10m"))
    );
    let done = ended(&server, &app, 1);
    assert_eq!((&done["status"], &done["exit_code"]), (&json!("failed"), &json!(3)), "{done}");
    assert_eq!(done["message"], "The command ended with exit code 3.");
    let again = call().expect(201);
    assert_eq!((again.header("idempotent-replayed"), &again.json()["number"]), (Some("true"), &json!(1)));

    let log = server.manage("GET", &path(&app, "/1/log?follow=true")).expect(200);
    assert!(log.text().contains("it failed"), "{}", log.text());
    let listed = server.manage("GET", &path(&app, "")).expect(200).json();
    assert_eq!((listed["runs"].as_array().unwrap().len(), &listed["runs"][0]), (1, &done));
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1, "a run is no revision");
    for missing in ["/9", "/9/log", "/0", "/x/log"] {
        assert_eq!(server.manage("GET", &path(&app, missing)).expect(404).problem(), "run-not-found", "{missing}");
    }
}

#[test]
fn second_run_is_refused_until_the_first_has_ended() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let begin = |word: &str| server.manage("POST", &path(&app, "")).json(&json!({ "command": [word] }));
    begin("hang").expect(201);
    let refused = begin("fix").expect(409);
    assert_eq!((refused.problem().as_str(), &refused.json()["run"]), ("run-unfinished", &json!(1)));
    server.manage("POST", &path(&app, "/1/cancel")).expect(200);
    let cancelled = ended(&server, &app, 1);
    assert_eq!((&cancelled["status"], &cancelled["reason"]), (&json!("cancelled"), &json!("cancelled")), "{cancelled}");
    assert_eq!(server.manage("POST", &path(&app, "/1/cancel")).expect(409).problem(), "run-ended");
    begin("fix").expect(201);
}

#[test]
fn command_that_cannot_be_is_refused_by_its_field() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let long = "x".repeat(5000);
    for (body, field) in [
        (json!({ "command": [] }), "command"),
        (json!({ "command": [" "] }), "command"),
        (json!({ "command": [long] }), "command"),
        (json!({ "command": ["true"], "deadline": "soon" }), "deadline"),
        (json!({ "command": ["true"], "deadline": "5h" }), "deadline"),
    ] {
        let refused = server.manage("POST", &path(&app, "")).json(&body).expect(422);
        assert_eq!((refused.problem().as_str(), &refused.json()["field"]), ("invalid-field", &json!(field)));
    }
    for body in [json!({}), json!({ "command": "true" }), json!({ "command": ["true"], "comand": 1 })] {
        assert_eq!(server.manage("POST", &path(&app, "")).json(&body).expect(400).problem(), "malformed");
    }
    let audit = server.manage("GET", "/api/v1/audit").expect(200).text().to_owned();
    assert!(!audit.contains("xxx"), "what is refused by its field is no act");
}
