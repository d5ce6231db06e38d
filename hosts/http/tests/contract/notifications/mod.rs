//! Receivers that are told of deploys, by the real binary and a receiver on this machine.

mod services;

use std::collections::BTreeSet;

use rollhook_testing::{Server, Start, fixtures::Receiver, image, server, until};
use serde_json::{Value, json};

fn start() -> Start {
    server!().arguments(["--allow-local-receivers"])
}

/// Adds a receiver of everything, and returns the secret of its signatures.
fn add(server: &Server, name: &str, url: &str) -> String {
    let wanted = json!({ "name": name, "kind": "webhook", "url": url });
    let added = server.manage("POST", "/api/v1/receivers").json(&wanted).expect(201).json();
    added["secret"].as_str().unwrap().to_owned()
}

fn listed(server: &Server, name: &str) -> Value {
    let list = server.manage("GET", "/api/v1/receivers").expect(200).json();
    list["receivers"].as_array().unwrap().iter().find(|receiver| receiver["name"] == name).unwrap().clone()
}

/// The types and subjects of these events.
fn events(expected: &[(&str, u64)]) -> Vec<(String, String)> {
    let event = |(event, revision): &(&str, u64)| (format!("rollhook.deploy.{event}"), format!("deploys/{revision}"));
    expected.iter().map(event).collect()
}

#[test]
fn receiver_is_told_of_each_deploy_by_signed_cloud_events() {
    let (server, receiver) = (start().run(), Receiver::start());
    let app = server.app("api");
    let secret = add(&server, "ops", &format!("{}/hook?from=rollhook", receiver.url));
    let tested = server.manage("POST", "/api/v1/receivers/ops/test").expect(200).json();
    assert_eq!(tested, json!({ "delivered": true, "answer": "204 No Content" }));
    let test = &receiver.sent()[0];
    assert_eq!(test.request, "POST /hook?from=rollhook HTTP/1.1");
    assert!(test.is_signed(&secret) && test.json()["type"] == "rollhook.test");
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    let expected = events(&[("accepted", 2), ("succeeded", 2)]);
    until("the deploy is told", || (receiver.taken()[1..] == expected).then_some(()).ok_or(receiver.sent()));
    let event = receiver.sent()[2].json();
    assert!(receiver.sent().iter().all(|sent| sent.is_signed(&secret)));
    let base = format!("http://{}", server.address);
    assert_eq!(event["source"], format!("{base}/api/v1/apps/shop-test/api"));
    assert_eq!(event["data"]["image"], "r.example.com/api:v2");
    assert_eq!(event["data"]["url"], format!("{base}/api/v1/apps/shop-test/api/deploys/2"));
    let known = until("the status is stored", || {
        Some(listed(&server, "ops")).filter(|receiver| receiver["last_delivered_at"].is_string())
    });
    assert!(known.get("failing_since").is_none() && known.get("secret").is_none(), "{known}");
    server.manage("DELETE", "/api/v1/receivers/ops").expect(204);
    assert_eq!(server.manage("DELETE", "/api/v1/receivers/ops").expect(404).problem(), "receiver-not-found");
    let database = std::fs::read(server.file("rollhook.db")).unwrap();
    for text in [&database[..], server.log().as_bytes()] {
        assert!(!text.windows(secret.len()).any(|window| window == secret.as_bytes()), "the secret is sealed");
    }
}

#[test]
fn replaced_secret_signs_what_is_told_from_then_on_and_tests_are_limited() {
    let (server, receiver) = (start().run(), Receiver::start());
    let former = add(&server, "ops", &receiver.url);
    let path = "/api/v1/receivers/ops/rotate";
    let made = server.manage("POST", path).expect(200).json()["secret"].as_str().unwrap().to_owned();
    server.manage("POST", "/api/v1/receivers/ops/test").expect(200);
    let test = receiver.sent().pop().unwrap();
    assert!(test.is_signed(&made) && !test.is_signed(&former));
    let given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let answer = server.manage("POST", path).json(&json!({ "secret": given })).expect(200).json();
    assert_eq!(answer, json!({}));
    server.manage("POST", path).json(&json!({ "secret": "hunter2" })).expect(422);
    assert_eq!(server.manage("POST", "/api/v1/receivers/none/rotate").expect(404).problem(), "receiver-not-found");
    let limited = until("tests are limited", || {
        let tested = server.manage("POST", "/api/v1/receivers/ops/test").send();
        (tested.status != 200).then_some(tested)
    });
    assert_eq!((limited.status, limited.problem()), (429, "rate-limited".to_owned()));
    assert!(limited.header("retry-after").is_some() && receiver.sent().pop().unwrap().is_signed(given));
}

#[test]
fn receiver_that_fails_is_told_later_and_others_at_once() {
    let (server, good, bad) = (start().run(), Receiver::start(), Receiver::start());
    let app = server.app("api");
    add(&server, "good", &good.url);
    add(&server, "bad", &bad.url);
    let expected = |revision| events(&[("accepted", revision), ("succeeded", revision)]);
    let answers = [
        Some("500 Internal Server Error"),
        Some("429 Too Many Requests\r\nRetry-After: 1"),
        Some("302 Found\r\nLocation: http://127.0.0.1:9/"),
        None,
    ];
    for (revision, answer) in (2..).zip(answers) {
        bad.answer(answer);
        let before = bad.sent().len();
        server.post(&app, &image(&format!("v{revision}"))).header("prefer", "wait=50").expect(200);
        until("the good one is told", || good.taken().ends_with(&expected(revision)));
        until("the bad one was tried", || bad.sent().len() > before);
        if let Some(answer) = answer {
            let failing = until("the failure is shown", || {
                let receiver = listed(&server, "bad");
                receiver["failure"].is_string().then_some(receiver)
            });
            let failure = failing["failure"].as_str().unwrap();
            assert!(failure.starts_with(&format!("127.0.0.1 answered {}", &answer[..3])), "{failure}");
        }
        bad.answer(Some("204 No Content"));
        until("the bad one is told", || bad.taken().ends_with(&expected(revision)));
        until("it is well again", || listed(&server, "bad").get("failing_since").is_none());
    }
    let ids: Vec<_> = bad.sent().iter().map(|sent| sent.headers["webhook-id"].clone()).collect();
    assert!(ids.windows(2).any(|pair| pair[0] == pair[1]), "an attempt is repeated under its id");
}

#[test]
fn question_that_is_withdrawn_and_asked_anew_is_told_anew() {
    let (server, receiver) = (start().run(), Receiver::start());
    let app = server.app("api");
    add(&server, "ops", &receiver.url);
    let set = |name: &str, without_verdict: &str| {
        let settings = json!({ "url": "http://route.invalid/" });
        let check = json!({
            "kind": "http", "every": "1s", "failures": 1, "without_verdict": without_verdict, "settings": settings,
        });
        server.manage("PUT", &format!("{}/checks/{name}", app.path)).json(&check).expect(200);
    };
    let entry = || server.manage("GET", &format!("{}/deploys/2", app.path)).expect(200).json();
    let told = || receiver.taken().iter().filter(|(kind, _)| kind.ends_with(".awaiting_decision")).count();
    set("gone", "ask");
    server.post(&app, &image("v2")).expect(202);
    until("the question is told", || told() == 1);
    for times in [2, 3] {
        set("gone", "wait");
        until("the question is withdrawn", || entry()["decision"].is_null());
        set("gone", "ask");
        until("the question is told again", || told() == times);
    }
    let questions = receiver.sent().into_iter().filter(|sent| sent.body.contains("awaiting_decision"));
    let ids: BTreeSet<_> = questions.map(|sent| sent.headers["webhook-id"].clone()).collect();
    assert_eq!(ids.len(), 3, "each is another notification");
    server.manage("POST", &format!("{}/deploys/2/verdict", app.path)).json(&json!({ "verdict": "pass" })).expect(200);
    until("the end is told", || receiver.taken().ends_with(&events(&[("succeeded", 2)])));
    assert_eq!(told(), 3);
}

#[test]
fn deploy_that_ended_before_the_server_was_killed_is_told_after_the_restart() {
    let (mut server, receiver) = (start().run(), Receiver::start());
    let app = server.app("api");
    add(&server, "ops", &receiver.url);
    receiver.answer(None);
    let mut expected = Vec::new();
    for revision in 2..5 {
        server.post(&app, &image(&format!("v{revision}"))).header("prefer", "wait=50").expect(200);
        server.restart();
        expected.extend(events(&[("accepted", revision), ("succeeded", revision)]));
    }
    receiver.answer(Some("200 OK"));
    until("everything is told", || (receiver.taken() == expected).then_some(()).ok_or(receiver.taken()));
}

#[test]
fn addresses_of_receivers_are_bounded() {
    let server = server!().arguments(["--receiver-host", "*.example.com"]).run();
    for (url, why) in [
        ("https://127.0.0.1/", "--allow-local-receivers"),
        ("https://169.254.169.254/latest", "--allow-local-receivers"),
        ("http://hooks.example.com/", "--allow-local-receivers"),
        ("https://hooks.example.org/", "--receiver-host"),
        ("https://u:hunter2@hooks.example.com/", "credentials"),
    ] {
        let wanted = json!({ "name": "ops", "kind": "webhook", "url": url });
        let refused = server.manage("POST", "/api/v1/receivers").json(&wanted).expect(422);
        let text = refused.text();
        assert!(text.contains(why) && text.contains("\"url\"") && !text.contains("hunter2"), "{text}");
    }
    let wanted = json!({ "name": "ops", "kind": "webhook", "url": "https://hooks.example.com/" });
    server.manage("POST", "/api/v1/receivers").json(&wanted).expect(201);
    assert_eq!(server.manage("POST", "/api/v1/receivers").json(&wanted).expect(409).problem(), "receiver-exists");
}
