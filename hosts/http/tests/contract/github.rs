//! A push as GitHub really sends it, signed as GitHub signs it, against the real binary.

use rollhook_testing::{App, Call, Server, fixtures::push_payloads, server, skip, test_name};
use serde_json::{Value, json};

fn delivery(server: &Server, hook: &str, payload: &Value, id: &str) -> Call {
    server
        .call("POST", hook)
        .header("user-agent", "GitHub-Hookshot/044aadd")
        .header("x-github-event", "push")
        .header("x-github-delivery", id)
        .header("x-github-hook-id", "292430182")
        .json(payload)
}

/// An app that is built from the repository of GitHub's examples, by a builder that only seems to build.
fn git_app(server: &Server) -> App {
    let git = json!({
        "url": "https://github.com/Codertocat/Hello-World.git", "branch": "master",
        "image_repository": "registry.example.com/hello"
    });
    server.register("hello", &json!({ "git": git }))
}

#[test]
fn a_real_push_is_known_by_its_signature_alone() {
    let pushes = match push_payloads() {
        Ok(pushes) => pushes,
        Err(reason) => return skip(&test_name!(), &reason),
    };
    let server = server!().run();
    let app = git_app(&server);
    let mut revisions = Vec::new();
    for (index, payload) in pushes.iter().enumerate() {
        let id = format!("72d3162e-cc78-11e3-81ab-4c9367dc09{index:02}");
        let call = delivery(&server, &app.hook, payload, &id);
        call.clone().sign("another secret").expect(401);
        call.expect(401);
        let call = call.sign(&app.token).header("x-hub-signature", "sha1=0000");
        if payload["ref"] != "refs/heads/master" {
            let answer = call.expect(200).json();
            assert_eq!(answer["deployed"], false);
            assert!(answer["message"].as_str().unwrap().contains("tag \"simple-tag\""), "{answer}");
            continue;
        }
        let first = call.expect(202).json();
        assert_eq!((&first["commit"], &first["trigger"]), (&payload["after"], &json!("webhook")));
        let again = call.expect(202);
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "a redelivery is no second deploy");
        assert_eq!(again.json()["revision"], first["revision"]);
        revisions.push(first["revision"].clone());
    }
    assert!(!revisions.is_empty() && revisions.iter().all(|revision| *revision == 1), "they tell of one push");
    let entry = server.manage("GET", &format!("{}/deploys/1", app.path)).expect(200).json();
    assert_eq!(entry["actor"], "GitHub: Codertocat");
}

#[test]
fn image_app_answers_a_push_with_wrong_kind() {
    let pushes = match push_payloads() {
        Ok(pushes) => pushes,
        Err(reason) => return skip(&test_name!(), &reason),
    };
    let server = server!().run();
    let app = server.app("api");
    let call = delivery(&server, &app.hook, &pushes[0], "72d3162e-cc78-11e3-81ab-4c9367dc0900");
    let reply = call.clone().sign(&app.token).expect(409);
    assert_eq!(reply.problem(), "wrong-kind");
    assert!(reply.text().contains("built from git"), "{}", reply.text());
    call.expect(401);
}

#[test]
fn push_of_up_to_25_mib_is_taken_from_those_who_hold_the_token() {
    let server = server!().run();
    let app = git_app(&server);
    let push = |commit: &str, size: usize| json!({ "ref": "refs/heads/master", "after": commit.repeat(20), "padding": "x".repeat(size) });
    let large = push("a1", 3 << 20);
    let github = delivery(&server, &app.hook, &large, "one");
    github.clone().sign(&app.token).expect(202);
    github.sign("another secret").expect(401);
    let gitlab = |token: &str, payload: &Value| {
        server
            .call("POST", &app.hook)
            .header("x-gitlab-event", "Push Hook")
            .header("x-gitlab-token", token)
            .json(payload)
    };
    gitlab(&app.token, &push("b2", 24 << 20)).expect(202);
    gitlab("another secret", &large).expect(401);
    let reply = gitlab(&app.token, &push("c3", 25 << 20)).expect(413);
    assert!(reply.text().contains("25 MiB"), "{}", reply.text());
    // A call of CI has the usual size, whatever it holds.
    server.call("POST", &app.hook).header("x-service-token", &app.token).json(&large).expect(413);
}
