//! Change detection from end to end: a real git host, the real server with a build command, and nobody who tells it of
//! a push.

use std::{os::unix::fs::symlink, path::Path};

use rollhook_testing::{
    App, Server, Start,
    fixtures::{GitHost, GitRepository},
    process::build_user,
    server,
    server::{git_source, registration},
    until,
};
use serde_json::{Value, json};

const COMMAND: &str = r#"#!/bin/sh
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(git rev-parse HEAD | sha256sum | cut -c1-64)"
"#;
const APP: &str = "/api/v1/apps/shop-test/api";

/// A server that may poll every second.
fn polling() -> Start {
    server!().arguments(["--min-poll", "1s"])
}

/// A server that builds and may poll every second, a git host, and a repository.
struct Bench {
    host: GitHost,
    repository: GitRepository,
    server: Server,
}

impl Bench {
    fn new() -> Self {
        let host = GitHost::start();
        let repository = host.repository("api");
        Self { host, repository, server: polling().builder(COMMAND).run() }
    }

    fn register(&self, policy: &Value) {
        let mut create = registration("api", &git_source(&self.host.url("api")));
        create["policy"] = policy.clone();
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
fn polled_push_is_rolled_out() {
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
    bench.server.restart();
    let third = bench.repository.commit("build.txt", "third");
    let found = bench.deployed(3);
    assert_eq!((&found[0]["commit"], &found[0]["trigger"]), (&json!(third), &json!("git")));

    bench.repository.push_back("main", &first);
    assert_eq!(bench.deployed(4)[0]["commit"], first, "the branch was taken back");
}

#[test]
fn webhook_and_polling_both_record_a_push_and_a_warning_is_shown() {
    let bench = Bench::new();
    bench.register(&json!({ "settle": "0s", "poll": "1s" }));
    let commit = bench.repository.commit("build.txt", "first");
    bench.deployed(1);
    let app = App::new("shop-test", "api", bench.server.enable(APP));
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
fn unanswered_polls_are_reported() {
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
fn server_without_git_starts_and_warns() {
    let start = |path: &str| server!().builder("#!/bin/sh\n").variable("PATH", path).run();
    let warns = |server: &Server| server.log().matches("running git failed").count();
    // The programs that confine builds, alone.
    let programs = tempfile::tempdir().unwrap();
    build_user(programs.path());
    for program in ["getent", "prlimit", "setpriv", "setsid", "sh"] {
        symlink(Path::new("/usr/bin").join(program), programs.path().join(program)).unwrap();
    }
    let without = start(programs.path().to_str().unwrap());
    without.call("GET", "/readyz").expect(200);
    assert_eq!(warns(&without), 1, "{}", without.log());
    assert!(without.log().contains("polling finds nothing"), "{}", without.log());
    assert_eq!(warns(&start(&std::env::var("PATH").unwrap())), 0);
}

#[test]
fn image_app_refuses_polling() {
    let server = server!().run();
    let app = server.app("web");
    let refused = server.manage("PATCH", &app.path).json(&json!({ "policy": { "poll": "5m" } })).expect(422);
    assert_eq!((refused.problem(), &refused.json()["field"]), ("invalid-field".to_owned(), &json!("policy.poll")));
}
