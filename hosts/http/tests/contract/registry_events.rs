//! Events of registries at an app's webhook, against the real binary.

use std::collections::BTreeSet;

use rollhook_testing::{App, Call, Reply, Server, image, server};
use serde_json::{Value, json};

const ENVELOPE: &str = "application/vnd.docker.distribution.events.v1+json";

fn docker_hub() -> Value {
    json!({
        "callback_url": "https://registry.hub.docker.com/u/shop/api/hook/2141b5bi5i5b02bec211i4eeih0242eg11000a/",
        "push_data": { "pushed_at": 1_732_902_419, "pusher": "shop", "tag": "v1.4.0" },
        "repository": { "name": "api", "namespace": "shop", "repo_name": "shop/api", "status": "Active" }
    })
}

fn quay() -> Value {
    json!({
        "name": "api", "repository": "shop/api", "namespace": "shop", "docker_url": "quay.io/shop/api",
        "homepage": "https://quay.io/repository/shop/api", "updated_tags": ["v1.4.0"]
    })
}

fn harbor() -> Value {
    json!({
        "type": "PUSH_ARTIFACT", "occur_at": 1_732_902_419, "operator": "robot$ci",
        "event_data": {
            "resources": [{ "tag": "v1.4.0", "resource_url": "harbor.example.com/shop/api:v1.4.0" }],
            "repository": { "name": "api", "namespace": "shop", "repo_full_name": "shop/api", "repo_type": "private" }
        }
    })
}

fn distribution(call: Call) -> Call {
    let target = json!({
        "mediaType": "application/vnd.oci.image.index.v1+json", "repository": "shop/api", "tag": "v1.4.0", "size": 304
    });
    let body = json!({ "events": [{ "action": "push", "target": target }] }).to_string();
    call.header("content-type", ENVELOPE).body(body.as_bytes())
}

fn github() -> Value {
    json!({
        "action": "published",
        "package": {
            "name": "api", "package_type": "CONTAINER", "owner": { "login": "shop" },
            "package_version": { "package_url": "ghcr.io/shop/api:v1.4.0" }
        }
    })
}

fn revisions(server: &Server, app: &App) -> usize {
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    history["deploys"].as_array().unwrap().len()
}

/// Returns an answer without what differs from call to call.
fn uniform(reply: &Reply) -> String {
    let differs = |name: &str| matches!(name, "date" | "x-request-id");
    let headers: Vec<_> = reply.headers.iter().filter(|(name, _)| !differs(name.as_str())).collect();
    format!("{} {headers:?} {}", reply.status, reply.text())
}

#[test]
fn event_that_its_registry_proves_is_answered_and_deploys_nothing() {
    let server = server!().run();
    let app = server.app("api");
    let call = || server.call("POST", &app.hook);
    let bearer = |token: &str| format!("Bearer {token}");
    let package = || call().header("x-github-event", "package").json(&github());
    let good = [
        call().header("authorization", &bearer(&app.token)).json(&harbor()),
        distribution(call().header("x-service-token", &app.token)),
        distribution(call().header("authorization", &bearer(&app.token))),
        package().sign(&app.token),
        call().header("x-service-token", &app.token).json(&docker_hub()),
        call().header("x-service-token", &app.token).header("idempotency-key", "").json(&quay()),
    ];
    for call in good {
        let answer = call.expect(200).json();
        assert_eq!(answer["deployed"], false);
        assert!(answer["message"].as_str().unwrap().contains("follows no tags"), "{answer}");
    }
    let other = json!({ "type": "PULL_ARTIFACT", "event_data": harbor()["event_data"] });
    let answer = call().header("authorization", &bearer(&app.token)).json(&other).expect(200).json();
    assert_eq!(answer["message"], "the event of Harbor reports no image that was pushed");
    for call in [
        call().header("authorization", &bearer("rh_wrong")).json(&harbor()),
        call().header("x-service-token", &app.token).header("authorization", &bearer("rh_wrong")).json(&harbor()),
        distribution(call().header("x-service-token", "rh_wrong")),
        package().sign("rh_wrong"),
        call().header("x-service-token", "rh_wrong").json(&docker_hub()),
    ] {
        call.expect(401);
    }
    assert_eq!(revisions(&server, &app), 1, "the registration");
}

#[test]
fn event_of_a_registry_that_can_prove_nothing_is_answered_alike_for_every_app_and_for_none() {
    let server = server!().run();
    let (app, closed) = (server.app("api"), server.app("closed"));
    server.manage("DELETE", &format!("{}/webhook", closed.path)).expect(204);
    let hooks = [
        app.hook.as_str(),
        &closed.hook,
        "/api/v1/webhook/shop-test/none",
        "/api/v1/webhook/none/api",
        "/api/v1/webhook/Shop_/..",
        "/api/v1/webhook/shop%2dtest/api",
    ];
    let other = json!({ "docker_url": "quay.io/shop/api", "repository": "shop/api", "build_id": "296ec063" });
    let mut answers = BTreeSet::new();
    for hook in hooks {
        for event in [docker_hub(), quay(), other.clone()] {
            answers.insert(uniform(&server.call("POST", hook).json(&event).expect(202)));
        }
        let proxied = server.call("POST", hook).header("authorization", "Basic YTpi").json(&docker_hub());
        answers.insert(uniform(&proxied.expect(202)));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers.first().unwrap().contains(r#""deployed":false"#));
    assert_eq!(revisions(&server, &app), 1, "the registration");
    let calls = server.manage("GET", &format!("{}/webhook/calls", app.path)).expect(200).json();
    assert_eq!(calls["calls"], json!([]), "nobody is told that a call was refused");
}

#[test]
fn other_calls_without_a_credential_are_refused_as_ever() {
    let server = server!().run();
    let app = server.app("api");
    let call = || server.call("POST", &app.hook);
    let mut deploy = docker_hub();
    deploy["image"] = image("v2")["image"].clone();
    let mut large = docker_hub();
    large["repository"]["full_description"] = "a".repeat(128 << 10).into();
    let refused = [
        call().json(&image("v2")),
        call().json(&deploy),
        call().json(&large),
        call().json(&harbor()),
        distribution(call()),
        call().header("x-github-event", "package").json(&github()),
        call().header("x-github-event", "push").json(&docker_hub()),
        call().header("content-type", "text/plain").body(docker_hub().to_string().as_bytes()),
        call().json(&json!({ "push_data": 7, "repository": [] })),
        call().json(&json!({})),
    ];
    let bodies: BTreeSet<_> = refused
        .into_iter()
        .map(|call| {
            let mut problem = call.expect(401).json();
            problem["request_id"].take();
            problem.to_string()
        })
        .collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

#[test]
fn flood_of_events_without_a_credential_is_limited_and_locks_no_caller_out() {
    let server = server!().run();
    let app = server.app("api");
    let event = server.call("POST", &app.hook).json(&docker_hub());
    let answered = (0..200).position(|_| event.send().status == 429).expect("limited");
    assert!((50..90).contains(&answered), "{answered}");
    server.post(&app, &image("v2")).expect(202);
    let other = server.app("other");
    server.call("POST", &other.hook).json(&docker_hub()).expect(202);
}
