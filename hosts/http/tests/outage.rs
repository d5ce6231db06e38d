//! The store goes away under the real binary, and comes back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod common;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use common::{Server, image};

const LOCK: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()
db.execute('ROLLBACK')
";

/// Another process that holds the database's write lock for as long as it lives; none without Python.
fn lock(server: &Server) -> Option<Child> {
    let file = server.file("rollhook.db");
    let mut command = Command::new("python3");
    command.args(["-c", LOCK]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
    (line == "locked\n").then_some(child)
}

#[test]
fn a_locked_store_is_503_and_nothing_is_lost_or_doubled() {
    let server = Server::start();
    let app = server.app("api");
    let Some(mut locked) = lock(&server) else {
        return common::skip(
            "a_locked_store_is_503_and_nothing_is_lost_or_doubled",
            "python3 cannot lock the database",
        );
    };
    let call = server.post(&app, &image("v2")).header("idempotency-key", "k");
    let away = call.expect(503);
    assert_eq!(away.problem(), "store-unavailable");
    assert!(away.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(!away.text().contains("sqlite") && !away.text().contains("rollhook.db"), "{}", away.text());
    server.call("GET", "/healthz").expect(200);
    // What can be checked without writing still is: a wrong token is no outage.
    server.post(&app, &image("v2")).header("x-service-token", "twice").expect(401);
    drop(locked.stdin.take());
    locked.wait().unwrap();
    let mut reply = call.send();
    common::until("the store is back", || {
        reply = call.send();
        reply.status == 202
    });
    assert_eq!(reply.json()["revision"], 2);
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 2);
    call.header("prefer", "wait=30").expect(200);
}
