//! The real binary killed at chosen system calls, between one step of an accept, or of a start, and the next.

use std::{fs, process::Command};

use rollhook_testing::{
    App, Connection, Server,
    process::{Tracer, is_root},
    server, skip, test_name,
};
use serde_json::json;

/// What writes an answer to a socket.
const ANSWER: &str = "writev,sendto,sendmsg";
const FLUSH: &str = "fdatasync,fsync";
const STORE: &str = "pwrite64";

#[test]
fn server_killed_before_the_answer_has_stored_the_entry() {
    if !has_strace() {
        return skip(&test_name!(), "strace cannot be run here");
    }
    let mut server = server!().unlimited().run();
    let app = server.app("api");
    for label in ["one", "two", "three"] {
        server = killed_at(ANSWER, server, &app, label);
        let (replayed, revision) = post(&server, &app, label).unwrap();
        assert!(replayed, "{label} was stored before it was to be answered");
        // Not even the killed process's engine made another one of it.
        assert_eq!(recorded(&server, &app, label), [revision]);
    }
}

#[test]
fn server_killed_before_the_write_or_the_flush_stores_one_entry() {
    if !has_strace() {
        return skip(&test_name!(), "strace cannot be run here");
    }
    let mut server = server!().unlimited().run();
    let app = server.app("api");
    for (number, calls) in [FLUSH, STORE, FLUSH, STORE, FLUSH, STORE].into_iter().enumerate() {
        let label = format!("{calls}-{number}");
        server = killed_at(calls, server, &app, &label);
        let (_, revision) = post(&server, &app, &label).unwrap();
        assert_eq!(recorded(&server, &app, &label), [revision]);
    }
}

#[test]
fn interrupted_first_start_is_completed_by_the_next() {
    if !has_strace() {
        return skip(&test_name!(), "strace cannot be run here");
    }
    let changes = format!("mkdir,pwrite64,{FLUSH},rename,renameat2,link,linkat,unlink,ftruncate");
    // The how manieth of a thread's calls that change files; there are about 50 until it listens. Among the writes are
    // those of the key and of the admin token.
    let points = [1, 2, 3, 4, 6, 10, 14, 20, 30, 42].map(|number| (changes.as_str(), number));
    for (calls, number) in points.into_iter().chain([1, 2, 3, 4].map(|number| ("write", number))) {
        let start = server!().unlimited();
        let inject = format!("inject={calls}:signal=SIGKILL:when={number}");
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", &inject];
        let killed = start.clone().through(strace).server_command().output().unwrap();
        assert!(killed.stdout.is_empty(), "{calls} {number}: it has started");
        let server = start.run();
        let app = server.app("api");
        post(&server, &app, "after").unwrap();
        server.kill();
        let made = fs::read_dir(start.file("keys")).unwrap().filter(|file| {
            let name = file.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".key")
        });
        assert_eq!(made.count(), 1, "{calls} {number}");
    }
}

/// Posts while the next of these calls kills the server, and starts it again.
fn killed_at(calls: &str, server: Server, app: &App, label: &str) -> Server {
    let strace = Tracer::attach(server.pid(), calls, 1);
    assert!(post(&server, app, label).is_none(), "{calls}: the server answered");
    let start = server.kill();
    strace.wait();
    start.run()
}

/// Whether servers can be traced: a server keeps its memory from all processes but root's.
fn has_strace() -> bool {
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let attached = || {
        let mut server = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = server.id().to_string();
        let attached = Command::new("timeout").args(["0.5", "strace", "-o", "/dev/null", "-p", &pid]).output().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        String::from_utf8_lossy(&attached.stderr).contains(" attached")
    };
    is_root() && traced.is_ok_and(|status| status.success()) && attached()
}

/// Whether the call was known already, and its revision; none where there was no answer.
fn post(server: &Server, app: &App, label: &str) -> Option<(bool, u64)> {
    let call = server
        .post(app, &json!({ "image": "r.example.com/api:next", "commit": label }))
        .header("idempotency-key", label);
    let answer = Connection::open(server.address).ok()?.send(&call).ok()?;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let replayed = answer.header("idempotent-replayed").is_some();
    Some((replayed, answer.json()["revision"].as_u64().unwrap()))
}

/// The revisions of this commit, each of which ends.
fn recorded(server: &Server, app: &App, label: &str) -> Vec<u64> {
    let get = |path: String| server.manage("GET", &path).header("prefer", "wait=50").expect(200).json();
    let page = get(format!("{}/deploys?limit=200", app.path));
    let deploys = page["deploys"].as_array().unwrap().iter().filter(|deploy| deploy["commit"] == label);
    let revisions: Vec<u64> = deploys.map(|deploy| deploy["revision"].as_u64().unwrap()).collect();
    for revision in &revisions {
        let ended = get(format!("{}/deploys/{revision}", app.path));
        assert!(matches!(ended["status"].as_str(), Some("succeeded" | "superseded")), "{ended}");
    }
    revisions
}
