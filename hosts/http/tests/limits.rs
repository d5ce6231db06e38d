//! Both limits, and whose address counts, against the real binary.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

use std::{thread, time::Duration};

use rollhook_testing::{App, Reply, Server, image, server};

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
    assert_eq!(limited(&fail(&server, &app, None)), 1);
    // Whoever shares the address is refused too, before anything is read for them, and let in again in time.
    assert_eq!(limited(&server.post(&app, &image("v2")).send()), 1);
    assert_eq!(server.manage("GET", "/api/v1/apps").send().status, 429);
    server.call("GET", "/healthz").expect(200);
    thread::sleep(Duration::from_secs(1));
    server.post(&app, &image("v2")).header("idempotency-key", "k").expect(202);
}

#[test]
fn x_forwarded_for_counts_from_trusted_proxies_only() {
    let server = server!().run();
    let app = server.app("api");
    exhaust(&server, &app, None);
    assert_eq!(fail(&server, &app, Some("192.0.2.1")).status, 429, "the header changes nothing");

    let server = server!().arguments(["--trusted-proxy", "127.0.0.0/8", "--trusted-proxy", "10.0.0.0/8"]).run();
    let app = server.app("api");
    exhaust(&server, &app, Some("192.0.2.1"));
    assert_eq!(
        fail(&server, &app, Some("6.6.6.6, 192.0.2.1, 10.0.0.9")).status,
        429,
        "what strangers wrote is passed over"
    );
    assert_eq!(fail(&server, &app, Some("192.0.2.2")).status, 401, "another source has its own");
    exhaust(&server, &app, Some("2001:db8::1"));
    assert_eq!(fail(&server, &app, Some("2001:db8::ffff:1")).status, 429, "one /64 is one source");
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

#[test]
fn limits_can_be_switched_off() {
    let server = server!().unlimited().run();
    let app = server.app("api");
    assert!((0..150).all(|_| fail(&server, &app, None).status == 401));
    let call = server.post(&app, &image("v2")).header("idempotency-key", "k");
    assert!((0..150).all(|_| call.send().status == 202));
}
