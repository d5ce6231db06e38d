//! Checks of apps: set, listed, tried out and removed; by those who may, and never of another address than is allowed.

use rollhook_testing::{App, Server, Start, server, until};
use serde_json::{Value, json};

fn start() -> Start {
    server!().arguments(["--allow-local-receivers"])
}

fn path(app: &App, rest: &str) -> String {
    format!("{}/checks{rest}", app.path)
}

fn set(server: &Server, app: &App, name: &str, check: &Value) -> Value {
    server.manage("PUT", &path(app, &format!("/{name}"))).json(check).expect(200).json()
}

/// A check of the server itself.
fn of_itself(server: &Server, path: &str) -> Value {
    json!({ "kind": "http", "settings": { "url": format!("http://{}{path}", server.address) } })
}

#[test]
fn check_is_set_listed_and_removed() {
    let server = start().run();
    let app = server.app("api");
    let none = server.manage("GET", &path(&app, "")).expect(200).json();
    assert_eq!((&none["checks"], &none["verify_for"]), (&json!([]), &json!("0s")));
    let kinds: Vec<_> = none["kinds"].as_array().unwrap().iter().map(|kind| kind["kind"].clone()).collect();
    assert_eq!(kinds, ["http", "prometheus", "command"]);
    assert_eq!(
        (&none["kinds"][0]["longest_timeout"], &none["kinds"][2]["longest_timeout"]),
        (&json!("20s"), &json!("10m"))
    );

    let url = format!("http://{}/healthz", server.address);
    let front = set(&server, &app, "front", &of_itself(&server, "/healthz"));
    let settings = json!({ "url": url, "method": "GET", "status": "200", "unreachable": "none" });
    let expected = json!({
        "name": "front", "kind": "http", "settings": settings, "mode": "enforce", "every": "15s", "failures": 3,
        "timeout": "10s", "without_verdict": "accept",
    });
    assert_eq!(front, expected, "defaults are filled in");
    let errors = json!({
        "kind": "prometheus", "mode": "observe", "every": "1m", "failures": 1, "timeout": "5s", "without_verdict": "wait",
        "settings": { "url": format!("http://{}", server.address), "query": "up", "condition": "<0.010" },
    });
    assert_eq!(set(&server, &app, "errors", &errors)["settings"]["condition"], "< 0.01");
    // In its place.
    let changed = json!({ "kind": "http", "settings": { "url": url, "status": "200-299" } });
    assert_eq!(set(&server, &app, "front", &changed)["settings"]["status"], "200-299");
    server.manage("PATCH", &app.path).json(&json!({ "policy": { "verify_for": "2m" } })).expect(200);
    let list = server.manage("GET", &path(&app, "")).expect(200).json();
    let names: Vec<_> = list["checks"].as_array().unwrap().iter().map(|check| check["name"].clone()).collect();
    assert_eq!((names, &list["verify_for"]), (vec![json!("front"), json!("errors")], &json!("2m")));

    let front = path(&app, "/front");
    server.manage("DELETE", &front).expect(204);
    for (method, path) in [("DELETE", front.clone()), ("POST", format!("{front}/test")), ("PUT", path(&app, "/Front"))]
    {
        let call = server.manage(method, &path);
        let reply = if method == "PUT" { call.json(&changed).expect(404) } else { call.expect(404) };
        assert_eq!(reply.problem(), "check-not-found", "{method} {path}");
    }
    let audit = server.manage("GET", "/api/v1/audit?limit=50").expect(200).text();
    for act in ["set the check front, http", "removed the check front"] {
        assert!(audit.contains(act), "{act}: {audit}");
    }
}

#[test]
fn check_is_tried_out_on_what_runs() {
    let server = start().run();
    let app = server.app("api");
    set(&server, &app, "good", &of_itself(&server, "/healthz?r={{revision}}"));
    set(&server, &app, "bad", &of_itself(&server, "/nowhere"));
    let gone = json!({ "kind": "http", "settings": { "url": "http://route.invalid/" } });
    set(&server, &app, "gone", &gone);
    let test = |name: &str| server.manage("POST", &path(&app, &format!("/{name}/test")));
    let good = test("good").expect(200).json();
    let request = format!("GET http://{}/healthz?r=1", server.address);
    assert_eq!((&good["request"], &good["condition"]), (&json!(request), &json!("status 200")));
    assert_eq!((&good["verdict"], &good["value"]), (&json!("pass"), &json!("200")), "{good}");
    let bad = test("bad").expect(200).json();
    assert_eq!((&bad["verdict"], &bad["value"]), (&json!("fail"), &json!("401")), "{bad}");
    let gone = test("gone").expect(200).json();
    assert_eq!((&gone["verdict"], gone.get("value")), (&json!("none"), None), "{gone}");
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1, "nothing is decided by it");
    let limited = until("tests are limited", || {
        let tested = test("good").send();
        (tested.status != 200).then_some(tested)
    });
    assert_eq!((limited.status, limited.problem()), (429, "rate-limited".to_owned()));
    assert!(limited.header("retry-after").is_some());
}

#[test]
fn command_is_run_for_each_deploy_and_tried_out() {
    let server = start().run();
    let app = server.app("api");
    let command = |words: &[&str]| json!({ "kind": "command", "settings": { "command": words }, "failures": 1 });
    let smoke = set(&server, &app, "smoke", &command(&["bin/smoke", "--fast"]));
    let expected = (&json!(["bin/smoke", "--fast"]), &json!("1m"));
    assert_eq!((&smoke["settings"]["command"], &smoke["timeout"]), expected);
    let tried = server.manage("POST", &path(&app, "/smoke/test")).expect(200).json();
    assert_eq!((&tried["verdict"], &tried["condition"]), (&json!("pass"), &json!("exit code 0")), "{tried}");
    let deploy = |image: &str| {
        let deploy = server.manage("POST", &format!("{}/deploys", app.path)).json(&json!({ "image": image }));
        let number = deploy.expect(202).json()["revision"].to_string();
        until("the deploy has ended", || {
            let entry = server.manage("GET", &format!("{}/deploys/{number}", app.path)).expect(200).json();
            ["succeeded", "failed"].iter().any(|status| entry["status"] == *status).then_some(entry)
        })
    };
    let done = deploy("registry.example.com/api:v2");
    assert_eq!((&done["status"], &done["checks"][0]["verdict"]), (&json!("succeeded"), &json!("pass")), "{done}");
    set(&server, &app, "smoke", &command(&["bin/smoke", "fail-3"]));
    let failed = deploy("registry.example.com/api:v3");
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("failed"), &json!("check-failed")), "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("exit code 3, expected exit code 0"), "{failed}");
}

#[test]
fn check_that_cannot_be_measured_is_refused_by_its_field() {
    let server = server!().run();
    let app = server.app("api");
    let url = "https://shop.example.com/";
    for (check, field, rule) in [
        (json!({}), "kind", "must not be empty"),
        (
            json!({ "kind": "ping" }),
            "policy.checks",
            "front: the kind ping is unknown here; there are http, prometheus, command",
        ),
        (json!({ "kind": "command" }), "policy.checks", "front: command must be a list"),
        (
            json!({ "kind": "command", "settings": { "command": ["x"] }, "timeout": "11m" }),
            "policy.checks",
            "1s to 600s",
        ),
        (json!({ "kind": "http" }), "policy.checks", "front: url must be given"),
        (json!({ "kind": "http", "settings": { "url": url, "extra": 1 } }), "policy.checks", "no setting"),
        (
            json!({ "kind": "http", "settings": { "url": "http://127.0.0.1/" } }),
            "policy.checks",
            "--allow-local-receivers",
        ),
        (json!({ "kind": "http", "settings": { "url": "https://169.254.169.254/" } }), "policy.checks", "metadata"),
        (json!({ "kind": "http", "settings": { "url": url }, "every": "2h" }), "policy.checks", "1s to 1h"),
        (json!({ "kind": "http", "settings": { "url": url }, "failures": 0 }), "policy.checks", "1 to 100"),
        (json!({ "kind": "http", "settings": { "url": url }, "timeout": "2m" }), "policy.checks", "1s to 20s"),
        (json!({ "kind": "http", "settings": { "url": url }, "mode": "warn" }), "mode", "enforce or observe"),
    ] {
        let refused = server.manage("PUT", &path(&app, "/front")).json(&check).expect(422);
        assert_eq!(refused.problem(), "invalid-field", "{check}");
        let text = refused.text();
        assert!(text.contains(field) && text.contains(rule), "{check}: {text}");
    }
    for check in [json!({ "kind": "http", "settings": [] }), json!({ "kind": "http", "more": 1 }), json!([])] {
        let refused = server.manage("PUT", &path(&app, "/front")).json(&check).send();
        assert!((400..500).contains(&refused.status), "{check}: {}", refused.text());
    }
    let patch = json!({ "policy": { "verify_for": "25h" } });
    assert!(server.manage("PATCH", &app.path).json(&patch).expect(422).text().contains("policy.verify_for"));
    for number in 0..10 {
        let check = json!({ "kind": "http", "settings": { "url": url } });
        set(&server, &app, &format!("front-{number}"), &check);
    }
    let one_more = json!({ "kind": "http", "settings": { "url": url } });
    let refused = server.manage("PUT", &path(&app, "/front")).json(&one_more).expect(422);
    assert!(refused.text().contains("at most 10"), "{}", refused.text());
}
