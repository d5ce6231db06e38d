//! Change detection from end to end: a real git host, the real server with a build command, and nobody who tells it of a
//! push.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod common;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use common::{App, Server, until};
use rollhook_conformance::{GitHost, GitRepository};
use serde_json::{Value, json};

const COMMAND: &str = r#"#!/bin/sh
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(git rev-parse HEAD | sha256sum | cut -c1-64)"
"#;
const APP: &str = "/api/v1/apps/shop-test/api";

/// A server that builds and may poll every second, a git host, and a repository.
struct Bench {
    place: tempfile::TempDir,
    host: GitHost,
    repository: GitRepository,
    server: Server,
}

fn start(place: &Path, directory: tempfile::TempDir) -> Server {
    let path = |name: &str| place.join(name).display().to_string();
    let command = path("build-command");
    fs::write(&command, COMMAND).unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    let builds = ["--build-command", &command, "--build-dir", &path("builds"), "--allow-local-sources"];
    Server::in_directory(directory, &[&builds[..], &["--min-poll", "1s"]].concat(), &[])
}

impl Bench {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("host");
        fs::create_dir(&root).unwrap();
        let host = GitHost::serve(&root, None);
        let repository = host.repository("api");
        let server = start(place.path(), tempfile::tempdir().unwrap());
        Self { place, host, repository, server }
    }

    fn register(&self, policy: &Value) {
        let git = json!({ "url": self.host.url("api"), "image_repository": "registry.example.com/shop/api" });
        let create = json!({
            "project": "shop", "environment": "test", "app": "api", "git": git, "policy": policy
        });
        self.server.manage("POST", "/api/v1/apps").json(&create).expect(201);
    }

    fn app(&self) -> Value {
        self.server.manage("GET", APP).expect(200).json()
    }

    fn set(&self, policy: &Value) -> Value {
        self.server.manage("PATCH", APP).json(&json!({ "policy": policy })).expect(200).json()
    }

    /// Waits until this many deploys are there and have ended, and returns them, newest first.
    fn deployed(&self, count: usize) -> Vec<Value> {
        let mut found = Vec::new();
        until(&format!("{count} deploys"), || {
            let history = self.server.manage("GET", &format!("{APP}/deploys?limit=50")).expect(200).json();
            found = history["deploys"].as_array().unwrap().clone();
            found.len() >= count && found.iter().all(|deploy| deploy["status"] == "succeeded")
        });
        assert_eq!(found.len(), count, "{found:?}");
        found
    }
}

#[test]
fn a_push_is_rolled_out_though_nobody_tells_of_it() {
    let mut bench = Bench::new();
    bench.register(&json!({ "settle": "0s", "poll": "1s" }));
    let first = bench.repository.commit("build.txt", "first");
    let found = bench.deployed(1);
    assert_eq!((&found[0]["commit"], &found[0]["trigger"]), (&json!(first), &json!("git")));
    assert_eq!(found[0]["actor"], "auto");
    let app = bench.app();
    assert_eq!((&app["policy"]["poll"], &app["current"]["commit"]), (&json!("1s"), &json!(first)));
    assert!(app.get("warning").is_none(), "{app}");
    until("the head is shown", || bench.app()["polling"]["head"] == json!(first));

    let second = bench.repository.commit("build.txt", "second");
    assert_eq!(bench.deployed(2)[0]["commit"], second);
    let metrics = bench.server.call("GET", "/metrics").expect(200).text();
    assert!(metrics.contains("rollhook_source_reads_total{outcome=\"done\"}"), "{metrics}");

    // Killed, and started again on what is left.
    let place = bench.place.path().to_owned();
    let spare = Server::with(&["--store", "memory"]);
    let directory = std::mem::replace(&mut bench.server, spare).stop();
    bench.server = start(&place, directory);
    let third = bench.repository.commit("build.txt", "third");
    let found = bench.deployed(3);
    assert_eq!((&found[0]["commit"], &found[0]["trigger"]), (&json!(third), &json!("git")));

    bench.repository.push_back("main", &first);
    assert_eq!(bench.deployed(4)[0]["commit"], first, "the branch was taken back");
}

#[test]
fn two_triggers_for_one_push_are_both_in_the_history_and_one_is_to_be_chosen() {
    let bench = Bench::new();
    bench.register(&json!({ "settle": "0s", "poll": "1s" }));
    let commit = bench.repository.commit("build.txt", "first");
    bench.deployed(1);
    let webhook = bench.server.manage("POST", &format!("{APP}/webhook")).expect(200).json();
    let token = webhook["token"].as_str().unwrap().to_owned();
    let app = App { path: APP.to_owned(), hook: "/api/v1/webhook/shop-test/api".to_owned(), token };
    bench.server.post(&app, &json!({ "commit": commit })).expect(202);
    let found = bench.deployed(2);
    assert_eq!((&found[0]["trigger"], &found[1]["trigger"]), (&json!("webhook"), &json!("git")));
    assert_eq!((&found[0]["commit"], &found[1]["commit"]), (&json!(commit), &json!(commit)));
    let warning = bench.app()["warning"].as_str().unwrap().to_owned();
    assert!(warning.contains("Choose one"), "{warning}");
    let off = bench.set(&json!({ "poll": null }));
    assert_eq!(off["policy"]["poll"], "off");
    assert!(off.get("warning").is_none(), "it was chosen: {off}");
}

#[test]
fn a_source_that_does_not_answer_is_told_of() {
    let bench = Bench::new();
    bench.register(&json!({ "settle": "0s" }));
    bench.repository.commit("build.txt", "first");
    for (poll, field) in [("1ms", "policy.poll"), ("25h", "policy.poll"), ("often", "policy.poll")] {
        let refused = bench.server.manage("PATCH", APP).json(&json!({ "policy": { "poll": poll } })).expect(422);
        assert_eq!(refused.json()["field"], field, "{poll}");
    }
    bench.set(&json!({ "poll": "1s" }));
    bench.deployed(1);
    bench.host.hang();
    until("it is told", || !bench.app()["polling"]["error"].is_null());
    assert_eq!(bench.server.log().matches("polling a source failed").count(), 1, "once");
    bench.deployed(1);
}

#[test]
fn a_server_without_git_starts_and_says_what_does_not_work() {
    let place = tempfile::tempdir().unwrap();
    let start = |path: &str| {
        let directory = place.path().display().to_string();
        let builds = ["--build-command", "/bin/true", "--build-dir", &format!("{directory}/builds")];
        Server::in_directory(tempfile::tempdir().unwrap(), &builds, &[("PATH", path)])
    };
    let warns = |server: &Server| server.log().matches("running git failed").count();
    let without = start("/nowhere");
    without.call("GET", "/readyz").expect(200);
    assert_eq!(warns(&without), 1, "{}", without.log());
    assert!(without.log().contains("polling finds nothing"), "{}", without.log());
    assert_eq!(warns(&start(&std::env::var("PATH").unwrap())), 0);
}

#[test]
fn only_what_has_a_source_is_polled() {
    let server = Server::start();
    let app = server.app("web");
    let refused = server.manage("PATCH", &app.path).json(&json!({ "policy": { "poll": "5m" } })).expect(422);
    assert_eq!((refused.problem(), &refused.json()["field"]), ("invalid-field".to_owned(), &json!("policy.poll")));
}
