//! The configuration of apps: set, shown, staged, put right and brought back, and no value where it does not belong.

use rollhook_testing::{App, Call, Server, image, server, until};
use serde_json::{Value, json};

fn bench() -> Server {
    server!().store("memory").driver("simulated:300ms").variable("RUST_LOG", "trace").run()
}

fn path(app: &App, query: &str) -> String {
    format!("{}/config{query}", app.path)
}

fn patch(server: &Server, app: &App, body: &Value) -> Call {
    server.manage("PATCH", &path(app, "")).json(body)
}

/// Changes the configuration, waits for the deploy and returns it.
fn set(server: &Server, app: &App, set: &Value) -> Value {
    patch(server, app, &json!({ "set": set })).header("prefer", "wait=20").expect(200).json()
}

fn shown(server: &Server, app: &App, query: &str) -> Value {
    server.manage("GET", &path(app, query)).expect(200).json()
}

fn fingerprint(shown: &Value, name: &str) -> Value {
    let variables = shown["variables"].as_array().unwrap();
    variables.iter().find(|variable| variable["name"] == name).map_or(Value::Null, |it| it["fingerprint"].clone())
}

fn deploy(server: &Server, app: &App, revision: u64) -> Value {
    server.manage("GET", &format!("{}/deploys/{revision}", app.path)).header("prefer", "wait=20").expect(200).json()
}

#[test]
fn settings_are_refused_where_nothing_is_made_with_them() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let settings = json!({ "set": { "A": "b" }, "settings": { "memory": "1g" } });
    let refused = patch(&server, &app, &settings).expect(409).json();
    assert_eq!(refused["type"], "/problems/cannot-be-configured", "{refused}");
    for large in [json!({ "memory": "1".repeat(20_000) }), json!("1g")] {
        let status = patch(&server, &app, &json!({ "settings": large })).send().status;
        assert!([400, 422].contains(&status), "{status}");
    }
    assert_eq!(shown(&server, &app, ""), json!({ "revision": 1, "variables": [] }), "nothing was recorded");
}

#[test]
fn change_is_a_revision_and_is_listed_without_secret_values() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    assert_eq!(shown(&server, &app, ""), json!({ "revision": 1, "variables": [] }));
    let changed = set(&server, &app, &json!({ "URL": "hunter2", "LEVEL": { "value": "info", "plain": true } }));
    assert_eq!(
        (&changed["revision"], &changed["trigger"], &changed["status"]),
        (&json!(2), &json!("config"), &json!("succeeded"))
    );
    let listed = shown(&server, &app, "");
    assert_eq!(listed["revision"], 2);
    let (level, url) = (&listed["variables"][0], &listed["variables"][1]);
    assert_eq!((&level["name"], &level["value"], &level["length"]), (&json!("LEVEL"), &json!("info"), &json!(4)));
    assert_eq!((&url["name"], &url["length"], url.get("value")), (&json!("URL"), &json!(7), None));
    let (first, second) = (deploy(&server, &app, 1), deploy(&server, &app, 2));
    assert_eq!((&first["configuration"], first.get("configures")), (&Value::Null, None));
    assert_eq!((second["configuration"].as_str().unwrap().len(), &second["configures"]), (16, &json!(true)));
    assert_eq!(second["image"], changed["image"]);

    let unchanged = patch(&server, &app, &json!({ "set": { "URL": "hunter2" } })).expect(200).json();
    assert_eq!(unchanged["result"], "unchanged", "{unchanged}");
    let removed = patch(&server, &app, &json!({ "unset": ["LEVEL"] })).header("prefer", "wait=20").expect(200).json();
    assert_eq!(removed["revision"], 3);
    assert_eq!(shown(&server, &app, "?revision=2"), listed, "an earlier one is shown as it was");
    assert_eq!(fingerprint(&shown(&server, &app, ""), "URL"), url["fingerprint"], "the value is the same");
    assert_eq!(server.manage("GET", &path(&app, "?revision=9")).expect(404).problem(), "revision-not-found");
    let audit = server.manage("GET", "/api/v1/audit").expect(200).json();
    let subjects: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| entry["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects[0], "app shop-test/api: unset LEVEL");
    assert_eq!(subjects[2], "app shop-test/api: set LEVEL, URL");
    let log = server.log();
    assert!(log.contains("DEBUG") && !log.contains("hunter2") && !audit.to_string().contains("hunter2"));
}

#[test]
fn failed_change_is_put_right_with_the_values_before() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    set(&server, &app, &json!({ "URL": "good" }));
    let good = fingerprint(&shown(&server, &app, ""), "URL");
    let policy = json!({ "policy": { "rollout_deadline": "100ms" } });
    server.manage("PATCH", &app.path).json(&policy).expect(200);
    let failed = patch(&server, &app, &json!({ "set": { "URL": "bad" } })).header("prefer", "wait=20").expect(424);
    assert_eq!((failed.problem().as_str(), &failed.json()["revision"]), ("deploy-failed", &json!(3)));
    let restored = deploy(&server, &app, 4);
    assert_eq!((&restored["actor"], &restored["status"]), (&json!("auto"), &json!("succeeded")), "{restored}");
    assert_eq!(restored["configuration"], deploy(&server, &app, 2)["configuration"]);
    assert_eq!(fingerprint(&shown(&server, &app, ""), "URL"), good);
    assert_ne!(fingerprint(&shown(&server, &app, "?revision=3"), "URL"), good);
}

#[test]
fn rollback_brings_the_configuration_back_when_asked() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    set(&server, &app, &json!({ "URL": "one" }));
    let one = fingerprint(&shown(&server, &app, ""), "URL");
    set(&server, &app, &json!({ "URL": "two" }));
    let two = fingerprint(&shown(&server, &app, ""), "URL");
    server.manage("POST", &format!("{}/deploys", app.path)).json(&image("v2")).header("prefer", "wait=20").expect(200);
    let back = |body: Value| {
        let answer = server.manage("POST", &format!("{}/rollback", app.path)).json(&body).expect(202).json();
        let entry = deploy(&server, &app, answer["revision"].as_u64().unwrap());
        assert_eq!(entry["status"], "succeeded", "{entry}");
        (answer["note"].as_str().unwrap().to_owned(), entry)
    };
    let (note, entry) = back(json!({ "revision": 2 }));
    assert_eq!((note.as_str(), entry.get("configures")), ("A rollback restores the image, not configuration.", None));
    assert_eq!(fingerprint(&shown(&server, &app, ""), "URL"), two);
    let (note, entry) = back(json!({ "revision": 2, "with_config": true }));
    assert!(note.contains("the image and the configuration") && entry["configures"] == true, "{note} {entry}");
    assert_eq!(fingerprint(&shown(&server, &app, ""), "URL"), one);
}

#[test]
fn staged_change_waits_for_the_next_deploy_also_for_the_first() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let staged = patch(&server, &app, &json!({ "set": { "A": "1" }, "staged": true })).expect(200).json();
    assert_eq!((&staged["result"], &staged["app"]), (&json!("staged"), &json!("api")));
    let listed = shown(&server, &app, "");
    assert_eq!((&listed["variables"], &listed["staged"][0]["name"]), (&json!([]), &json!("A")));
    server.manage("POST", &format!("{}/deploys", app.path)).json(&image("v2")).header("prefer", "wait=20").expect(200);
    let listed = shown(&server, &app, "");
    assert_eq!((&listed["variables"][0]["name"], listed.get("staged")), (&json!("A"), None));
    assert_eq!(deploy(&server, &app, 2)["trigger"], "manual");
}

#[test]
fn staged_change_is_repeated_by_its_key_and_withdrawn() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let call = |body: Value| patch(&server, &app, &body).header("idempotency-key", "k");
    let body = json!({ "set": { "A": "1" }, "staged": true });
    let first = call(body.clone()).expect(200);
    assert_eq!((first.header("idempotent-replayed"), &first.json()["result"]), (None, &json!("staged")));
    let again = call(body).expect(200);
    assert_eq!((again.header("idempotent-replayed"), again.json()), (Some("true"), first.json()));
    let other = call(json!({ "set": { "A": "2" }, "staged": true })).expect(422);
    assert_eq!(other.problem(), "idempotency-key-reused");
    let discard = || server.manage("DELETE", &path(&app, "/staged")).expect(200).json()["result"].clone();
    assert_eq!((discard(), discard()), (json!("discarded"), json!("unchanged")));
    assert_eq!(shown(&server, &app, "").get("staged"), None);
    let audit = server.manage("GET", "/api/v1/audit").expect(200).json();
    assert_eq!(audit["entries"][0]["subject"], "app shop-test/api: withdraw what waits for the next deploy");
}

#[test]
fn revoked_value_is_refused_until_it_is_confirmed() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    set(&server, &app, &json!({ "TOKEN": "hunter2" }));
    let none = patch(&server, &app, &json!({ "set": { "A": "1" }, "revoked": true })).expect(422).json();
    assert_eq!(none["field"], "revoked");
    let unset = json!({ "unset": ["TOKEN"], "revoked": true });
    patch(&server, &app, &unset).header("prefer", "wait=20").expect(200);
    let back = |body: Value| server.manage("POST", &format!("{}/rollback", app.path)).json(&body);
    let refused = back(json!({ "revision": 2, "with_config": true })).expect(409);
    let problem = refused.json();
    assert_eq!(
        (refused.problem().as_str(), &problem["target"], &problem["variables"]),
        ("configuration-revoked", &json!(2), &json!(["TOKEN"]))
    );
    back(json!({ "revision": 2, "with_config": true, "with_revoked": true })).expect(202);
    assert!(!server.log().contains("hunter2"));
}

#[test]
fn one_call_sets_as_many_plain_variables_as_an_app_may_have() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let all = (0..500).map(|number| (format!("A{number}"), json!({ "value": "1", "plain": true })));
    let all: serde_json::Map<String, Value> = all.collect();
    let names: Vec<&String> = all.keys().collect();
    set(&server, &app, &json!(all));
    assert_eq!(shown(&server, &app, "")["variables"].as_array().unwrap().len(), 500);
    patch(&server, &app, &json!({ "unset": names })).header("prefer", "wait=20").expect(200);
    let most = json!({ "set": vec![json!([]); 2_100] });
    assert_eq!(patch(&server, &app, &most).expect(413).problem(), "body-too-large");
}

#[test]
fn two_at_once_are_told_by_if_current_and_a_repeat_by_its_key() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let body = json!({ "set": { "A": "1" }, "if_current": 1 });
    let call = || patch(&server, &app, &body).header("idempotency-key", "k");
    let first = call().header("prefer", "wait=20").expect(200);
    let again = call().expect(202);
    assert_eq!(
        (again.header("idempotent-replayed"), &again.json()["revision"]),
        (Some("true"), &first.json()["revision"])
    );
    let other = patch(&server, &app, &json!({ "set": { "A": "2" } })).header("idempotency-key", "k").expect(422);
    assert_eq!(other.problem(), "idempotency-key-reused");
    let late = patch(&server, &app, &json!({ "set": { "A": "2" }, "if_current": 1 })).expect(409);
    assert_eq!((late.problem().as_str(), &late.json()["current"]), ("current-changed", &json!(2)));
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 2, "{history}");
}

#[test]
fn no_secret_of_a_wrong_body_is_in_an_answer_or_a_log() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let mut answers = String::new();
    let many = "hunter2".repeat(20_000);
    for (body, status) in [
        (r#"{"set": "hunter2"}"#, 400),
        (r#"{"set": ["A=hunter2"]}"#, 400),
        (r#"{"A": "hunter2"}"#, 400),
        (r#"{"A=hunter2": 1}"#, 400),
        (r#"{"set": {"A": hunter2}}"#, 400),
        (r#"{"set": {"A": "hunter2""#, 400),
        (r#"{"staged": "hunter2"}"#, 400),
        (r#"{"unset": {"A": "hunter2"}}"#, 400),
        (r#""hunter2""#, 400),
        ("A=hunter2", 400),
        (r#"{"set": {"A": {"secret": "hunter2"}}}"#, 422),
        (r#"{"set": {"A": ["hunter2"]}}"#, 422),
        (r#"{"set": {"A": {"value": "x", "plain": "hunter2"}}}"#, 422),
        (r#"{"set": {"A=hunter2": ""}}"#, 422),
        (r#"{"unset": ["A=hunter2"]}"#, 422),
        (r#"{"set": {"A": "hunter2\u0000"}}"#, 422),
        (&format!(r#"{{"set": {{"A": "{many}"}}}}"#), 422),
        (r#"{"set": {"A": "hunter2"}, "unset": ["A"]}"#, 422),
        (r#"{"set": {"A": "hunter2"}, "unset": ["B"]}"#, 422),
        ("{}", 422),
    ] {
        let call = server.manage("PATCH", &path(&app, "")).header("content-type", "application/json");
        let reply = call.header("idempotency-key", "k").body(body.as_bytes()).expect(status);
        answers.push_str(&format!("{:?} {}\n", reply.headers, reply.text()));
    }
    let wrong =
        server.manage("PATCH", &path(&app, "")).header("content-type", "text/plain").body(b"A=hunter2").expect(415);
    answers.push_str(&wrong.text());
    let log = server.log();
    assert!(!answers.contains("hunter2"), "{answers}");
    assert!(log.contains("DEBUG") && !log.contains("hunter2"), "the log has a value");
}

#[test]
fn viewer_may_neither_read_nor_change_it() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let token = |role: &str| {
        let body = json!({ "name": role, "role": role });
        let made = server.manage("POST", "/api/v1/tokens").json(&body).expect(201).json();
        format!("Bearer {}", made["token"].as_str().unwrap())
    };
    let (viewer, deployer) = (token("viewer"), token("deployer"));
    let call = |token: &str, method: &str| server.call(method, &path(&app, "")).header("authorization", token);
    call(&viewer, "GET").expect(403);
    call(&viewer, "PATCH").json(&json!({ "set": { "A": "1" } })).expect(403);
    call(&deployer, "GET").expect(200);
    call(&deployer, "PATCH").json(&json!({ "set": { "A": "1" } })).expect(202);
    until("it is deployed", || deploy(&server, &app, 2)["status"] == "succeeded");
    let key = |token: &str, value: &str| {
        call(token, "PATCH").json(&json!({ "set": { "A": value } })).header("idempotency-key", "k")
    };
    key(&deployer, "2").expect(202);
    let admin = format!("Bearer {}", server.admin);
    assert_eq!(key(&admin, "2").expect(422).problem(), "idempotency-key-reused", "the request is the caller's own");
}

#[test]
fn promotion_to_an_app_that_lacks_variables_names_them_and_asks() {
    let server = bench();
    let test = server.app_with("api", json!({ "settle": "0s" }));
    let prod = json!({
        "project": "shop", "environment": "prod", "app": "api", "image": "r.example.com/api:1", "policy": { "settle": "0s" }
    });
    server.manage("POST", "/api/v1/apps").json(&prod).expect(201);
    set(&server, &test, &json!({ "URL": "hunter2", "LEVEL": { "value": "info", "plain": true } }));
    let promote = |more: Value| {
        let mut body = json!({ "from": { "project": "shop", "environment": "test" } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.manage("POST", "/api/v1/apps/shop-prod/api/promote").json(&body).header("prefer", "wait=20")
    };
    let refused = promote(json!({})).expect(409);
    assert_eq!(refused.problem(), "variables-missing");
    let refused = refused.json();
    assert_eq!((&refused["from"], &refused["variables"]), (&json!("shop-test/api"), &json!(["LEVEL", "URL"])));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("LEVEL, URL") && detail.contains("without_variables"), "{detail}");
    assert_eq!(promote(json!({ "without_variables": "yes" })).send().status, 400);
    let promoted = promote(json!({ "without_variables": true })).expect(200).json();
    assert_eq!((&promoted["trigger"], &promoted["status"]), (&json!("promotion"), &json!("succeeded")));
    assert!(!server.log().contains("hunter2"));
}

#[test]
fn change_in_spite_of_a_lock_takes_an_admin_and_a_reason() {
    let server = bench();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    server.manage("PUT", "/api/v1/locks/shop/test").json(&json!({ "reason": "a freeze" })).expect(200);
    let change = |more: Value| {
        let mut body = json!({ "set": { "URL": "hunter2" } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        patch(&server, &app, &body)
    };
    let locked = change(json!({})).expect(423);
    assert_eq!(locked.problem(), "locked");
    for (more, rule) in [
        (json!({ "break_glass": "x\ny hunter3" }), "must be 1 to 200 characters in one line"),
        (json!({ "break_glass": "an outage", "staged": true }), "no lock refuses one that waits"),
    ] {
        let refused = change(more).expect(422);
        assert!(refused.text().contains(rule) && !refused.text().contains("hunter"), "{}", refused.text());
    }
    let token = json!({ "name": "dep", "role": "deployer", "project": "shop", "environment": "test" });
    let token = server.manage("POST", "/api/v1/tokens").json(&token).expect(201).json();
    let broken = json!({ "set": { "URL": "hunter2" }, "break_glass": "an outage" });
    let refused = server
        .call("PATCH", &path(&app, ""))
        .header("authorization", &format!("Bearer {}", token["token"].as_str().unwrap()));
    refused.json(&broken).expect(403);
    let done = change(json!({ "break_glass": "an outage" })).header("prefer", "wait=20").expect(200).json();
    assert_eq!((&done["trigger"], &done["status"]), (&json!("config"), &json!("succeeded")));
    let audit = server.manage("GET", "/api/v1/audit").expect(200).json();
    let entries = audit["entries"].as_array().unwrap();
    let of = |entry: &Value| (entry["action"].clone(), entry["subject"].clone());
    // Of one instant.
    let both = [of(&entries[0]), of(&entries[1])];
    assert!(both.contains(&(json!("change the configuration"), json!("app shop-test/api: set URL"))), "{both:?}");
    assert!(both.contains(&(json!("deploy in spite of a lock"), json!("app shop-test/api: an outage"))), "{both:?}");
}
