//! The store is away for a while: everybody is told so, nothing is lost, and nobody has to restart anything.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use rollhook_testing::{App, Call, Reply, Server, image, process::Python, server, skip, test_name, until};
use serde_json::Value;

/// Holds SQLite's write lock, as a tool does that somebody forgot at its prompt. Others may still read.
const NOBODY_WRITES: &str = "
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute('BEGIN EXCLUSIVE')
print('ready', flush=True)
sys.stdin.read()
connection.execute('ROLLBACK')
";

/// Holds all locks of the write-ahead log's index, bytes 120 to 127 of its file, as SQLite does while it recovers a
/// log.
const NOBODY_READS: &str = "
import fcntl, sys
file = open(sys.argv[1] + '-shm', 'r+b')
fcntl.lockf(file, fcntl.LOCK_EX, 8, 120)
print('ready', flush=True)
sys.stdin.read()
";

#[test]
fn locked_store_answers_503_to_deploys_and_is_still_read() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("before")).header("prefer", "wait=50").expect(200);
    let database = server.file("rollhook.db").display().to_string();
    let Some(lock) = Python::run(NOBODY_WRITES, &[&database]) else {
        return skip(&test_name!(), "there is no python3");
    };
    for tag in ["locked1", "locked2"] {
        let body = away(&server.post(&app, &image(tag)));
        assert_eq!(body["maybe_recorded"], true, "a store that is slower than its callers may still do it: {body}");
    }
    away(&server.manage("POST", &format!("{}/rollback", app.path)));
    // What can be told is told.
    server.post(&app, &image("locked3")).header("x-service-token", "rh_wrong").expect(401);
    server.manage("GET", &format!("{}/deploys", app.path)).expect(200);
    server.call("GET", "/healthz").expect(200);
    until("it is known not to be ready", || server.call("GET", "/readyz").send().status == 503);
    away(&server.call("GET", "/readyz"));
    lock.end();
    recovers(&server, &app);
    assert_eq!(commits(&server, &app), ["before", "after"], "what was refused is not in the history");
}

#[test]
fn unreadable_store_answers_503_and_never_401() {
    let server = server!().run();
    let app = server.app("api");
    let database = server.file("rollhook.db").display().to_string();
    let Some(lock) = Python::run(NOBODY_READS, &[&database]) else { return skip(&test_name!(), "there is no python3") };
    let unread = [
        server.post(&app, &image("unread")),
        server.call("POST", &app.hook).json(&image("unread")).sign(&app.token),
        server.call("POST", &app.hook).json(&image("unread")).header("x-service-token", "rh_wrong"),
        server.call("POST", "/api/v1/webhook/shop-test/none").json(&image("unread")),
        server.manage("GET", &format!("{}/deploys", app.path)),
        server.manage("GET", &format!("{}/deploys/1/events", app.path)),
        server.manage("POST", "/api/v1/apps").json(&image("unread")),
        server.call("GET", "/readyz"),
    ];
    std::thread::scope(|scope| {
        for call in &unread {
            scope.spawn(|| away(call));
        }
    });
    server.call("GET", "/healthz").expect(200);
    server.call("GET", "/metrics").expect(200);
    lock.end();
    recovers(&server, &app);
    assert_eq!(commits(&server, &app), ["after"]);
}

#[test]
fn a_full_disk_is_503_until_there_is_space() {
    let start = server!().unlimited();
    let Some(disk) = SmallDisk::mount(start.directory()) else { return skip(&test_name!(), "mounting needs root") };
    // The log is on the full disk too: losing its lines must not cost anything else.
    let server = start.run();
    let app = server.app("api");
    let ballast = disk.fill();
    let mut posted = 0;
    // The write-ahead log may have space left in its last pages.
    until("there is no space left", || {
        posted += 1;
        let reply = server.post(&app, &image(&format!("filling{posted}"))).send();
        assert!(matches!(reply.status, 202 | 503), "{}", reply.text());
        reply.status == 503
    });
    away(&server.post(&app, &image("full")));
    server.call("GET", "/healthz").expect(200);
    until("it is known not to be ready", || server.call("GET", "/readyz").send().status == 503);
    fs::remove_file(ballast).unwrap();
    recovers(&server, &app);
    let commits = commits(&server, &app);
    let accepted: Vec<String> = (1..posted).map(|number| format!("filling{number}")).chain(["after".into()]).collect();
    assert_eq!(commits, accepted, "what was accepted is there, and nothing else");
    drop(server);
}

/// Expects the answer of a server whose store is away.
fn away(call: &Call) -> Value {
    let reply: Reply = call.expect(503);
    assert_eq!(reply.problem(), "store-unavailable");
    assert!(reply.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{reply:?}");
    let text = reply.text().to_lowercase();
    for inner in ["sqlite", "rollhook.db", "locked", "(code", "disk"] {
        assert!(!text.contains(inner), "{inner} is nobody's business: {text}");
    }
    reply.json()
}

/// Deploys again, by itself.
fn recovers(server: &Server, app: &App) {
    until("it is ready again", || server.call("GET", "/readyz").send().status == 200);
    let reply = server.post(app, &image("after")).header("prefer", "wait=50").expect(200);
    assert_eq!(reply.json()["status"], "succeeded");
}

/// The commits of all that was accepted by the webhook, oldest first.
fn commits(server: &Server, app: &App) -> Vec<String> {
    let page = server.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
    let deploys = page["deploys"].as_array().unwrap().iter().rev();
    let webhook = deploys.filter(|deploy| deploy["trigger"] == "webhook");
    webhook.map(|deploy| deploy["commit"].as_str().unwrap().to_owned()).collect()
}

/// A file system of 2 MiB, unmounted when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m,mode=700", "rollhook-test"]).arg(at);
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }

    /// Writes until nothing fits any more.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = fs::File::create(&path).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}
