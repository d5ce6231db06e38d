//! Connections that strangers hold, and what they leave to others, against the real binary.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use rollhook_testing::{Call, Reply, Server, free_address, image, server, until};
use serde_json::json;

fn idle(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn newcomer_gets_in_while_an_address_holds_more_than_its_share_of_connections() {
    let server = server!().run();
    let app = server.app("api");
    let mut held: Vec<TcpStream> = (0..1_100).map(|_| idle(&server)).collect();
    server.post(&app, &image("v2")).expect(202);
    assert_eq!(held[0].read(&mut [0]).unwrap_or(0), 0, "the oldest connection is closed");
    held[1_099].set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert!(held[1_099].read(&mut [0]).is_err(), "the newest connection is open");
    assert!(server.counted("rollhook_http_connections") <= 1_001);
}

#[test]
fn good_call_is_answered_while_strangers_open_more_connections_than_files_are_left() {
    let limits = "ulimit -Sn 300 && ulimit -Hn 700 && exec \"$@\"";
    let server = server!().through(["sh", "-c", limits, "sh"]).run();
    let app = server.app("api");
    let limit = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let limit = limit.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(limit.split_whitespace().next(), Some("700"), "the soft limit is raised");
    assert_eq!(server.log().matches("few files may be open").count(), 1);
    let held: Vec<TcpStream> = (0..800).map(|_| idle(&server)).collect();
    server.post(&app, &image("v2")).expect(202);
    assert!(!server.log().contains("accepting a connection failed"));
    drop(held);
}

#[test]
fn peer_that_never_reads_loses_its_connection() {
    let server = server!().run();
    let many = server.call("GET", "/api/v1/openapi.json").head(0).repeat(200);
    let many = String::from_utf8(many).unwrap().replace("connection: close\r\n", "");
    let held: Vec<TcpStream> = (0..20).map(|_| idle(&server)).collect();
    for mut stream in &held {
        stream.write_all(many.as_bytes()).unwrap();
    }
    until("the connections are closed", || server.counted("rollhook_http_connections") == 1);
    drop(held);
}

#[test]
fn half_closed_client_gets_its_answer() {
    let server = server!().driver("simulated:500ms").run();
    let app = server.app("api");
    let call = server.post(&app, &image("v2")).header("prefer", "wait=50").open();
    call.shutdown(Shutdown::Write).unwrap();
    let reply = Reply::read(call);
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("succeeded")));
}

#[test]
fn known_callers_large_body_is_read_while_strangers_hold_theirs() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("v2")).expect(202);
    let stranger = server.call("POST", &app.hook);
    let held: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = idle(&server);
            stream.write_all(&stranger.head(1024 * 1024)).unwrap();
            stream.write_all(&[b'x'; 100_000]).unwrap();
            stream
        })
        .collect();
    let large = json!({ "image": "r.example.com/api:v3", "padding": "x".repeat(500_000) });
    server.post(&app, &large).expect(202);
    assert!(held.iter().any(is_open), "the call was answered only after the strangers' bodies");
}

/// Whether nothing was answered, and the connection is open.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Begins a call whose body of this length stalls after its first 100,000 bytes.
fn stalled(server: &Server, call: &Call, length: usize) -> TcpStream {
    let mut stream = idle(server);
    stream.write_all(&call.head(length)).unwrap();
    stream.write_all(&vec![b'x'; 100_000.min(length / 2)]).unwrap();
    stream
}

#[test]
fn signed_push_is_read_while_another_address_stalls_as_many_as_it_can() {
    let server = server!().arguments(["--trusted-proxy", "127.0.0.0/8"]).run();
    let git = json!({
        "url": "https://github.com/Codertocat/Hello-World.git", "branch": "master",
        "image_repository": "registry.example.com/hello"
    });
    let app = server.register("hello", &json!({ "git": git }));
    let push = |from: &str| {
        let call = server.call("POST", &app.hook).header("x-github-event", "push").header("x-github-delivery", from);
        call.header("content-type", "application/json").header("x-forwarded-for", from)
    };
    let forged = push("192.0.2.1").header("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)));
    let held: Vec<TcpStream> = (0..20).map(|_| stalled(&server, &forged, 25 << 20)).collect();
    let large = json!({ "ref": "refs/heads/master", "after": "a1".repeat(20), "padding": "x".repeat(8 << 20) });
    push("192.0.2.2").body(large.to_string().as_bytes()).sign(&app.token).expect(202);
    assert!(held.iter().any(is_open), "the push was answered only after the stranger's");
}

#[test]
fn signed_push_is_read_while_many_addresses_stall_as_many_as_they_can() {
    let server = server!().arguments(["--trusted-proxy", "127.0.0.0/8"]).run();
    let app = server.app("api");
    let from = |address: &str| server.call("POST", &app.hook).header("x-forwarded-for", address);
    let mut held = Vec::new();
    for network in 1..=8 {
        let forged = from(&format!("192.0.2.{network}")).header("x-hub-signature-256", &format!("sha256={:064}", 0));
        held.extend((0..8).map(|_| stalled(&server, &forged, 1 << 20)));
        held.extend((0..16).map(|_| stalled(&server, &forged, 60_000)));
    }
    let signed = json!({ "image": "r.example.com/api:v2", "padding": "x".repeat(30_000) });
    from("192.0.2.9").json(&signed).sign(&app.token).expect(202);
    assert!(held.iter().any(is_open), "the push was answered only after the strangers'");
}

#[test]
fn call_that_waits_for_its_deploy_holds_no_room_for_its_body() {
    let server = server!().driver("simulated:100s").unlimited().run();
    let app = server.register("api", &json!({ "image": "r.example.com/api:v1", "policy": { "settle": "0s" } }));
    let large = json!({ "image": "r.example.com/api:v2", "padding": "x".repeat(1_000_000) });
    let call = server.post(&app, &large).header("idempotency-key", "k");
    call.expect(202);
    let waiting: Vec<TcpStream> = (0..8).map(|_| call.clone().header("prefer", "wait=50").open()).collect();
    for _ in 0..4 {
        call.expect(202);
    }
    assert!(waiting.iter().all(is_open), "a call that waits was answered");
}

#[test]
fn body_that_stalls_frees_its_room_before_the_time_of_a_small_slow_one_is_over() {
    let server = server!().run();
    let app = server.app("api");
    let call = server.call("POST", &app.hook);
    let slow = stalled(&server, &call, 100);
    let reply = Reply::read(stalled(&server, &call, 1 << 20));
    assert_eq!((reply.status, reply.problem().as_str()), (408, "slow-body"));
    assert!(is_open(&slow), "a small body takes no room, and has its 10 s");
}

#[test]
fn probes_and_metrics_are_answered_on_their_own_listener_alone() {
    let probes = free_address();
    let server = server!().arguments(["--probe-listen", &probes.to_string()]).run();
    let app = server.app("api");
    for path in ["/healthz", "/readyz", "/metrics"] {
        Call::to(probes, "GET", path).expect(200);
        server.call("GET", path).expect(401);
    }
    assert!(Call::to(probes, "GET", "/metrics").expect(200).text().contains("rollhook_http_requests_total"));
    for path in ["/api/v1/openapi.json", "/api/v1/apps", app.path.as_str(), "/"] {
        let call = Call::to(probes, "GET", path).header("authorization", &format!("Bearer {}", server.admin));
        assert_eq!(call.expect(404).problem(), "not-found");
    }
    Call::to(probes, "POST", &app.hook).header("x-service-token", &app.token).json(&image("v2")).expect(404);
    server.post(&app, &image("v2")).expect(202);
}

#[test]
fn call_beyond_the_waits_of_its_app_is_answered_at_once() {
    let server = server!().driver("simulated:100s").unlimited().run();
    let app = server.register("api", &json!({ "image": "r.example.com/api:v1", "policy": { "settle": "0s" } }));
    let call = server.post(&app, &image("v2")).header("idempotency-key", "k");
    call.expect(202);
    let mut waiting: Vec<TcpStream> = (0..110).map(|_| call.clone().header("prefer", "wait=50").open()).collect();
    let is_answered = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let answered = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        answered
    };
    until("ten calls are answered", || waiting.iter().filter(|stream| is_answered(stream)).count() == 10);
    let at = waiting.iter().position(is_answered).unwrap();
    let reply = Reply::read(waiting.swap_remove(at));
    assert_eq!((reply.status, reply.header("preference-applied")), (202, None));
    let entry = server.call("GET", &format!("{}/deploys/2", app.path)).header("x-service-token", &app.token);
    let reply = entry.header("prefer", "wait=50").expect(200);
    assert_eq!(reply.header("preference-applied"), None);
}

#[test]
fn newcomer_gets_in_while_one_known_caller_stalls_as_many_bodies_as_it_can() {
    // 444 connections.
    let server = server!().through(["sh", "-c", "ulimit -n 700 && exec \"$@\"", "sh"]).run();
    let (leaked, app) = (server.app("leaked"), server.app("api"));
    server.post(&leaked, &image("v2")).expect(202);
    let stalling = server.post(&leaked, &image("v3"));
    let held: Vec<TcpStream> = (0..450).map(|_| stalled(&server, &stalling, 100)).collect();
    let newcomer = server.post(&app, &image("v2")).open();
    newcomer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(Reply::read(newcomer).status, 202);
    assert!(is_open(&held[0]), "the newcomer was answered only after the others' time was over");
}

#[test]
fn large_bodies_of_one_known_caller_leave_room_to_another() {
    let server = server!().run();
    let (leaked, app) = (server.app("leaked"), server.app("api"));
    for app in [&leaked, &app] {
        server.post(app, &image("v2")).expect(202);
    }
    let stalling = server.post(&leaked, &image("v3"));
    let held: Vec<TcpStream> = (0..40).map(|_| stalled(&server, &stalling, 1 << 20)).collect();
    let large = json!({ "image": "r.example.com/api:v3", "padding": "x".repeat(500_000) });
    server.post(&app, &large).expect(202);
    let open = held.iter().filter(|stream| is_open(stream)).count();
    assert!(open > 20, "the call was answered only after the others' bodies: {open} are left");
}
