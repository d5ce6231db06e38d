//! Pipelines that deploy by id_tokens, without a secret, against the real binary and an issuer on this machine.

use rollhook_testing::{
    App, Call, Server,
    fixtures::{Issuer, now},
    image, server,
};
use serde_json::{Value, json};

/// A server with an app that trusts the main branch of the issuer's repository 74.
struct World {
    issuer: Issuer,
    server: Server,
    app: App,
}

impl World {
    fn new() -> Self {
        Self::of(server!().arguments(["--allow-local-issuers"]).run())
    }

    fn of(server: Server) -> Self {
        let (issuer, app) = (Issuer::start(), server.app("api"));
        let world = Self { issuer, server, app };
        world.trust(&json!({ "repository_id": "74", "ref": "refs/heads/main", "event_name": "push" })).expect(200);
        world
    }

    fn trusts(&self) -> String {
        format!("{}/webhook/trusts", self.app.path)
    }

    fn trust(&self, claims: &Value) -> Call {
        let trust = json!({ "issuer": self.issuer.url, "audience": "rollhook", "claims": claims });
        self.server.manage("POST", &self.trusts()).json(&trust)
    }

    fn post(&self, token: &str, tag: &str) -> Call {
        let bearer = format!("Bearer {token}");
        self.server.call("POST", &self.app.hook).header("authorization", &bearer).json(&image(tag))
    }

    fn entries(&self) -> Vec<Value> {
        let list = self.server.manage("GET", &format!("{}/deploys", self.app.path)).expect(200).json();
        list["deploys"].as_array().unwrap().clone()
    }
}

#[test]
fn a_trusted_pipeline_deploys_and_the_entry_names_repository_run_and_person() {
    let world = World::new();
    let token = world.issuer.token(&json!({}));
    let answer = world.post(&token, "v2").header("prefer", "wait=20").expect(200).json();
    assert_eq!(answer["status"], "succeeded");
    let entry = &world.entries()[0];
    let host = world.issuer.url.trim_start_matches("http://");
    assert_eq!(entry["actor"], format!("{host} shop/api run 4711 (ada)"));
    assert_eq!(entry["trigger"], "webhook");
    let hostile = world.issuer.token(&json!({ "actor": "a\u{1b}[2J\u{202e}", "repository": "x".repeat(1000) }));
    world.post(&hostile, "v3").header("prefer", "wait=20").expect(200);
    let actor = world.entries()[0]["actor"].as_str().unwrap().to_owned();
    assert!(actor.contains("\\u{1b}[2J\\u{202e}") && actor.len() < 400, "{actor}");
}

#[test]
fn the_same_call_may_be_repeated_and_every_other_one_with_the_token_is_refused() {
    let world = World::new();
    let token = world.issuer.token(&json!({}));
    let first = world.post(&token, "v2").header("idempotency-key", "run-1").expect(202).json();
    let before = world.entries().len();
    for _ in 0..2 {
        let again = world.post(&token, "v2").header("idempotency-key", "run-1").header("prefer", "wait=20").expect(200);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.json()["revision"], first["revision"]);
    }
    let unknown = world.server.call("POST", "/api/v1/webhook/shop-test/nothing").json(&image("v2")).expect(401).json();
    for (tag, key) in [("v3", Some("run-1")), ("v2", Some("run-2")), ("v2", None)] {
        let call = world.post(&token, tag);
        let call = if let Some(key) = key { call.header("idempotency-key", key) } else { call };
        let mut refused = call.expect(401).json();
        refused["request_id"] = unknown["request_id"].clone();
        assert_eq!(refused, unknown);
    }
    let other = world.server.app("web");
    let trust = json!({ "issuer": world.issuer.url, "audience": "rollhook", "claims": { "repository_id": "74" } });
    world.server.manage("POST", &format!("{}/webhook/trusts", other.path)).json(&trust).expect(200);
    let bearer = format!("Bearer {token}");
    let elsewhere = world.server.call("POST", &other.hook).header("authorization", &bearer);
    elsewhere.header("idempotency-key", "run-1").json(&image("v2")).expect(401);
    assert_eq!(world.entries().len(), before);
    assert!(world.server.log().contains("used for another call"), "the operator is told");
    // The next poll of the job has a token of its own, and the same key.
    let next = world.issuer.token(&json!({}));
    let again = world.post(&next, "v2").header("idempotency-key", "run-1").expect(202);
    assert_eq!(again.json()["revision"], first["revision"]);
}

#[test]
fn without_a_key_the_token_is_the_key() {
    let world = World::new();
    let token = world.issuer.token(&json!({}));
    let first = world.post(&token, "v2").expect(202).json();
    let again = world.post(&token, "v2").header("prefer", "wait=20").expect(200).json();
    assert_eq!(first["revision"], again["revision"]);
    world.post(&token, "v3").expect(401);
}

#[test]
fn used_token_counts_as_a_deploy_of_the_hour_whatever_comes_of_its_call_and_a_ping_uses_none() {
    let world = World::of(server!().arguments(["--allow-local-issuers", "--deploys-per-hour", "2"]).run());
    let lock = json!({ "reason": "release freeze", "expires": "2h" });
    world.server.manage("PUT", &format!("{}/lock", world.app.path)).json(&lock).expect(200);
    let token = world.issuer.token(&json!({}));
    let bearer = format!("Bearer {token}");
    for _ in 0..3 {
        let ping = world.server.call("POST", &world.app.hook).header("authorization", &bearer);
        ping.header("x-github-event", "ping").json(&json!({ "zen": "Keep it logically awesome." })).expect(200);
    }
    world.post(&token, "v2").expect(423);
    world.post(&token, "v2").expect(423);
    world.post(&world.issuer.token(&json!({})), "v2").expect(423);
    world.post(&world.issuer.token(&json!({})), "v2").expect(429);
}

#[test]
fn a_used_token_stays_bound_after_a_restart() {
    let mut world = World::new();
    let token = world.issuer.token(&json!({}));
    world.post(&token, "v2").header("idempotency-key", "a").expect(202);
    world.server.restart();
    world.post(&token, "v2").header("idempotency-key", "b").expect(401);
    world.post(&token, "v2").header("idempotency-key", "a").header("prefer", "wait=20").expect(200);
}

#[test]
fn every_token_that_does_not_fit_is_refused_as_an_unknown_app_is() {
    let world = World::new();
    let (unknown, issuer) = (Issuer::start(), &world.issuer);
    let nothing = world.server.call("POST", "/api/v1/webhook/shop-test/nothing");
    let token = issuer.token(&json!({}));
    let bearer = format!("Bearer {token}");
    let expected = nothing.header("authorization", &bearer).json(&image("v2")).expect(401);
    let with = |others: Value| issuer.token(&others);
    let (head, signature) = token.rsplit_once('.').unwrap();
    let mut tokens = vec![
        issuer.forge(&issuer.claims(&json!({}))),
        unknown.token(&json!({})),
        unknown.token(&json!({ "iss": issuer.url })),
        format!("{head}."),
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        format!("{signature}.{signature}.{signature}"),
        "x".repeat(100),
        String::new(),
        format!("{}x", world.app.token),
        world.server.admin.clone(),
    ];
    for others in [
        json!({ "repository_id": "75" }),
        json!({ "repository_id": null }),
        json!({ "ref": "refs/heads/dev" }),
        json!({ "ref": null }),
        json!({ "event_name": "pull_request_target" }),
        json!({ "event_name": "issue_comment" }),
        json!({ "aud": "other" }),
        json!({ "aud": null }),
        json!({ "jti": null }),
        json!({ "exp": now() - 61 }),
        json!({ "iat": now() + 90, "nbf": null }),
        json!({ "nbf": now() + 90 }),
        json!({ "exp": now() + 25 * 3600 }),
        json!({ "exp": null }),
    ] {
        tokens.push(with(others));
    }
    for token in tokens {
        let refused = world.post(&token, "v2").expect(401);
        let headers = |reply: &rollhook_testing::Reply| {
            ["content-type", "www-authenticate", "retry-after"].map(|name| reply.header(name).map(str::to_owned))
        };
        assert_eq!(headers(&refused), headers(&expected));
        let (mut body, expected) = (refused.json(), expected.json());
        body["request_id"] = expected["request_id"].clone();
        assert_eq!(body, expected, "{token}");
    }
    assert_eq!(world.entries().len(), 1, "nothing but the registration");
    assert_eq!(unknown.calls(), 0, "an issuer that the app does not trust is not called");
}

#[test]
fn each_credential_that_is_present_must_be_valid() {
    let world = World::new();
    let with = |bearer: &str, secret: &str| {
        let call = world.server.call("POST", &world.app.hook).header("x-service-token", secret);
        call.header("authorization", bearer).json(&image("v2"))
    };
    let good = || format!("Bearer {}", world.issuer.token(&json!({})));
    with(&good(), &world.app.token).expect(202);
    with(&good(), "x").expect(401);
    with(&format!("Bearer {}", world.issuer.token(&json!({ "aud": "x" }))), &world.app.token).expect(401);
    with("Bearer x", &world.app.token).expect(401);
    with("Basic YTpi", &world.app.token).expect(202);
    let untrusting = world.server.app("web");
    let call = world.server.call("POST", &untrusting.hook).header("authorization", &good()).json(&image("v2"));
    call.header("x-service-token", &untrusting.token).expect(401);
}

#[test]
fn a_rotated_key_is_found_and_an_issuer_that_is_away_is_a_503_for_its_own_tokens_alone() {
    let world = World::new();
    world.issuer.answer_instead(Some("500 Internal Server Error"));
    let away = world.post(&world.issuer.token(&json!({})), "v2").expect(503);
    assert_eq!(away.json()["type"], "/problems/issuer-unavailable");
    assert!(away.header("retry-after").is_some());
    assert!(!away.text().contains(&world.issuer.url), "no address outward");
    world.post(&world.issuer.token(&json!({ "aud": "x" })), "v2").expect(401);
    world.post(&world.issuer.token(&json!({ "iss": "https://elsewhere.example.com" })), "v2").expect(401);
    world.server.post(&world.app, &image("v2")).expect(202);
    assert_eq!(world.issuer.calls(), 1);
    world.issuer.answer_instead(None);
    let rotated =
        World::of(world.server.recipe().at(rollhook_testing::free_address()).log_to("two").store("memory").run());
    rotated.issuer.rotate();
    rotated.post(&rotated.issuer.token(&json!({})), "v2").expect(202);
}

#[test]
fn trusts_belong_to_the_registration_and_end_with_the_webhook() {
    let world = World::new();
    let (server, issuer) = (&world.server, &world.issuer);
    let list = || server.manage("GET", &world.trusts()).expect(200).json();
    let first = list()["trusts"][0].clone();
    assert_eq!(first["claims"], json!({ "repository_id": "74", "ref": "refs/heads/main", "event_name": "push" }));
    assert!(list()["url"].as_str().unwrap().ends_with(&world.app.hook));
    world.trust(&json!({ "repository_id": "74", "ref": "refs/heads/main", "event_name": "push" })).expect(200);
    assert_eq!(list()["trusts"].as_array().unwrap().len(), 1, "the same trust once more");
    let one = format!("{}/{}", world.trusts(), first["id"].as_str().unwrap());
    server.manage("DELETE", &one).expect(204);
    server.manage("DELETE", &one).expect(404);
    world.post(&issuer.token(&json!({})), "v2").expect(401);

    world.trust(&json!({ "repository_id": "74" })).expect(200);
    world.post(&issuer.token(&json!({})), "v2").expect(202);
    server.manage("DELETE", &format!("{}/webhook", world.app.path)).expect(204);
    assert_eq!(list()["trusts"], json!([]));
    world.post(&issuer.token(&json!({})), "v2").expect(401);

    world.trust(&json!({ "repository_id": "74" })).expect(200);
    server.manage("DELETE", &world.app.path).expect(204);
    world.post(&issuer.token(&json!({})), "v2").expect(401);
    server.register("api", &json!({ "image": "r.example.com/api:v1", "take_over": true, "adopt": true }));
    world.post(&issuer.token(&json!({})), "v2").expect(401);
    assert_eq!(list()["trusts"], json!([]));
    let audit = server.manage("GET", "/api/v1/audit").expect(200).text();
    let id = first["id"].as_str().unwrap();
    assert!(audit.contains(&format!("trust {id} added")) && audit.contains(&format!("trust {id} removed")), "{audit}");
}

#[test]
fn a_trust_that_identifies_no_repository_is_refused_with_what_to_do() {
    let world = World::new();
    for (claims, why) in [
        (json!({ "repository": "shop/api" }), "repository_id"),
        (json!({}), "repository_id"),
        (json!({ "repository_id": "74", "exp": "1" }), "exp"),
    ] {
        let refused = world.trust(&claims).expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains(why), "{refused}");
        assert_eq!(refused["field"], "claims");
    }
    for index in 0..7 {
        world.trust(&json!({ "repository_id": index.to_string() })).expect(200);
    }
    assert_eq!(world.trust(&json!({ "repository_id": "8" })).expect(409).json()["type"], "/problems/too-many-trusts");
    let strict = server!().run();
    let app = strict.app("api");
    let local = json!({ "issuer": world.issuer.url, "audience": "rollhook", "claims": { "repository_id": "74" } });
    let refused = strict.manage("POST", &format!("{}/webhook/trusts", app.path)).json(&local).expect(422).json();
    assert_eq!(refused["field"], "issuer");
}

#[test]
fn a_tag_of_the_branchs_name_deploys_nothing_and_a_trust_that_would_let_it_in_is_refused() {
    let world = World::new();
    let branch = json!({
        "repository_id": null, "project_id": "7", "ref": "main", "ref_type": "branch", "ref_protected": "true",
    });
    let tag =
        json!({ "repository_id": null, "project_id": "7", "ref": "main", "ref_type": "tag", "ref_protected": "false" });
    let refused = world.trust(&json!({ "project_id": "7", "ref": "main" })).expect(422).json();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("add ref_type=branch and ref_protected=true"), "{refused}");
    assert_eq!(refused["field"], "claims");
    let bound = json!({ "project_id": "7", "ref": "main", "ref_type": "branch", "ref_protected": "true" });
    let added = world.trust(&bound).expect(200).json();
    assert_eq!(added.get("too_wide"), None);
    world.post(&world.issuer.token(&tag), "v2").expect(401);
    world.post(&world.issuer.token(&branch), "v2").expect(202);
    let whole = world.trust(&json!({ "project_id": "8" })).expect(200).json();
    assert!(whole["too_wide"].as_str().unwrap().contains("every branch and tag"), "{whole}");
}

#[test]
fn strangers_over_the_limit_cost_no_call_and_lock_no_pipeline_out() {
    let world = World::new();
    world.post(&world.issuer.token(&json!({})), "v2").expect(202);
    let calls = world.issuer.calls();
    let forged = world.issuer.forge(&world.issuer.claims(&json!({})));
    // The limit gives back five a second meanwhile, which a slow machine takes longer to use up.
    let statuses = (0..1_000).map(|_| world.post(&forged, "v2").send().status);
    let before = statuses.take_while(|status| *status != 429).collect::<Vec<_>>();
    assert!((50..1_000).contains(&before.len()) && before.iter().all(|status| *status == 401), "{before:?}");
    world.post(&world.issuer.token(&json!({})), "v3").expect(202);
    assert_eq!(world.issuer.calls(), calls);
}

#[test]
fn no_id_token_is_logged_at_trace_level() {
    let server =
        server!().arguments(["--log-format", "json", "--allow-local-issuers"]).variable("RUST_LOG", "trace").run();
    let world = World::of(server);
    let good = world.issuer.token(&json!({}));
    let bad = world.issuer.token(&json!({ "ref": "refs/heads/dev" }));
    let forged = world.issuer.forge(&world.issuer.claims(&json!({})));
    world.post(&good, "v2").header("idempotency-key", "a").header("prefer", "wait=20").expect(200);
    world.post(&good, "v3").header("idempotency-key", "a").expect(401);
    world.post(&bad, "v2").expect(401);
    world.post(&forged, "v2").expect(401);
    world.server.call("GET", "/api/v1/apps").header("authorization", &format!("Bearer {good}")).expect(401);
    let log = world.server.log();
    assert!(log.contains("its claim ref is missing or another one"), "the operator learns why");
    for token in [good, bad, forged] {
        for part in token.split('.').skip(1) {
            assert!(!log.contains(&part[..part.len() / 2]) && !log.contains(&part[part.len() / 2..]), "{part}");
        }
    }
}
