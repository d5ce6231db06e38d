//! The webhook's contract, line by line, against the real binary.

use std::{collections::BTreeSet, thread, time::Duration};

use rollhook_testing::{Reply, image, server, until};
use serde_json::{Value, json};

#[test]
fn accepted_is_202_with_the_entry_and_its_place() {
    let server = server!().run();
    let app = server.app("api");
    let reply = server.post(&app, &image("v2")).expect(202);
    let body = reply.json();
    let url = "/api/v1/apps/shop-test/api/deploys/2";
    assert_eq!(reply.header("location"), Some(url));
    assert!(reply.header("idempotent-replayed").is_none() && reply.header("preference-applied").is_none());
    assert!(matches!(body["status"].as_str(), Some("queued" | "rolling_out")), "{body}");
    let mut body = body;
    body["status"] = json!("queued");
    assert_eq!(
        body,
        json!({
            "namespace": "shop-test", "app": "api", "revision": 2, "image": "r.example.com/api:v2", "commit": "v2",
            "trigger": "webhook", "status": "queued", "url": url
        })
    );
    let entry = server.call("GET", url).header("x-service-token", &app.token).header("prefer", "wait=20").expect(200);
    assert_eq!(entry.json()["status"], "succeeded");
    assert_eq!(entry.json()["current"], true);
    assert_eq!(entry.header("preference-applied"), Some("wait=20"));
}

#[test]
fn one_uniform_401() {
    let server = server!().run();
    let (app, other) = (server.app("api"), server.app("other"));
    server.manage("DELETE", &format!("{}/webhook", server.app("closed").path)).expect(204);
    let body = image("v2");
    let good = || server.call("POST", &app.hook).json(&body);
    let zeros = format!("sha256={}", "0".repeat(64));
    let bearer = format!("Bearer {}", app.token);
    let calls = [
        (
            "no such app",
            server.call("POST", "/api/v1/webhook/shop-test/none").header("x-service-token", &app.token).json(&body),
        ),
        (
            "no such namespace",
            server.call("POST", "/api/v1/webhook/none/api").header("x-service-token", &app.token).json(&body),
        ),
        (
            "no webhook",
            server.call("POST", "/api/v1/webhook/shop-test/closed").header("x-service-token", &app.token).json(&body),
        ),
        (
            "malformed name",
            server.call("POST", "/api/v1/webhook/Shop_/..").header("x-service-token", &app.token).json(&body),
        ),
        (
            "encoded name",
            server.call("POST", "/api/v1/webhook/shop%2dtest/api").header("x-service-token", &app.token).json(&body),
        ),
        ("no header", good()),
        ("another app's token", good().header("x-service-token", &other.token)),
        ("wrong token", good().header("x-service-token", "rh_wrong")),
        ("empty token", good().header("x-service-token", "")),
        ("wrong signature", good().header("x-hub-signature-256", &zeros)),
        ("unreadable signature", good().header("x-hub-signature-256", "sha256=zz")),
        (
            "good token, bad signature",
            good().header("x-service-token", &app.token).header("x-hub-signature-256", &zeros),
        ),
        ("bad token, good signature", good().header("x-service-token", "rh_wrong").sign(&app.token)),
        ("repeated token", good().header("x-service-token", &app.token).header("x-service-token", &app.token)),
        ("repeated signature", good().sign(&app.token).sign(&app.token)),
        ("not ASCII", good().raw_header("x-service-token", b"rh_\xc3\xbc")),
        ("the admin token", good().header("x-service-token", &server.admin)),
        ("another's as a bearer", good().header("authorization", &format!("Bearer {}", other.token))),
        (
            "good token, bad bearer",
            good().header("x-service-token", &app.token).header("authorization", "Bearer rh_wrong"),
        ),
        ("a repeated bearer", good().header("authorization", &bearer).header("authorization", &bearer)),
        (
            "an entry as a bearer",
            server.call("GET", &format!("{}/deploys/1", app.path)).header("authorization", &bearer),
        ),
        ("in the query", server.call("POST", &format!("{}?token={}", app.hook, app.token)).json(&body)),
        ("bad content too", good().header("x-service-token", "x").header("content-type", "text/plain").body(b"{")),
        ("no such path", server.call("GET", "/api/v1/nothing")),
        (
            "no such path below webhook",
            server.call("POST", "/api/v1/webhook/a/b/c").header("x-service-token", &app.token),
        ),
        ("management without a token", server.call("GET", "/api/v1/apps")),
        (
            "an entry with a wrong token",
            server.call("GET", &format!("{}/deploys/1", app.path)).header("x-service-token", "x"),
        ),
        (
            "an entry with another's token",
            server.call("GET", &format!("{}/deploys/1", app.path)).header("x-service-token", &other.token),
        ),
        (
            "history with the webhook's token",
            server.call("GET", &format!("{}/deploys", app.path)).header("x-service-token", &app.token),
        ),
    ];
    let mut bodies = BTreeSet::new();
    let mut heads = BTreeSet::new();
    for (what, call) in calls {
        let reply = call.send();
        assert_eq!(reply.status, 401, "{what}: {}", reply.text());
        assert_eq!(reply.problem(), "unauthorized");
        let id = reply.header("x-request-id").unwrap().to_owned();
        bodies.insert(reply.text().replace(&id, ""));
        let told = reply
            .headers
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id" | "content-length"));
        heads.insert(format!("{:?}", told.collect::<Vec<_>>()));
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(heads.len(), 1, "{heads:?}");
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1, "nothing was recorded");
}

#[test]
fn a_signature_alone_is_enough_and_sha1_counts_for_nothing() {
    let server = server!().run();
    let app = server.app("api");
    let call = || server.call("POST", &app.hook).json(&image("v2"));
    call().sign(&app.token).expect(202);
    call().sign(&app.token).header("x-hub-signature", "sha1=0000").expect(202);
    call().sign(&app.token).header("x-service-token", &app.token).expect(202);
    call().header("authorization", &format!("Bearer {}", app.token)).expect(202);
    call().header("x-hub-signature", "sha1=0000").expect(401);
    let signed = call().sign(&app.token);
    signed.clone().body(image("v3").to_string().as_bytes()).expect(401);
    let upper: String = "SHA256=".to_owned() + &"0".repeat(64);
    call().header("x-hub-signature-256", &upper).expect(401);
}

#[test]
fn enable_makes_the_old_token_worthless() {
    let server = server!().run();
    let mut app = server.app("api");
    let renewed = server.manage("POST", &format!("{}/webhook", app.path)).expect(200).json();
    server.post(&app, &image("v2")).expect(401);
    app.token = renewed["token"].as_str().unwrap().to_owned();
    server.post(&app, &image("v2")).expect(202);
    server.manage("DELETE", &format!("{}/webhook", app.path)).expect(204);
    server.post(&app, &image("v2")).expect(401);
    assert_eq!(server.manage("GET", &format!("{}/webhook", app.path)).expect(404).problem(), "no-webhook");
}

#[test]
fn content_that_cannot_be_read_is_refused_by_its_kind() {
    let server = server!().run();
    let app = server.app("api");
    let raw = |media: &str, body: &[u8]| {
        server
            .call("POST", &app.hook)
            .header("x-service-token", &app.token)
            .header("content-type", media)
            .body(body)
            .send()
    };
    let json = "application/json; charset=utf-8";
    let long = "a".repeat(129);
    for (media, body, status, problem) in [
        ("text/plain", r#"{"image":"r.example.com/a:1"}"#, 415, "unsupported-media-type"),
        ("application/x-www-form-urlencoded", "payload=x", 415, "unsupported-media-type"),
        (json, "", 400, "malformed"),
        (json, "{\"image\": tru", 400, "malformed"),
        (json, "[]", 400, "malformed"),
        (json, "{}", 422, "invalid-image"),
        (json, r#"{"image":7}"#, 422, "invalid-image"),
        (json, r#"{"image":""}"#, 422, "invalid-image"),
        (json, r#"{"image":"R.example.com/API:1"}"#, 422, "invalid-image"),
        (json, r#"{"image":"r.example.com/api"}"#, 422, "invalid-image"),
        (json, r#"{"image":"r.example.com/a:1","commit":""}"#, 422, "invalid-commit"),
        (json, r#"{"image":"r.example.com/a:1","commit":"a\u001bb"}"#, 422, "invalid-commit"),
        (json, r#"{"image":"r.example.com/a:1","commit":["a"]}"#, 422, "invalid-commit"),
        (json, &format!(r#"{{"image":"r.example.com/a:1","commit":"{long}"}}"#), 422, "invalid-commit"),
    ] {
        let reply = raw(media, body.as_bytes());
        assert_eq!((reply.status, reply.problem().as_str()), (status, problem), "{body}: {}", reply.text());
    }
    let reply = raw(json, b"{\"image\": rh_secret}");
    assert!(reply.json()["detail"].as_str().unwrap().contains("line 1, column"), "{}", reply.text());
    assert!(!reply.text().contains("secret"));
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1, "nothing was recorded");
}

#[test]
fn policy_limits_the_repositories() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "repositories": ["r.example.com/api"] }));
    server.post(&app, &image("v2")).expect(202);
    let reply = server.post(&app, &json!({ "image": "evil.example.com/api:v2" })).expect(422);
    assert_eq!(reply.problem(), "image-not-allowed");
}

#[test]
fn other_methods_are_405_with_allow() {
    let server = server!().run();
    let app = server.app("api");
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let reply = server.call(method, &app.hook).header("x-service-token", &app.token).expect(405);
        assert_eq!(reply.problem(), "method-not-allowed");
        assert_eq!(reply.header("allow"), Some("POST"));
    }
    assert_eq!(server.manage("PUT", &app.path).expect(405).header("allow"), Some("GET, HEAD, PATCH, DELETE"));
}

#[test]
fn the_same_key_is_the_same_deploy() {
    let server = server!().run();
    let app = server.app("api");
    for header in ["idempotency-key", "webhook-id", "x-github-delivery"] {
        let call = server.post(&app, &image("v2")).header(header, "run-1");
        let first = call.expect(202);
        assert!(first.header("idempotent-replayed").is_none());
        let again = call.clone().header("prefer", "wait=20").expect(200);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.json()["revision"], first.json()["revision"], "{header}");
        assert_eq!(again.json()["status"], "succeeded");
        let other = server.post(&app, &image("v3")).header(header, "run-1").expect(422);
        assert_eq!(other.problem(), "idempotency-key-reused");
    }
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 4, "one for each header, and the first");
    let quoted = server.post(&app, &image("v2")).header("idempotency-key", "\"run-1\"").expect(202);
    assert_eq!(quoted.header("idempotent-replayed"), Some("true"), "quoted and bare are one key");
    for key in ["", &"x".repeat(256)] {
        let reply = server.post(&app, &image("v2")).header("idempotency-key", key).expect(422);
        assert_eq!(reply.problem(), "invalid-idempotency-key");
    }
    let refused = server.post(&app, &json!({ "image": "no tag" })).header("idempotency-key", "run-2");
    refused.expect(422);
    server.post(&app, &image("v4")).header("idempotency-key", "run-2").expect(202);
}

#[test]
fn fifty_calls_with_one_key_make_one_deploy() {
    let server = server!().run();
    let app = server.app("api");
    let call = || server.post(&app, &image("v2")).header("idempotency-key", "run-1").send();
    // On a busy machine some calls are refused with 503; CI repeats those.
    let repeated = |_| (0..20).map(|_| call()).find(|reply| reply.status != 503).unwrap();
    let replies = at_once(50, repeated);
    assert!(replies.iter().all(|reply| reply.status == 202), "{replies:?}");
    let revisions: BTreeSet<u64> = replies.iter().map(|reply| reply.json()["revision"].as_u64().unwrap()).collect();
    assert_eq!(revisions, BTreeSet::from([2]));
    let fresh = replies.iter().filter(|reply| reply.header("idempotent-replayed").is_none());
    assert_eq!(fresh.count(), 1);
}

#[test]
fn fifty_calls_at_once_get_fifty_revisions() {
    let server = server!().run();
    let app = server.app("api");
    let replies = at_once(50, |index| server.post(&app, &image(&format!("v{index}"))).send());
    let mut revisions: Vec<u64> = replies.iter().filter_map(|reply| reply.json()["revision"].as_u64()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=51).collect::<Vec<_>>());
    let history = server.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 51);
}

fn at_once(number: usize, call: impl Fn(usize) -> Reply + Sync) -> Vec<Reply> {
    thread::scope(|scope| {
        let calls: Vec<_> = (0..number)
            .map(|index| {
                scope.spawn({
                    let call = &call;
                    move || call(index)
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn a_wait_tells_how_it_ended() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s", "rollout_deadline": "2s", "on_failure": "leave" }));
    let wait = |tag: &str, seconds: u32| server.post(&app, &image(tag)).header("prefer", &format!("wait={seconds}"));
    let good = wait("v2", 20).expect(200);
    assert_eq!(good.json()["status"], "succeeded");
    assert_eq!(good.header("preference-applied"), Some("wait=20"));
    let late = wait("hang-1", 1).header("idempotency-key", "k").expect(202);
    let late = late.json();
    assert_eq!(late["status"], "rolling_out");
    let pods = (&late["progress"]["ready"], &late["progress"]["wanted"], &late["progress"]["message"]);
    assert_eq!(pods, (&json!(0), &json!(1), &json!("0 of 1 new pods are available")), "{late}");
    assert!(late["progress"]["deadline"].is_string(), "{late}");
    let bad = wait("hang-1", 90).header("idempotency-key", "k").expect(424);
    assert_eq!(bad.problem(), "deploy-failed");
    assert_eq!(bad.header("preference-applied"), Some("wait=50"));
    assert_eq!(bad.header("location"), Some("/api/v1/apps/shop-test/api/deploys/3"));
    let body = bad.json();
    assert_eq!(body["deploy"]["reason"], "rollout-deadline-exceeded");
    assert!(body["detail"].as_str().unwrap().starts_with("Revision 3 failed (rollout-deadline-exceeded): "), "{body}");
    assert!(body["deploy"]["on_cluster"] == true && body["deploy"]["current"] == false, "{body}");
    assert_eq!(body["deploy"]["progress"], json!(null));
}

#[test]
fn a_wait_follows_the_deploy_that_took_its_place() {
    let server = server!().arguments(["--driver", "simulated:1s"]).run();
    let app = server.app("api");
    let replies = at_once(3, |index| {
        // One that hangs is taken over after ten seconds; those behind it wait, and the last of them wins.
        thread::sleep(Duration::from_millis(300 * index as u64));
        let tag = if index == 0 { "hang".to_owned() } else { format!("v{index}") };
        server.post(&app, &image(&tag)).header("prefer", "wait=40").send()
    });
    for (reply, revision) in replies.iter().zip(2..) {
        let body = reply.json();
        assert_eq!((reply.status, &body["revision"]), (200, &json!(revision)), "{body}");
        if revision < 4 {
            assert_eq!((&body["status"], &body["superseded_by"]), (&json!("superseded"), &json!(4)), "{body}");
        }
    }
}

/// The deploy of an image that has this place among those of the webhook.
fn in_sequence(tag: &str, sequence: Value) -> Value {
    let mut body = image(tag);
    body["sequence"] = sequence;
    body
}

#[test]
fn deploy_of_an_older_run_is_red_once_the_newer_one_was_rolled_back() {
    let server = server!().run();
    let app = server.app("api");
    let of_run =
        |tag: &str, sequence: u64| server.post(&app, &in_sequence(tag, json!(sequence))).header("prefer", "wait=40");
    of_run("v3", 12).expect(200);
    server.manage("POST", &format!("{}/rollback", app.path)).expect(202);
    let is_back =
        || server.manage("GET", &format!("{}/deploys/3", app.path)).expect(200).json()["status"] == "succeeded";
    until("the rollback succeeded", is_back);
    let red = of_run("v2", 11).expect(424).json();
    assert!(red["type"].as_str().unwrap().ends_with("deploy-rolled-back"), "{red}");
    assert_eq!(red["detail"], "Revision 2, which superseded revision 4, was rolled back");
}

#[test]
fn deploy_of_an_older_run_changes_nothing_and_is_answered_by_the_newer_one() {
    let server = server!().run();
    let app = server.app("api");
    let of_run = |tag: &str, sequence: Value| server.post(&app, &in_sequence(tag, sequence));
    of_run("v3", json!(12)).header("prefer", "wait=40").expect(200);
    let late = of_run("v2", json!(11)).expect(202).json();
    assert_eq!((&late["status"], &late["superseded_by"]), (&json!("superseded"), &json!(2)), "{late}");
    let message = "Nothing was deployed: the sequence 11 is lower than 12, which revision 2 had brought before.";
    assert_eq!((&late["reason"], &late["message"]), (&json!("older-sequence"), &json!(message)));
    let waited = of_run("v2", json!("11")).header("prefer", "wait=40").expect(200).json();
    assert_eq!((&waited["revision"], &waited["superseded_by"]), (&json!(4), &json!(2)), "{waited}");
    let signed = server.call("POST", &app.hook).json(&in_sequence("v1", json!(1))).sign(&app.token).expect(202).json();
    assert_eq!(signed["status"], "superseded", "an old call that is sent again brings nothing back: {signed}");

    let shown = || server.manage("GET", &app.path).expect(200).json();
    let now = shown();
    assert_eq!((&now["highest_sequence"], &now["current"]["revision"]), (&json!(12), &json!(2)), "{now}");
    assert_eq!((&now["current"]["sequence"], &now["newest"]["revision"]), (&json!(12), &json!(2)), "{now}");
    for bad in
        [json!(0), json!(-1), json!(1.5), json!(9_007_199_254_740_992_u64), json!("run"), json!([1]), json!(true)]
    {
        let refused = of_run("v4", bad.clone()).expect(422);
        assert_eq!(
            (refused.problem().as_str(), &refused.json()["field"]),
            ("invalid-field", &json!("sequence")),
            "{bad}"
        );
    }
    // A person's deploy is in order whenever it comes.
    let by_hand =
        server.manage("POST", &format!("{}/deploys", app.path)).json(&in_sequence("v2", json!("first"))).expect(202);
    assert!(by_hand.json()["revision"] == 6 && by_hand.json()["status"] != "superseded", "{}", by_hand.text());
    assert_eq!(shown()["highest_sequence"], 12);

    let enabled = server.manage("POST", &format!("{}/webhook", app.path)).expect(200).json();
    assert_eq!(shown()["highest_sequence"], json!(null));
    let anew = server.call("POST", &app.hook).json(&in_sequence("v5", json!(1)));
    let anew =
        anew.header("x-service-token", enabled["token"].as_str().unwrap()).header("prefer", "wait=40").expect(200);
    assert_eq!(anew.json()["status"], "succeeded");
}

#[test]
fn a_wait_on_what_was_rolled_back_fails() {
    let server = server!().run();
    let app = server.app("api");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post(&app, &image("hang")).header("prefer", "wait=40").send());
        until("it rolls out", || {
            let entry = server.manage("GET", &format!("{}/deploys/2", app.path)).send();
            entry.status == 200 && entry.json()["status"] == "rolling_out"
        });
        let rollback = server.manage("POST", &format!("{}/rollback", app.path)).expect(202).json();
        assert_eq!((&rollback["to"]["revision"], &rollback["superseded"]), (&json!(1), &json!([2])), "{rollback}");
        let reply = waiting.join().unwrap();
        assert_eq!((reply.status, reply.problem().as_str()), (424, "deploy-rolled-back"), "{}", reply.text());
    });
    let held = server.manage("GET", &app.path).expect(200).json();
    assert_eq!(held["holds"][0]["image"], "r.example.com/api:hang");
}

#[test]
fn a_wait_on_a_cancelled_or_deleted_deploy_fails() {
    let server = server!().run();
    let app = server.app("api");
    let waiting = |key: &str, act: &dyn Fn()| {
        thread::scope(|scope| {
            let call = server.post(&app, &image("hang")).header("prefer", "wait=40").header("idempotency-key", key);
            let waiting = scope.spawn(move || call.send());
            thread::sleep(Duration::from_millis(500));
            act();
            waiting.join().unwrap()
        })
    };
    let cancelled = waiting("1", &|| {
        server.manage("POST", &format!("{}/deploys/2/cancel", app.path)).expect(200);
    });
    assert_eq!((cancelled.status, cancelled.problem().as_str()), (424, "deploy-failed"));
    assert!(cancelled.json()["detail"].as_str().unwrap().contains("was cancelled"), "{}", cancelled.text());
    let deleted = waiting("2", &|| {
        server.manage("DELETE", &app.path).expect(204);
    });
    assert_eq!((deleted.status, deleted.problem().as_str()), (424, "deploy-failed"), "{}", deleted.text());
}
