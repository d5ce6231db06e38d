//! Both limits, and whose address counts, against the real binary.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rollhook_testing::{App, Call, Reply, Server, image, server, until};

fn fail(server: &Server, app: &App, from: Option<&str>) -> Reply {
    let call = server.call("POST", &app.hook).header("x-service-token", "rh_wrong").json(&image("v2"));
    match from {
        Some(from) => call.header("x-forwarded-for", from).send(),
        None => call.send(),
    }
}

fn limited(reply: &Reply) -> u64 {
    assert_eq!((reply.status, reply.problem().as_str()), (429, "rate-limited"));
    reply.header("retry-after").unwrap().parse().unwrap()
}

/// Whether failures from there are limited; a few pass in each second.
fn is_limited(server: &Server, app: &App, from: &str) -> bool {
    (0..10).any(|_| fail(server, app, Some(from)).status == 429)
}

/// Fails until that is limited; says after how many times.
fn exhaust(server: &Server, app: &App, from: Option<&str>) -> usize {
    let limited = (0..200).position(|_| fail(server, app, from).status == 429);
    limited.unwrap_or_else(|| panic!("never limited"))
}

#[test]
fn failed_authentications_are_limited_by_source() {
    let server = server!().run();
    let app = server.app("api");
    for _ in 0..60 {
        server.post(&app, &image("v2")).header("idempotency-key", "k").expect(202);
    }
    let failures = exhaust(&server, &app, None);
    assert!((50..90).contains(&failures), "{failures}");
    let refused = until("the call is limited", || Some(fail(&server, &app, None)).filter(|reply| reply.status == 429));
    assert_eq!(limited(&refused), 1);
    let other = server.app("other");
    assert_eq!(fail(&server, &other, None).status, 401, "another app has its own limit");
    server.call("GET", "/healthz").expect(200);
}

/// Fails from this address at full speed until the guard is dropped.
struct Flood(Arc<AtomicBool>, Option<thread::JoinHandle<usize>>);

impl Flood {
    fn of(calls: Vec<Call>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let flood = move || {
            let all = calls.iter().cycle().take_while(|_| !ended.load(Ordering::Relaxed));
            all.map(|call| call.send()).inspect(|reply| assert!(matches!(reply.status, 401 | 429))).count()
        };
        Self(end, Some(thread::spawn(flood)))
    }

    fn end(mut self) {
        self.0.store(true, Ordering::Relaxed);
        assert!(self.1.take().unwrap().join().unwrap() > 0);
    }
}

#[test]
fn failures_of_others_at_the_same_address_lock_no_caller_out() {
    let mut server = server!().run();
    let app = server.app("api");
    let wrong = |server: &Server| {
        let token = server.call("POST", &app.hook).header("x-service-token", "rh_wrong").json(&image("v2"));
        let signed = server.call("POST", &app.hook).json(&image("v2")).sign("rh_wrong");
        let manager = server.call("GET", "/api/v1/apps").header("authorization", "Bearer rh_wrong");
        vec![token, signed, manager]
    };
    let good =
        |server: &Server, key: &str| server.post(&app, &image("v2")).header("idempotency-key", key).send().status;
    let flood = Flood::of(wrong(&server));
    until("strangers are over the limit", || fail(&server, &app, None).status == 429);
    for _ in 0..20 {
        assert_eq!(good(&server, "k"), 202);
        let signed = server.call("POST", &app.hook).json(&image("v2")).sign(&app.token);
        signed.header("idempotency-key", "k").expect(202);
        server.call("GET", &format!("{}/deploys/1", app.path)).header("x-service-token", &app.token).expect(200);
        server.manage("GET", "/api/v1/apps").expect(200);
    }
    flood.end();

    // A new process knows no token, until strangers have made it read this one.
    server.restart();
    let flood = Flood::of(wrong(&server));
    until("strangers are over the limit", || fail(&server, &app, None).status == 429);
    assert_eq!(good(&server, "after a restart"), 202);
    server.manage("GET", "/api/v1/apps").expect(200);

    // A token that was replaced is known again with one of the calls that are read in spite of the limit.
    let former = app.token.clone();
    let app = App { token: server.enable(&app.path), ..app.clone() };
    let call = server.post(&app, &image("v2")).header("idempotency-key", "renewed");
    until("the new token is known", || call.send().status == 202);
    let former = server.call("POST", &app.hook).header("x-service-token", &former).json(&image("v2"));
    assert_ne!(former.send().status, 202);
    flood.end();
}

/// Signs in to the console with an API token.
fn sign_in(server: &Server, token: &str) -> Reply {
    let form = server.call("POST", "/sign-in").header("content-type", "application/x-www-form-urlencoded");
    form.header("sec-fetch-site", "same-origin").body(format!("token={token}").as_bytes()).send()
}

#[test]
fn strangers_with_wrong_tokens_at_a_shared_address_keep_nobody_from_signing_in() {
    let server = server!().run();
    let wrong = |path: &str, header: &str, value: &str| server.call("GET", path).header(header, value);
    let made_up = |index: usize| {
        let hook = server.call("POST", &format!("/api/v1/webhook/shop-test/made-up-{index}"));
        hook.header("x-service-token", "rh_wrong").json(&image("v2"))
    };
    let mut calls: Vec<Call> = (0..50).map(made_up).collect();
    calls.extend((0..50).map(|_| wrong("/api/v1/apps", "authorization", "Bearer rh_wrong")));
    let floods: Vec<Flood> = (0..3).map(|_| Flood::of(calls.clone())).collect();
    let is_over = || (0..5).all(|_| wrong("/api/v1/apps", "authorization", "Bearer rh_wrong").send().status == 429);
    until("strangers are over the limit", is_over);

    // The process that makes a token has not read it yet.
    let wanted = serde_json::json!({"name": "new", "role": "viewer"});
    let token = server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json()["token"].clone();
    let token = token.as_str().unwrap();
    for _ in 0..12 {
        let login = serde_json::json!({"code": "wrong", "verifier": "wrong"});
        server.call("POST", "/api/v1/login").json(&login).expect(401);
        // No browser has begun this one.
        server.call("GET", "/sign-in/callback?state=a&code=b").expect(400);
    }
    let bearer = format!("Bearer {token}");
    until("the new token is known", || wrong("/api/v1/apps", "authorization", &bearer).send().status == 200);
    assert_eq!(sign_in(&server, token).status, 303);
    floods.into_iter().for_each(Flood::end);
}

#[test]
fn operators_learn_of_a_proxy_that_is_not_trusted() {
    let warnings = |server: &Server| server.log().matches("--trusted-proxy").count();
    let ignored = |server: &Server| server.counted("rollhook_ignored_forwards_total");
    let shown = |server: &Server, token: &str| {
        let signed_in = sign_in(server, token);
        let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        server.call("GET", "/").header("cookie", &cookie).expect(200).text().contains("--trusted-proxy")
    };
    let viewer = |server: &Server| {
        let wanted = serde_json::json!({"name": "viewer", "role": "viewer"});
        let made = server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let server = server!().run();
    assert!(!shown(&server, &server.admin));
    for _ in 0..3 {
        server.call("GET", "/healthz").header("x-forwarded-for", "192.0.2.1").expect(200);
    }
    assert_eq!((warnings(&server), ignored(&server)), (1, 3));
    assert!(shown(&server, &server.admin));
    assert!(!shown(&server, &viewer(&server)), "an address of the operator's network");

    let server = server!().arguments(["--trusted-proxy", "127.0.0.0/8"]).run();
    server.call("GET", "/healthz").header("x-forwarded-for", "192.0.2.1").expect(200);
    assert_eq!((warnings(&server), ignored(&server)), (0, 0));
    assert!(!shown(&server, &server.admin));
}

#[test]
fn x_forwarded_for_counts_from_trusted_proxies_only() {
    let server = server!().run();
    let app = server.app("api");
    exhaust(&server, &app, None);
    assert!(is_limited(&server, &app, "192.0.2.1"), "the header changes nothing");

    let server = server!().arguments(["--trusted-proxy", "127.0.0.0/8", "--trusted-proxy", "10.0.0.0/8"]).run();
    let app = server.app("api");
    exhaust(&server, &app, Some("192.0.2.1"));
    assert!(is_limited(&server, &app, "6.6.6.6, 192.0.2.1, 10.0.0.9"), "what strangers wrote is passed over");
    assert_eq!(fail(&server, &app, Some("192.0.2.2")).status, 401, "another source has its own");
    exhaust(&server, &app, Some("2001:db8::1"));
    assert!(is_limited(&server, &app, "2001:db8::ffff:1"), "one /64 is one source");
    assert_eq!(fail(&server, &app, Some("2001:db8:0:1::1")).status, 401);
}

#[test]
fn calls_of_an_app_are_limited_before_anything_is_written() {
    let server = server!().run();
    let (app, other) = (server.app("api"), server.app("other"));
    let call = server.post(&app, &image("v2")).header("idempotency-key", "k");
    let replies: Vec<Reply> = (0..300).map(|_| call.send()).collect();
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status != 202).collect();
    assert!(replies.len() - refused.len() >= 100);
    assert!(!refused.is_empty(), "300 calls took longer than 20 s");
    assert!(refused.iter().all(|reply| limited(reply) == 1));
    server.post(&other, &image("v2")).expect(202);
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 2);
}

/// Sends a call many times on one connection, and says how many were answered so.
pub(crate) fn answered(server: &Server, call: &Call, number: usize, status: u16) -> usize {
    let last = String::from_utf8(call.head(0)).unwrap();
    let sent = last.replace("connection: close\r\n", "").repeat(number - 1) + &last;
    let mut stream = TcpStream::connect(server.address).unwrap();
    let mut sender = stream.try_clone().unwrap();
    let sending = thread::spawn(move || sender.write_all(sent.as_bytes()));
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    sending.join().unwrap().unwrap();
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 ").count(), number);
    answers.matches(&format!("HTTP/1.1 {status}")).count()
}

/// Sends a call again and again, on a few connections at once, until one is limited; says how many were answered so. A
/// slow machine needs more calls: the limit gives some back meanwhile.
fn passed_until_refused(server: &Server, call: &Call, status: u16) -> usize {
    let mut passed = 0;
    for _ in 0..100 {
        let round = thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| answered(server, call, 100, status))).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        passed += round;
        if round < 400 {
            return passed;
        }
    }
    panic!("{passed} calls passed, and none was limited")
}

#[test]
fn calls_of_a_known_caller_are_limited_and_others_have_theirs() {
    let server = server!().run();
    let app = server.app("api");
    let token = |name: &str| {
        let wanted = serde_json::json!({"name": name, "role": "viewer"});
        let made = server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        format!("Bearer {}", made["token"].as_str().unwrap())
    };
    let (greedy, modest) = (token("greedy"), token("modest"));
    let missing = format!("{}/deploys/9", app.path);
    let reads = |path: &str, token: &str| server.call("GET", path).header("authorization", token);
    let pipeline = server.call("GET", &missing).header("x-service-token", &app.token);
    for call in [reads(&missing, &greedy), pipeline] {
        let passed = passed_until_refused(&server, &call, 404);
        assert!(passed >= 1_000, "{passed} calls of a caller passed");
        reads(&app.path, &modest).expect(200);
    }
    assert_eq!(answered(&server, &server.call("GET", &missing), 5, 401), 5, "strangers have limits of their own");
}

#[test]
fn sign_ins_are_calls_of_the_token_that_they_bring() {
    let server = server!().run();
    let token = |name: &str| {
        let wanted = serde_json::json!({"name": name, "role": "viewer"});
        let made = server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (greedy, modest) = (token("greedy"), token("modest"));
    let cookie = sign_in(&server, &modest).header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(sign_in(&server, &greedy).status, 303);
    let read = server.call("GET", "/api/v1/apps").header("authorization", &format!("Bearer {greedy}"));
    let ended = AtomicBool::new(false);
    // The reads keep the token over its rate meanwhile.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    answered(&server, &read, 100, 200);
                }
            });
        }
        until("sign-ins are limited", || sign_in(&server, &greedy).status == 429);
        let with_session = || {
            let form = server.call("POST", "/sign-in").header("content-type", "application/x-www-form-urlencoded");
            let form = form.header("sec-fetch-site", "same-origin").header("cookie", &cookie);
            form.body(format!("token={greedy}").as_bytes()).send().status
        };
        until("another token's session does not help", || with_session() == 429);
        assert_eq!(sign_in(&server, &modest).status, 303);
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn limits_can_be_switched_off() {
    let server = server!().unlimited().run();
    let app = server.app("api");
    assert!((0..150).all(|_| fail(&server, &app, None).status == 401));
    let call = server.post(&app, &image("v2")).header("idempotency-key", "k");
    assert!((0..150).all(|_| call.send().status == 202));
}

#[test]
fn deploys_beyond_the_quota_of_an_hour_are_refused_and_not_recorded() {
    let server = server!().arguments(["--deploys-per-hour", "3"]).run();
    let (app, other) = (server.app("api"), server.app("other"));
    for key in ["1", "2", "3"] {
        for _ in 0..2 {
            server.post(&app, &image("v2")).header("idempotency-key", key).expect(202);
        }
    }
    for call in [server.post(&app, &image("v2")), server.post(&app, &image("v2")).header("idempotency-key", "4")] {
        let wait = limited(&call.send());
        assert!((600..=1200).contains(&wait), "{wait}");
    }
    let again = server.post(&app, &image("v2")).header("idempotency-key", "1").expect(202);
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "a repeated call is answered");
    server.post(&other, &image("v2")).expect(202);
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 4);
    server.manage("POST", &format!("{}/deploys", app.path)).json(&image("v3")).expect(202);
}
