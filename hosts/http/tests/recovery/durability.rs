//! What a 202 is worth: the entry is on the disk before the answer is on the wire.

use std::{collections::BTreeSet, fs, process::Command};

use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rollhook_testing::{Connection, image, server, skip, test_name};

const POSTS: usize = 20;

#[tokio::test]
async fn the_writer_has_a_log_ahead_and_flushes_every_commit() {
    let directory = tempfile::tempdir().unwrap();
    let ring = KeyRing::load_or_create(&directory.path().join("keys")).unwrap();
    let store = SqliteStore::open(directory.path().join("rollhook.db"), ring).await.unwrap();
    let full = 2;
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), full));
}

#[test]
fn the_log_is_flushed_between_its_write_and_the_answer() {
    let start = server!().unlimited();
    let trace = start.file("trace").display().to_string();
    // With -D the server is the child and strace its descendant: killing the server ends both.
    let calls = "trace=pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg";
    let strace = ["strace", "-D", "-f", "-qq", "-y", "-s", "65536", "-e", calls, "-o", &trace];
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    if !traced.is_ok_and(|status| status.success()) {
        return skip(&test_name!(), "strace cannot be run here");
    }
    let server = start.through(strace).run();
    let app = server.app("api");
    let mut connection = Connection::open(server.address).unwrap();
    let labels: Vec<String> = (0..POSTS).map(|number| format!("commit-number-{number}-")).collect();
    for label in &labels {
        let answer = connection.send(&server.post(&app, &image(label))).unwrap();
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let _start = server.kill();
    let trace = fs::read_to_string(trace).unwrap();
    let events = events(&trace);
    for label in &labels {
        let position = |what: &str, wanted: &dyn Fn(&Event) -> bool, after: usize| {
            let found = events.iter().skip(after).position(wanted).map(|position| after + position);
            found.unwrap_or_else(|| panic!("{label}: no {what} in the trace"))
        };
        let stored = position("write to the log", &|event| event.is_write_to_log_of(label), 0);
        let flushed = position("flush", &|event| *event == Event::LogFlushed, stored);
        let answered = position("answer", &|event| event.is_answer_with(label), 0);
        assert!(stored < flushed && flushed < answered, "{label}: {stored}, {flushed}, {answered}");
    }
}

/// What matters here, in the order of its happening.
#[derive(Debug, PartialEq, Eq)]
enum Event<'a> {
    /// The call that writes this to the write-ahead log has begun.
    LogWritten(&'a str),
    /// A flush of the write-ahead log has returned.
    LogFlushed,
    /// The call that sends this has begun.
    Sent(&'a str),
}

impl Event<'_> {
    fn is_write_to_log_of(&self, label: &str) -> bool {
        matches!(self, Event::LogWritten(text) if text.contains(label))
    }

    fn is_answer_with(&self, label: &str) -> bool {
        matches!(self, Event::Sent(text) if text.contains("HTTP/1.1 202") && text.contains(label))
    }
}

/// Reads lines such as `17 fdatasync(9</tmp/x/rollhook.db-wal>) = 0`. A call during which another thread did something
/// has two: `17 fdatasync(9</tmp/x/rollhook.db-wal> <unfinished ...>` and `17 <... fdatasync resumed>) = 0`.
fn events(trace: &str) -> Vec<Event<'_>> {
    let mut events = Vec::new();
    let mut flushing = BTreeSet::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let flush = call.starts_with("fdatasync(") || call.starts_with("fsync(");
        let log = call.split('>').next().is_some_and(|file| file.ends_with("/rollhook.db-wal"));
        let unfinished = call.ends_with("<unfinished ...>");
        if flush && log && unfinished {
            flushing.insert(thread);
        } else if flush && log && call.ends_with(" = 0") {
            events.push(Event::LogFlushed);
        } else if call.starts_with("<... fdatasync resumed>") || call.starts_with("<... fsync resumed>") {
            if flushing.remove(thread) && call.ends_with(" = 0") {
                events.push(Event::LogFlushed);
            }
        } else if call.starts_with("pwrite64(") && log {
            events.push(Event::LogWritten(call));
        } else if call.contains("<socket:[") {
            events.push(Event::Sent(call));
        }
    }
    events
}
