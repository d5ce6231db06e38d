//! Checks of apps: set, listed, tried out and removed; by those who may, and never of another address than is allowed.

use std::fs;

use rollhook_testing::{App, Server, Start, fixtures::Receiver, image, server, until};
use serde_json::{Value, json};

use crate::disguises::forms;

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
    assert_eq!(kinds, ["http", "prometheus", "webhook", "command"]);
    assert_eq!(
        (&none["kinds"][0]["longest_timeout"], &none["kinds"][3]["longest_timeout"]),
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
fn check_of_each_instance_is_set_tried_out_and_has_no_login() {
    let server = server!().run();
    let app = server.app("api");
    let url = "https://shop.example.com/health";
    let each = json!({ "kind": "http", "settings": { "url": url, "each_instance": 8080 } });
    let set = set(&server, &app, "each", &each);
    assert_eq!(set["settings"]["each_instance"], "8080", "{set}");
    let kinds = server.manage("GET", &path(&app, "")).expect(200).json()["kinds"].clone();
    let known = kinds[0]["settings"].as_array().unwrap().iter().find(|known| known["name"] == "each_instance");
    assert_eq!(known.unwrap()["required"], false);
    let tried = server.manage("POST", &path(&app, "/each/test")).expect(200).json();
    assert_eq!(tried["verdict"], "none", "a simulated pod has no address: {tried}");
    assert!(tried["message"].as_str().unwrap().contains("It has no address of its own."), "{tried}");
    assert!(
        tried["request"].as_str().unwrap().starts_with("GET https://shop.example.com/health at port 8080"),
        "{tried}"
    );
    let put = |more: Value| {
        let mut check = each.clone();
        check["settings"].as_object_mut().unwrap().extend(more["settings"].as_object().unwrap().clone());
        check["secret"] = more["secret"].clone();
        server.manage("PUT", &path(&app, "/each")).json(&check).expect(422)
    };
    let login = put(json!({ "settings": { "login": "bearer" }, "secret": "hunter2-hunter2" })).json();
    assert!(login["detail"].as_str().unwrap().contains("login cannot be given with each_instance"), "{login}");
    let port = put(json!({ "settings": { "each_instance": "http" } })).json();
    assert!(port["detail"].as_str().unwrap().contains("from 1 to 65535"), "{port}");
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
fn person_decides_where_a_check_that_asks_has_no_verdict() {
    let server = start().run();
    let app = server.app("api");
    let asks = json!({
        "kind": "http", "every": "1s", "failures": 1, "without_verdict": "ask",
        "settings": { "url": "http://route.invalid/" },
    });
    assert_eq!(set(&server, &app, "gone", &asks)["without_verdict"], "ask");
    let verdict = |revision: u64, body: &Value| {
        server.manage("POST", &format!("{}/deploys/{revision}/verdict", app.path)).json(body).send()
    };
    let entry = |revision: u64| server.manage("GET", &format!("{}/deploys/{revision}", app.path)).expect(200).json();
    let (pass, fail) = (json!({ "verdict": "pass" }), json!({ "verdict": "fail" }));
    let asked = |revision: u64| {
        until("a person is asked", || Some(entry(revision)).filter(|entry| !entry["decision"].is_null()))
    };

    let post = || server.post(&app, &image("v2")).header("idempotency-key", "two").header("prefer", "wait=1");
    post().expect(202);
    let waiting = asked(2);
    let reason = waiting["decision"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("gone: ") && waiting["decision"].get("verdict").is_none(), "{waiting}");
    assert_eq!((&waiting["status"], &waiting["checks"][0]["verdict"]), (&json!("verifying"), &json!("none")));
    let told = post().expect(202).json();
    let message = told["progress"]["message"].as_str().unwrap();
    assert!(message.starts_with("waits for a person's decision, as checks came to no verdict: gone: "), "{told}");
    assert_eq!((&told["decision"]["reason"].as_str(), told.get("ends_within")), (&Some(reason), None), "{told}");

    let own = server.call("POST", &format!("{}/deploys/2/verdict", app.path)).header("x-service-token", &app.token);
    assert_eq!(own.json(&pass).expect(401).problem(), "unauthorized", "a pipeline decides nothing");
    for (body, status, problem) in [
        (json!({ "verdict": "none" }), 422, "invalid-field"),
        (json!({ "verdict": "" }), 422, "invalid-field"),
        (json!({ "verdict": "pass", "by": "ada" }), 400, "malformed"),
        (json!({}), 400, "malformed"),
    ] {
        let refused = verdict(2, &body);
        assert_eq!((refused.status, refused.problem().as_str()), (status, problem), "{body}");
    }
    assert_eq!(verdict(1, &pass).problem(), "already-ended");
    assert_eq!(verdict(9, &pass).problem(), "revision-not-found");
    assert_eq!(entry(2)["status"], "verifying", "a refused call decides nothing");

    let decided = verdict(2, &pass);
    assert_eq!(decided.status, 200, "{}", decided.text());
    let by = decided.json()["decision"]["by"].as_str().unwrap().to_owned();
    assert!(decided.json()["decision"]["at"].is_string() && !by.is_empty(), "{}", decided.text());
    assert_eq!(verdict(2, &pass).status, 200, "the same call again");
    let other = verdict(2, &fail);
    assert_eq!((other.status, other.problem().as_str()), (409, "decided-already"));
    assert_eq!((&other.json()["by"], &other.json()["verdict"]), (&json!(by), &json!("pass")));
    let done = post().header("prefer", "wait=50").expect(200).json();
    assert!(done["message"].as_str().unwrap().ends_with(&format!("; accepted by {by}")), "{done}");

    server.post(&app, &image("v3")).expect(202);
    asked(3);
    assert_eq!(verdict(3, &fail).status, 200);
    let failed = until("the deploy has failed", || Some(entry(3)).filter(|entry| entry["status"] == "failed"));
    assert_eq!((&failed["reason"], &failed["decision"]["verdict"]), (&json!("check-failed"), &json!("fail")));
    assert!(failed["message"].as_str().unwrap().starts_with(&format!("{by} rejected it")), "{failed}");
    until("the version before is restored", || entry(3)["restore"]["status"] == "succeeded");
    assert_eq!(entry(4)["effective"], 2);

    // A rollout is not asked about.
    server.post(&app, &image("hang")).expect(202);
    let early = until("the deploy rolls out", || Some(verdict(5, &pass)).filter(|reply| reply.status == 409));
    assert_eq!(early.problem(), "decision-not-awaited");
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
            "front: the kind ping is unknown here; there are http, prometheus, webhook, command",
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

/// Asserts that a text has no secret in any form.
fn assert_absent(what: &str, text: &[u8], secrets: &[&str]) {
    let text = String::from_utf8_lossy(text);
    for secret in secrets {
        for (form, needle) in forms(secret) {
            assert!(!text.contains(&needle), "a secret ({form}) is in {what}");
        }
    }
}

#[test]
fn secrets_of_checks_reach_their_addresses_alone() {
    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const TOKEN: &str = "Qz7Kp2Xv9Lm4Rt8W-bearer";
    let server = start().arguments(["--log-format", "json"]).variable("RUST_LOG", "trace").run();
    let (app, route, service) = (server.app("api"), Receiver::start(), Receiver::start());
    service.serve(|_| ("200 OK".to_owned(), r#"{"verdict":"pass","message":"12 of 12 tests"}"#.to_owned()));
    let mut answers = Vec::new();
    let mut call = |method: &str, rest: &str, body: Option<&Value>, status: u16| {
        let call = server.manage(method, &path(&app, rest));
        let reply = if let Some(body) = body { call.json(body) } else { call }.expect(status);
        answers.push(reply.text());
        reply
    };
    let front = |url: &str, secret: Option<&str>| {
        let settings = json!({ "url": format!("{url}/{{{{app}}}}"), "status": 204, "login": "bearer" });
        json!({ "kind": "http", "settings": settings, "secret": secret, "every": "1s" })
    };
    let smoke = json!({ "kind": "webhook", "settings": { "url": service.url }, "secret": KEY, "every": "1s" });
    assert!(call("PUT", "/front", Some(&front(&route.url, None)), 422).text().contains("secret: must be given"));
    let short = call("PUT", "/front", Some(&front(&route.url, Some("short"))), 422);
    assert!(short.text().contains("secret: must have at least 8 characters"), "{}", short.text());
    let set = call("PUT", "/front", Some(&front(&route.url, Some(TOKEN))), 200).json();
    assert_eq!((&set["settings"]["login"], set.get("secret")), (&json!("bearer"), None));
    call("PUT", "/smoke", Some(&smoke), 200);
    // The same address keeps it, and another one needs its own.
    call("PUT", "/front", Some(&front(&route.url, None)), 200);
    let elsewhere = Receiver::start();
    let moved = call("PUT", "/front", Some(&front(&elsewhere.url, None)), 422);
    assert_eq!(moved.problem(), "invalid-field");
    assert!(moved.text().contains(&format!("none that is kept for {}", elsewhere.url)), "{}", moved.text());

    let tested = call("POST", "/front/test", None, 200).json();
    let request = format!("GET {}/api, with Authorization: Bearer (secret)", route.url);
    assert_eq!((&tested["request"], &tested["verdict"]), (&json!(request), &json!("pass")), "{tested}");
    assert_eq!(route.sent()[0].headers["authorization"], format!("Bearer {TOKEN}"));
    let tested = call("POST", "/smoke/test", None, 200).json();
    assert_eq!((&tested["verdict"], &tested["message"]), (&json!("pass"), &json!("12 of 12 tests")), "{tested}");
    let sent = &service.sent()[0];
    assert!(sent.is_signed(KEY), "{sent:?}");
    assert_eq!((&sent.json()["app"], &sent.json()["revision"]), (&json!("api"), &json!(1)));

    // Deploys are measured with them as well.
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    assert!(route.sent().iter().all(|sent| sent.headers["authorization"] == format!("Bearer {TOKEN}")));
    let last = service.sent().pop().unwrap();
    assert!(last.is_signed(KEY) && last.json()["revision"] == 2, "{last:?}");
    assert!(last.json()["image"].as_str().unwrap().starts_with("r.example.com/api:v2"), "{last:?}");
    assert!(elsewhere.sent().is_empty());
    call("GET", "", None, 200);
    for rest in ["/deploys", "/deploys/2", ""] {
        answers.push(server.manage("GET", &format!("{}{rest}", app.path)).expect(200).text());
    }
    answers.push(server.manage("GET", "/api/v1/audit?limit=50").expect(200).text());
    assert!(answers.last().unwrap().contains("to enforce, with a new secret"), "{answers:?}");
    let secrets = [TOKEN, KEY.strip_prefix("whsec_").unwrap()];
    assert_absent("an answer", answers.join("\n").as_bytes(), &secrets);
    assert_absent("the metrics", &server.call("GET", "/metrics").expect(200).body, &secrets);
    assert_absent("the log", server.log().as_bytes(), &secrets);
    for file in ["rollhook.db", "rollhook.db-wal"] {
        assert_absent(file, &fs::read(server.file(file)).unwrap_or_default(), &secrets);
    }
}
