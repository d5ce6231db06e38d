//! Stopping in order, and starting again, with the real binary.

use std::{io::Read, net::TcpStream, thread, time::Duration};

use rollhook_testing::{Reply, image, server, until};

#[test]
fn on_sigterm_waits_are_answered_and_streams_end() {
    let mut server = server!().run();
    let app = server.app("api");
    let wait = server.post(&app, &image("hang")).header("prefer", "wait=50").header("idempotency-key", "k").open();
    until("it rolls out", || {
        let entry = server.manage("GET", &format!("{}/deploys/2", app.path)).send();
        entry.status == 200 && entry.json()["status"] == "rolling_out"
    });
    let mut events = server.manage("GET", &format!("{}/deploys/2/events", app.path)).open();
    let entry = server.manage("GET", &format!("{}/deploys/2", app.path)).header("prefer", "wait=50").open();
    let idle = TcpStream::connect(server.address).unwrap();
    thread::sleep(Duration::from_millis(300));
    server.signal("TERM");
    let reply = Reply::read(wait);
    assert_eq!((reply.status, &reply.json()["revision"]), (202, &2.into()));
    assert_eq!(Reply::read(entry).status, 200);
    let mut text = String::new();
    events.read_to_string(&mut text).unwrap();
    assert!(text.contains("rolling_out"));
    assert!(server.ended(), "{}", server.log());
    assert!(TcpStream::connect(server.address).is_err());
    drop(idle);
}

#[test]
fn a_restart_goes_on_where_the_last_one_stopped() {
    let server = server!().run();
    let app = server.app_with("api", serde_json::json!({ "settle": "1s" }));
    let accepted = server.post(&app, &image("v2")).header("idempotency-key", "k").expect(202).json();
    let admin = server.admin.clone();
    let server = server.kill().run();
    assert_eq!(server.admin, admin, "the admin token is kept");
    let again = server.post(&app, &image("v2")).header("idempotency-key", "k").header("prefer", "wait=40").expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json()["revision"], accepted["revision"]);
}
