//! The management contract, against the real binary.

use std::{thread, time::Duration};

use rollhook_testing::{App, Server, events, image, server};
use serde_json::{Value, json};

fn deploy(server: &Server, app: &App, tag: &str) -> Value {
    server.post(app, &image(tag)).header("prefer", "wait=20").expect(200).json()
}

#[test]
fn apps_are_registered_listed_changed_and_removed() {
    let server = server!().run();
    for name in ["b", "a", "c"] {
        server.app(name);
    }
    let create = json!({ "project": "shop", "environment": "test", "app": "a", "image": "r.example.com/a:1" });
    assert_eq!(server.manage("POST", "/api/v1/apps").json(&create).expect(409).problem(), "app-exists");
    let mut other = create.clone();
    (other["project"], other["environment"], other["app"]) = (json!("shop-test"), json!("x"), json!("z"));
    server.manage("POST", "/api/v1/apps").json(&other).expect(201);
    (other["project"], other["environment"], other["app"]) = (json!("shop"), json!("test-x"), json!("y"));
    assert_eq!(server.manage("POST", "/api/v1/apps").json(&other).expect(409).problem(), "namespace-taken");

    let names = |page: &Value| {
        page["apps"].as_array().unwrap().iter().map(|app| app["app"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let page = server.manage("GET", "/api/v1/apps?limit=2&namespace=shop-test").expect(200).json();
    assert_eq!(names(&page), ["a", "b"]);
    assert_eq!(page["apps"][0]["current"]["revision"], 1);
    let next = page["next"].as_str().unwrap();
    let page =
        server.manage("GET", &format!("/api/v1/apps?limit=2&namespace=shop-test&after={next}")).expect(200).json();
    assert_eq!((names(&page), &page["next"]), (vec!["c".to_owned()], &Value::Null));

    let path = "/api/v1/apps/shop-test/a";
    assert_eq!(server.manage("GET", path).expect(200).json()["policy"]["resolve"], "auto");
    let patch = json!({ "policy": {
        "on_failure": "leave", "repositories": ["r.example.com/*"], "settle": null, "resolve": "off",
    } });
    let changed = server.manage("PATCH", path).json(&patch).expect(200).json();
    assert_eq!(changed["policy"]["on_failure"], "leave");
    assert_eq!((&changed["policy"]["settle"], &changed["policy"]["resolve"]), (&json!("10s"), &json!("off")));
    assert_eq!(server.manage("GET", path).expect(200).json()["policy"], changed["policy"]);
    for (policy, field) in [
        (json!({ "settle": "soon" }), "policy.settle"),
        (json!({ "on_failure": "panic" }), "policy.on_failure"),
        (json!({ "repositories": ["BAD"] }), "policy.repositories"),
        (json!({ "resolve": "require" }), "policy.resolve"),
    ] {
        let reply = server.manage("PATCH", path).json(&json!({ "policy": policy })).expect(422);
        assert_eq!((reply.problem().as_str(), &reply.json()["field"]), ("invalid-field", &json!(field)));
    }
    let unread = server.manage("PATCH", path).json(&json!({ "policy": { "resolve": "rh_hunter2" } })).expect(400);
    assert!(
        unread.text().contains("`auto`, `require`, `off`") && !unread.text().contains("hunter2"),
        "{}",
        unread.text()
    );
    server.manage("DELETE", path).expect(204);
    assert_eq!(server.manage("GET", path).expect(404).problem(), "app-not-found");
    assert_eq!(server.manage("GET", "/api/v1/apps/Bad_/a").expect(404).problem(), "app-not-found");
    assert_eq!(server.manage("GET", "/api/v1/nothing").expect(404).problem(), "not-found");
    // The workload still carries the stamp of the registration that is gone.
    assert_eq!(server.manage("POST", "/api/v1/apps").json(&create).expect(409).problem(), "workload-taken");
    let mut again = create;
    again["take_over"] = json!(true);
    again["image"] = json!("r.example.com/another:1");
    again["template"] = json!({ "replicas": 2 });
    let refused = server.manage("POST", "/api/v1/apps").json(&again).expect(409);
    let unused = json!(["image", "template.replicas"]);
    assert_eq!((refused.problem().as_str(), &refused.json()["unused"]), ("workload-exists", &unused));
    assert!(refused.text().contains("--adopt"), "{}", refused.text());
    again["adopt"] = json!(true);
    let again = server.manage("POST", "/api/v1/apps").json(&again).expect(201).json();
    assert_eq!((&again["adopted"], &again["deploy"]["revision"]), (&json!(true), &json!(1)));
    assert_eq!(again["ignored"], unused);
    let taken = server.manage("PATCH", path).json(&json!({ "take_over": true })).expect(200).json();
    assert_eq!(taken["uid"], again["app"]["uid"]);
}

#[test]
fn a_registration_that_cannot_be_is_refused_by_its_field() {
    let server = server!().run();
    let create = |change: Value| {
        let mut body = json!({ "project": "shop", "environment": "test", "app": "api", "image": "r.example.com/a:1" });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        server.manage("POST", "/api/v1/apps").json(&body).send()
    };
    for (change, status, problem) in [
        (json!({ "app": "API" }), 422, "invalid-field"),
        (json!({ "project": "" }), 422, "invalid-field"),
        (json!({ "image": "BAD:1" }), 422, "invalid-image"),
        (json!({ "image": null }), 422, "invalid-workload"),
        (json!({ "workload": { "kind": "Pod" } }), 422, "invalid-field"),
        (json!({ "app": 7 }), 400, "malformed"),
        (
            json!({ "git": { "url": "http://git.example.com/a", "image_repository": "r.example.com/a" } }),
            422,
            "invalid-field",
        ),
    ] {
        let reply = create(change.clone());
        assert_eq!((reply.status, reply.problem().as_str()), (status, problem), "{change}: {}", reply.text());
    }
    let reply = server.manage("POST", "/api/v1/apps").body(b"{}").expect(415);
    assert_eq!(reply.problem(), "unsupported-media-type");
    assert_eq!(server.manage("GET", "/api/v1/apps").expect(200).json(), json!({ "apps": [] }));
}

#[test]
fn history_is_paged_newest_first() {
    let server = server!().run();
    let app = server.app("api");
    for tag in ["v2", "v3", "v4"] {
        deploy(&server, &app, tag);
    }
    let page = |query: &str| server.manage("GET", &format!("{}/deploys{query}", app.path)).expect(200).json();
    let revisions = |page: &Value| {
        page["deploys"].as_array().unwrap().iter().map(|entry| entry["revision"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let first = page("?limit=3");
    assert_eq!((revisions(&first), &first["next"]), (vec![4, 3, 2], &json!(2)));
    let rest = page("?limit=3&before=2");
    assert_eq!((revisions(&rest), &rest["next"]), (vec![1], &Value::Null));
    assert_eq!(first["deploys"][0]["current"], true);
    assert_eq!(first["deploys"][1]["current"], false);
    for query in ["?limit=0", "?limit=201", "?limit=x", "?before=0", "?before=x", "?page=2", "?limit=1&limit=2"] {
        let reply = server.manage("GET", &format!("{}/deploys{query}", app.path)).expect(400);
        assert_eq!(reply.problem(), "malformed", "{query}");
    }
    for revision in ["99", "0", "x", "-1"] {
        let reply = server.manage("GET", &format!("{}/deploys/{revision}", app.path)).expect(404);
        assert_eq!(reply.problem(), "revision-not-found");
    }
}

#[test]
fn deploys_by_hand_are_in_the_history_with_their_actor() {
    let server = server!().run();
    let app = server.app("api");
    let post =
        server.manage("POST", &format!("{}/deploys", app.path)).json(&image("v2")).header("idempotency-key", "k");
    let alice = post.clone().header("x-rollhook-actor", "alice");
    let first = alice.header("prefer", "wait=20").expect(200).json();
    assert_eq!((&first["trigger"], &first["revision"]), (&json!("manual"), &json!(2)));
    assert_eq!(post.expect(202).header("idempotent-replayed"), Some("true"));
    let entry = server.manage("GET", &format!("{}/deploys/2", app.path)).expect(200).json();
    assert_eq!(entry["actor"], "alice (admin)");
    let other = server.manage("POST", &format!("{}/rollback", app.path)).header("idempotency-key", "k").expect(422);
    assert_eq!(other.problem(), "idempotency-key-reused", "a key is for one operation");
    for call in ["rebuild", "deploys/2/log"] {
        let method = if call == "rebuild" { "POST" } else { "GET" };
        assert_eq!(server.manage(method, &format!("{}/{call}", app.path)).expect(409).problem(), "wrong-kind");
    }
    assert_eq!(server.manage("POST", &format!("{}/deploys/2/cancel", app.path)).expect(409).problem(), "already-ended");
}

#[test]
fn rollback_returns_to_the_version_before_and_holds_what_it_left() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "hold": "all" }));
    let rollback = |body: &str| {
        server
            .manage("POST", &format!("{}/rollback", app.path))
            .header("content-type", "application/json")
            .body(body.as_bytes())
            .send()
    };
    assert_eq!(rollback("").problem(), "nothing-to-roll-back-to");
    deploy(&server, &app, "v2");
    let stale = rollback(r#"{"if_current": 1}"#);
    assert_eq!((stale.status, stale.problem().as_str()), (409, "current-changed"));
    assert_eq!((&stale.json()["expected"], &stale.json()["current"]), (&json!(1), &json!(2)));
    let done = rollback(r#"{"if_current": 2}"#);
    assert_eq!(done.status, 202, "{}", done.text());
    assert_eq!(done.header("location"), Some("/api/v1/apps/shop-test/api/deploys/3"));
    let body = done.json();
    assert_eq!((&body["trigger"], &body["to"]["revision"]), (&json!("rollback"), &json!(1)));
    assert!(body["to"]["image"].as_str().unwrap().starts_with("r.example.com/api:v1@sha256:"));
    server.manage("GET", &format!("{}/deploys/3", app.path)).header("prefer", "wait=20").expect(200);
    let held = server.post(&app, &image("v2")).expect(409);
    assert_eq!((held.problem().as_str(), &held.json()["held_by"]), ("image-held", &json!(3)));
    let released = server.manage("DELETE", &format!("{}/hold", app.path)).expect(200).json();
    assert_eq!(released["holds"], json!([]));
    server.post(&app, &image("v2")).expect(202);
    assert_eq!(rollback(r#"{"revision": 99}"#).problem(), "revision-not-found");
    assert_eq!(rollback(r#"{"revision": 0}"#).problem(), "malformed");
    // A typing error must not go back to another revision than the one that was meant.
    assert_eq!(rollback(r#"{"revison": 1}"#).problem(), "malformed");
}

#[test]
fn redeploy_repeats_what_is_current_and_takes_no_image() {
    let server = server!().run();
    let app = server.app("api");
    let post = |body: Value| {
        server.manage("POST", &format!("{}/deploys", app.path)).json(&body).header("prefer", "wait=20").send()
    };
    deploy(&server, &app, "v2");
    let stale = post(json!({ "same": true, "if_current": 1 }));
    assert_eq!((stale.problem().as_str(), &stale.json()["current"]), ("current-changed", &json!(2)));
    let done = post(json!({ "same": true, "if_current": 2 }));
    assert_eq!((done.status, &done.json()["trigger"]), (200, &json!("manual")), "{}", done.text());
    let entry = server.manage("GET", &format!("{}/deploys/3", app.path)).expect(200).json();
    assert_eq!((&entry["from"], &entry["effective"]), (&json!({ "revision": 2 }), &json!(2)));
    assert!(entry["image"].as_str().unwrap().starts_with("r.example.com/api:v2@sha256:"), "{entry}");
    for (body, problem) in [
        (json!({ "same": true, "image": "r.example.com/api:v3" }), "invalid-field"),
        (json!({ "same": true, "commit": "4f1a77b" }), "invalid-field"),
        (json!({ "image": "r.example.com/api:v3", "if_current": 3 }), "invalid-field"),
        (json!({ "same": false }), "invalid-image"),
        (json!({ "same": 1 }), "malformed"),
    ] {
        assert_eq!(post(body.clone()).problem(), problem, "{body}");
    }
    assert_eq!(server.post(&app, &json!({ "same": true })).expect(422).problem(), "invalid-image", "CI has its image");
    server.manage("POST", &format!("{}/deploys", app.path)).json(&image("hang")).expect(202);
    let refused = post(json!({ "same": true }));
    assert_eq!((refused.status, refused.problem().as_str()), (409, "not-redeployable"));
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("Revision 4 (r.example.com/api:hang)"),
        "{}",
        refused.text()
    );
}

#[test]
fn stopped_app_says_so_until_it_is_started() {
    let server = server!().run();
    let app = server.app("api");
    let post = |verb: &str, body: Value| {
        server.manage("POST", &format!("{}/{verb}", app.path)).json(&body).header("prefer", "wait=20").send()
    };
    let not_stopped = post("start", json!({}));
    assert_eq!((not_stopped.status, not_stopped.problem().as_str()), (409, "not-stopped"));
    assert_eq!(post("stop", json!({ "if_current": 7 })).problem(), "current-changed");
    assert_eq!(post("stop", json!({ "if_curent": 1 })).problem(), "malformed");
    let done = server.manage("POST", &format!("{}/stop", app.path)).header("prefer", "wait=20").send();
    assert_eq!((done.status, &done.json()["trigger"]), (200, &json!("manual")), "{}", done.text());
    let entry = server.manage("GET", &format!("{}/deploys/2", app.path)).expect(200).json();
    assert_eq!((&entry["scale"], &entry["from"]), (&json!("stop"), &json!({ "revision": 1 })));
    let shown = || server.manage("GET", &app.path).expect(200).json()["stopped"].clone();
    assert_eq!((&shown()["since"], shown()["by"].is_string()), (&json!(2), true));

    let accepted = server.post(&app, &image("v2")).expect(202).json();
    assert_eq!(accepted["stopped"]["since"], 2, "CI is told: {accepted}");
    let ended = server.manage("GET", &format!("{}/deploys/3", app.path)).header("prefer", "wait=20").expect(200).json();
    assert!(
        ended["message"].as_str().unwrap().contains("not started, as the app was stopped by revision 2"),
        "{ended}"
    );
    let back = post("rollback", json!({})).json();
    assert!(back["note"].as_str().unwrap().contains("The app was stopped by revision 2"), "{back}");
    server.manage("GET", &format!("{}/deploys/4", app.path)).header("prefer", "wait=20").expect(200);
    let done = post("start", json!({}));
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(shown(), Value::Null);
}

#[test]
fn promotion_brings_what_another_environment_runs() {
    let server = server!().run();
    let app = server.app("api");
    let create = json!({ "project": "shop", "environment": "prod", "app": "api", "image": "r.example.com/api:v0", "policy": { "settle": "0s" } });
    server.manage("POST", "/api/v1/apps").json(&create).expect(201);
    deploy(&server, &app, "v2");
    let promote = |environment: &str| {
        let body = json!({ "from": { "project": "shop", "environment": environment } });
        server.manage("POST", "/api/v1/apps/shop-prod/api/promote").json(&body).header("prefer", "wait=20").send()
    };
    let reply = promote("test");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["trigger"], "promotion");
    let entry = server.manage("GET", "/api/v1/apps/shop-prod/api/deploys/2").expect(200).json();
    assert_eq!(entry["from"], json!({ "namespace": "shop-test", "app": "api", "revision": 2 }));
    assert_eq!(promote("none").problem(), "app-not-found");
    assert_eq!(promote("NO").problem(), "invalid-field");
}

/// The events of a stream until it ends.
#[test]
fn events_follow_a_deploy_to_its_end_and_resume() {
    let server = server!().arguments(["--driver", "simulated:1s"]).run();
    let app = server.app("api");
    server.post(&app, &image("v2")).expect(202);
    let path = format!("{}/deploys/2/events", app.path);
    let seen = events(server.manage("GET", &path).open());
    let statuses: Vec<&str> = seen.iter().map(|(_, entry)| entry["status"].as_str().unwrap()).collect();
    assert!(statuses.ends_with(&["rolling_out", "succeeded"]), "{statuses:?}");
    let ids: Vec<&str> = seen.iter().map(|(id, _)| id.as_str()).collect();
    assert!(ids.is_sorted() && ids.last() == Some(&"2-2"), "{ids:?}");

    let resume = |id: &str| server.manage("GET", &path).header("last-event-id", id);
    let rest = events(resume("2-0").open());
    assert_eq!(rest.len(), 1, "the present state first, and no more: it has ended");
    assert_eq!((rest[0].0.as_str(), &rest[0].1["status"]), ("2-2", &json!("succeeded")));
    resume("2-2").expect(204);
    assert_eq!(events(resume("nonsense").open()).len(), 1);
    let reply = server.manage("GET", &path).send();
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(
        server.manage("GET", &format!("{}/deploys/9/events", app.path)).expect(404).problem(),
        "revision-not-found"
    );
}

#[test]
fn events_resume_in_the_middle() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "rollout_deadline": "3s", "on_failure": "leave" }));
    server.post(&app, &image("hang")).expect(202);
    thread::sleep(Duration::from_secs(1));
    let path = format!("{}/deploys/2/events", app.path);
    let rest = events(server.manage("GET", &path).header("last-event-id", "2-1").open());
    let statuses: Vec<&str> = rest.iter().map(|(_, entry)| entry["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed"], "what was seen is not told again");
}

#[test]
fn probes_and_numbers_are_open_and_bounded() {
    let server = server!().run();
    let app = server.app("api");
    deploy(&server, &app, "v2");
    server.call("POST", "/api/v1/webhook/made-up/name").expect(401);
    server.call("GET", "/made/up").expect(401);
    assert_eq!(server.call("GET", "/healthz").expect(200).text(), "ok\n");
    assert_eq!(server.call("GET", "/readyz").expect(200).text(), "ready\n");
    let metrics = server.call("GET", "/metrics").expect(200);
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let asks = server.call("GET", "/metrics").header("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1");
    assert!(asks.expect(200).header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = metrics.text();
    for line in [
        r#"rollhook_http_requests_total{route="/api/v1/webhook/{namespace}/{app}",method="POST",status="2xx"} 1"#,
        r#"rollhook_http_requests_total{route="unknown",method="GET",status="4xx"} 1"#,
        r#"rollhook_deploys_accepted_total{trigger="webhook"} 1"#,
        r#"rollhook_deploys_ended_total{trigger="webhook",status="succeeded"} 1"#,
        r#"rollhook_rollout_applies_total{outcome="done"} 2"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("made") && !text.contains("shop-test"), "{text}");
}

#[test]
fn a_request_id_is_taken_over_where_it_is_harmless() {
    let server = server!().run();
    let id = |given: &str| {
        server.call("GET", "/made/up").header("x-request-id", given).send().header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("ci-4711"), "ci-4711");
    assert_ne!(id("a b"), "a b");
    assert_ne!(id("rh_0123"), "rh_0123");
    assert!(server.log().contains("ci-4711"));
}
