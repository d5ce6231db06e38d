//! The log as a collector reads it: one JSON object per line, and the line that an operator is woken by.

use rollhook_testing::{Server, image, server, until};
use serde_json::{Value, json};

use crate::limits::answered;

/// The lines so far, each of which is a JSON object.
fn lines(server: &Server) -> Vec<Value> {
    let object = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value["timestamp"].is_string() && value["level"].is_string(), "{line}");
        assert!(value["message"].is_string(), "{line}");
        value
    };
    server.log().lines().map(object).collect()
}

#[test]
fn each_line_is_json_and_a_failed_deploy_is_one_warning() {
    let server = server!().arguments(["--log-format", "json"]).run();
    let app = server.app_with("api", json!({ "settle": "0s", "on_failure": "leave" }));
    server.post(&app, &image("missing")).header("prefer", "wait=50").expect(424);
    let lines = lines(&server);
    let warnings: Vec<&Value> =
        lines.iter().filter(|line| line["level"] == "WARN" && line["app"].is_string()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = warnings[0];
    assert_eq!(warning["message"], "deploying failed");
    assert_eq!((&warning["app"], &warning["revision"]), (&json!("shop-test/api"), &json!("2")));
    assert_eq!(warning["reason"], "ImagePullBackOff");
    assert!(warning["detail"].as_str().unwrap().contains("cannot be pulled"), "{warning}");
}

#[test]
fn probes_scrapes_and_reads_that_succeed_leave_no_line() {
    let server = server!().arguments(["--log-format", "json"]).run();
    let app = server.app("api");
    let before = lines(&server).len();
    for _ in 0..3 {
        for path in ["/healthz", "/readyz", "/metrics"] {
            server.call("GET", path).expect(200);
        }
        server.manage("GET", &format!("{}/deploys/1", app.path)).expect(200);
    }
    assert_eq!(lines(&server).len(), before);
    server.manage("GET", &format!("{}/deploys/9", app.path)).expect(404);
    let lines = lines(&server);
    let last = lines.last().unwrap();
    assert_eq!((&last["message"], &last["status"]), (&json!("answered a call"), &json!(404)));
}

#[test]
fn flood_of_refused_calls_leaves_a_bounded_number_of_lines_that_tell_of_the_others() {
    let server = server!().arguments(["--log-format", "json"]).unlimited().run();
    let call = server.call("GET", "/api/v1/nothing");
    assert_eq!(answered(&server, &call, 2_500, 401), 2_500);
    let refused = |server: &Server| lines(server).into_iter().filter(|line| line["status"] == 401).collect::<Vec<_>>();
    let lines = refused(&server).len();
    assert!((1_000..2_400).contains(&lines), "{lines} of 2,500 in less than 140 s");
    until("a line tells of the others", || {
        call.expect(401);
        refused(&server).iter().any(|line| line["left_out"].as_u64() > Some(0))
    });
}
