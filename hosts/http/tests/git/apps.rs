//! Git apps from end to end: a real git host, the real server with a build command, and CI's own `curl`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rollhook_testing::{
    App, Cli, Server,
    fixtures::{GitHost, GitRepository},
    process::beside,
    server,
    server::{git_source, registration},
    until,
};
use serde_json::{Value, json};

/// Builds what `build.txt` says, and writes down each time that it was run.
const COMMAND: &str = r#"#!/bin/sh
runs=$(dirname "$0")/runs
echo "begin $ROLLHOOK_REVISION" >> "$runs"
case "$(cat build.txt)" in
fail*) echo "it is broken" >&2; exit 1 ;;
hang*) echo "process $$"; sleep 600 ;;
once*)
    # Hangs the first time that it is run, as a build does whose server is killed meanwhile.
    if [ "$(grep -c begin "$runs")" = 1 ]; then echo "process $$"; setsid sleep 600 & sleep 600; fi ;;
esac
echo "built $(git rev-parse HEAD)"
echo "end $ROLLHOOK_REVISION" >> "$runs"
case "$(cat build.txt)" in crash*) tag=:crash ;; *) tag= ;; esac
echo "$ROLLHOOK_IMAGE_REPOSITORY$tag@sha256:$(echo "$ROLLHOOK_COMMIT" | sha256sum | cut -c1-64)"
"#;

/// Whether the process that a build told of is there; one that only waits to be waited for is not.
fn is_alive(log: &str) -> bool {
    let pid = log.lines().find_map(|line| line.strip_prefix("process ")).unwrap();
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// A server that builds, a git host, and an app that is built from there.
struct Bench {
    host: GitHost,
    repository: GitRepository,
    server: Server,
    app: App,
}

impl Bench {
    fn new() -> Self {
        let host = GitHost::start();
        let repository = host.repository("api");
        let start = server!().builder(COMMAND).unlimited();
        let runs = start.file("runs");
        fs::write(&runs, "").unwrap();
        // The build command may be another user's.
        fs::set_permissions(&runs, fs::Permissions::from_mode(0o666)).unwrap();
        let server = start.run();
        let app = server.git_app("api", &host.url("api"));
        let entries = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
        assert_eq!(entries["deploys"], json!([]), "the first build makes the first deploy");
        Self { host, repository, server, app }
    }

    /// CI's call as its snippet makes it; the exit code of `curl`, and what was answered.
    fn curl(&self, commit: &str) -> (i32, Value) {
        let output = Command::new("curl")
            .args(["--fail-with-body", "-sS", "-X", "POST"])
            .args(["-H", &format!("X-Service-Token: {}", self.app.token), "-H", "Content-Type: application/json"])
            .args(["-H", "Prefer: wait=50", "-d", &json!({ "commit": commit }).to_string()])
            .arg(format!("http://{}{}", self.server.address, self.app.hook))
            .output()
            .unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    fn push(&self, commit: &str) -> u64 {
        let answer = self.server.post(&self.app, &json!({ "commit": commit })).expect(202).json();
        answer["revision"].as_u64().unwrap()
    }

    fn entry(&self, revision: u64) -> Value {
        self.server.manage("GET", &format!("{}/deploys/{revision}", self.app.path)).expect(200).json()
    }

    fn entry_is_unknown(&self, revision: u64) -> bool {
        self.server.manage("GET", &format!("{}/deploys/{revision}", self.app.path)).send().status == 404
    }

    fn until_is(&self, revision: u64, status: &str) {
        until(&format!("revision {revision} {status}"), || self.entry(revision)["status"] == status);
    }

    fn log(&self, revision: u64, follow: bool) -> String {
        let path = format!("{}/deploys/{revision}/log?follow={follow}", self.app.path);
        let reply = self.server.manage("GET", &path).expect(200);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
        reply.text()
    }

    fn runs(&self) -> String {
        fs::read_to_string(self.server.file("runs")).unwrap_or_default()
    }
}

#[test]
fn a_commit_is_built_and_deployed_and_ci_is_told() {
    let bench = Bench::new();
    let good = bench.repository.commit("build.txt", "good");
    let (code, answer) = bench.curl(&good);
    assert_eq!((code, &answer["status"]), (0, &json!("succeeded")), "{answer}");
    let image = answer["image"].as_str().unwrap();
    assert!(image.starts_with("registry.example.com/shop/api@sha256:"), "{image}");
    assert_eq!(answer["commit"], good);
    assert!(bench.log(1, false).contains(&format!("built {good}\n")));

    let next = bench.repository.commit("build.txt", "next");
    let (code, answer) = bench.curl(&next[..8]);
    assert_eq!((code, &answer["commit"]), (0, &json!(next)), "a short one is recorded in full: {answer}");

    let bad = bench.repository.commit("build.txt", "fail");
    let (code, problem) = bench.curl(&bad);
    assert_eq!(code, 22, "the pipeline fails: {problem}");
    assert_eq!(problem["deploy"]["reason"], "build-failed");
    assert!(problem["deploy"]["evidence"]["log"].to_string().contains("it is broken"), "{problem}");
    let (code, problem) = bench.curl("0123456789012345678901234567890123456789");
    assert_eq!((code, &problem["deploy"]["reason"]), (22, &json!("commit-not-found")), "{problem}");

    let head = bench.repository.commit("build.txt", "mended");
    let rebuilt = bench.server.manage("POST", &format!("{}/rebuild", bench.app.path)).header("prefer", "wait=50");
    let rebuilt = rebuilt.expect(200).json();
    assert_eq!((&rebuilt["commit"], &rebuilt["trigger"]), (&json!(head), &json!("manual")), "the branch's head");
    let app = bench.server.manage("GET", &bench.app.path).expect(200).json();
    assert_eq!(app["source"]["branch"], "main");
    assert_eq!(app["current"]["revision"], 5);
}

#[test]
fn a_slow_pipeline_of_an_older_commit_is_green_and_changes_nothing() {
    let bench = Bench::new();
    let older = bench.repository.commit("build.txt", "older");
    let newer = bench.repository.commit("build.txt", "newer");
    bench.repository.commit("build.txt", "newest");
    assert_eq!(bench.curl(&newer).0, 0);
    let (code, late) = bench.curl(&older);
    assert_eq!((code, &late["status"], &late["superseded_by"]), (0, &json!("superseded"), &json!(1)), "{late}");
    let message =
        format!("Nothing was deployed: the commit {older} is older than {newer}, which revision 1 had brought before.");
    assert_eq!((&late["reason"], &late["message"]), (&json!("older-commit"), &json!(message)));
    assert_eq!(bench.runs(), "begin 1\nend 1\n", "nothing was built");

    let decided = json!({ "commit": older, "sequence": "none" });
    let accepted = bench.server.post(&bench.app, &decided).expect(202).json();
    bench.until_is(accepted["revision"].as_u64().unwrap(), "succeeded");
    bench.repository.push_back("main", &newer);
    let (code, back) = bench.curl(&newer);
    assert_eq!((code, &back["status"]), (0, &json!("succeeded")), "the branch was taken back to it: {back}");
}

#[test]
fn a_new_app_runs_the_head_of_its_branch() {
    let bench = Bench::new();
    let head = bench.repository.commit("build.txt", "good");
    let url = bench.server.manage("GET", &bench.app.path).expect(200).json()["source"]["url"].clone();
    let cli = Cli::new(beside(bench.server.recipe().program(), "rollhook-cli", "rollhook"))
        .with("ROLLHOOK_SERVER", &format!("http://{}", bench.server.address))
        .with("ROLLHOOK_TOKEN", &bench.server.admin);
    let create = format!(
        "app create other -p shop -e test --git {} --image-repository registry.example.com/shop/other --settle 0s --wait \
         -o json",
        url.as_str().unwrap()
    );
    let created = cli.run(&create).ok().json();
    assert_eq!((&created["deploy"]["commit"], &created["deploy"]["status"]), (&json!(head), &json!("succeeded")));
    assert_eq!(created["app"]["current"]["commit"], json!(head), "{created}");
}

#[test]
fn a_build_is_shown_followed_and_cancelled() {
    let bench = Bench::new();
    let hanging = bench.repository.commit("build.txt", "hang");
    let revision = bench.push(&hanging);
    bench.until_is(revision, "building");
    until("it runs", || bench.log(revision, false).contains("process "));
    let told = bench.log(revision, false);
    assert!(is_alive(&told));
    let followed = std::thread::scope(|scope| {
        let followed = scope.spawn(|| bench.log(revision, true));
        let cancel = format!("{}/deploys/{revision}/cancel", bench.app.path);
        let cancelled = bench.server.manage("POST", &cancel).expect(200).json();
        assert_eq!((&cancelled["status"], &cancelled["reason"]), (&json!("cancelled"), &json!("cancelled")));
        followed.join().unwrap()
    });
    assert!(followed.contains("The build was ended."), "followed to its end: {followed}");
    assert!(!is_alive(&told));
    let good = bench.repository.commit("build.txt", "good");
    assert_eq!(bench.curl(&good).0, 0, "another build may start");
    let nothing = bench.server.manage("GET", &format!("{}/deploys/9/log", bench.app.path)).expect(404);
    assert_eq!(nothing.problem(), "revision-not-found");
}

#[test]
fn repeated_call_names_the_restore_behind_a_commit_that_is_being_built() {
    let bench = Bench::new();
    let good = bench.repository.commit("build.txt", "good");
    assert_eq!(bench.curl(&good).0, 0);
    let crashing = bench.repository.commit("build.txt", "crash");
    let hanging = bench.repository.commit("build.txt", "hang");
    let post = || {
        let call = bench.server.post(&bench.app, &json!({ "commit": crashing })).header("idempotency-key", "crash");
        call.header("prefer", "wait=50").expect(424).json()
    };
    let failed = std::thread::scope(|scope| {
        let failed = scope.spawn(post);
        until("the commit is accepted", || !bench.entry_is_unknown(2));
        assert_eq!(bench.push(&hanging), 3);
        failed.join().unwrap()
    });
    assert_eq!((&failed["restore"]["revision"], &failed["restore"]["to"]), (&json!(4), &json!(1)), "{failed}");
    bench.until_is(4, "succeeded");
    bench.until_is(3, "building");
    let repeated = post();
    assert_eq!((&repeated["restore"]["revision"], &repeated["restore"]["status"]), (&json!(4), &json!("succeeded")));
    let entry = bench.entry(2);
    assert_eq!((&entry["status"], &entry["restore"]), (&json!("failed"), &repeated["restore"]));
    let list = bench.server.manage("GET", &format!("{}/deploys?before=4", bench.app.path)).expect(200).json();
    assert_eq!((&list["deploys"][1]["restore"], &list["deploys"][0]["restore"]), (&repeated["restore"], &Value::Null));
}

#[test]
fn a_burst_of_pushes_is_built_one_at_a_time_and_the_newest_runs() {
    let bench = Bench::new();
    let commits: Vec<String> =
        (0..20).map(|push| bench.repository.commit("build.txt", &format!("push {push}"))).collect();
    let revisions: Vec<u64> = commits.iter().map(|commit| bench.push(commit)).collect();
    assert_eq!(revisions, (1..=20).collect::<Vec<_>>());
    bench.until_is(20, "succeeded");
    let begun_and_ended: Vec<String> =
        (1..=20).flat_map(|revision| [format!("begin {revision}"), format!("end {revision}")]).collect();
    assert_eq!(bench.runs().lines().collect::<Vec<_>>(), begun_and_ended, "never two at once, and in order");
    let history = bench.server.manage("GET", &format!("{}/deploys?limit=50", bench.app.path)).expect(200).json();
    let entries = history["deploys"].as_array().unwrap();
    assert_eq!(entries.len(), 20);
    assert_eq!((&entries[0]["current"], &entries[0]["commit"]), (&json!(true), &json!(commits[19])));
    assert!(entries.iter().all(|entry| ["succeeded", "superseded"].contains(&entry["status"].as_str().unwrap())));
}

#[test]
fn a_server_that_is_killed_loses_no_build_and_leaves_nothing_running() {
    let mut bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "once");
    let revision = bench.push(&commit);
    until("it runs", || bench.log(revision, false).contains("process "));
    let told = bench.log(revision, false);
    let start = bench.server.kill();
    assert!(is_alive(&told), "killed, a server cannot end what it has started");
    bench.server = start.run();
    assert!(!is_alive(&told), "the next one does, before it answers");
    bench.until_is(revision, "succeeded");
    assert_eq!(bench.runs(), "begin 1\nbegin 1\nend 1\n", "it began anew");
    let history = bench.server.manage("GET", &format!("{}/deploys", bench.app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_that_stops_ends_its_builds_first() {
    let mut bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "hang");
    let revision = bench.push(&commit);
    until("it runs", || bench.log(revision, false).contains("process "));
    let told = bench.log(revision, false);
    bench.server.signal("TERM");
    assert!(bench.server.ended());
    assert!(!is_alive(&told));
}

#[test]
fn a_changed_source_ends_its_build_and_sources_are_checked() {
    let bench = Bench::new();
    let patch = |source: Value| bench.server.manage("PATCH", &bench.app.path).json(&json!({ "source": source }));
    for (source, field) in [
        (json!({ "url": "https://ada:hunter2@git.example.com/a.git" }), "source.url"),
        (json!({ "url": "--upload-pack=x" }), "source.url"),
        (json!({ "branch": "-x" }), "source.branch"),
        (json!({ "dockerfile": "../Dockerfile" }), "source.dockerfile"),
        (json!({ "context": "/etc" }), "source.context"),
        (json!({ "image_repository": "registry.example.com/api:v1" }), "source.image_repository"),
        (json!({ "credentials": "../../etc/passwd" }), "source.credentials"),
    ] {
        let refused = patch(source).expect(422);
        assert_eq!(refused.problem(), "invalid-field");
        assert_eq!(refused.json()["field"], field);
        assert!(!refused.text().contains("hunter2"));
    }
    let hanging = bench.repository.commit("build.txt", "hang");
    let revision = bench.push(&hanging);
    bench.until_is(revision, "building");
    let changed = patch(json!({ "branch": "next", "credentials": null })).expect(200).json();
    assert_eq!(changed["source"]["branch"], "next");
    bench.until_is(revision, "failed");
    assert_eq!(bench.entry(revision)["reason"], "source-changed");
    assert!(!bench.server.log().contains("hunter2"));
    drop(bench.host);
}

#[test]
fn local_sources_and_source_changes_of_image_apps_are_refused() {
    let server = server!().run();
    for url in ["http://git.example.com/a.git", "file:///srv/a.git", "https://169.254.169.254/a.git"] {
        let refused = server.manage("POST", "/api/v1/apps").json(&registration("api", &git_source(url))).expect(422);
        assert_eq!(refused.json()["field"], "source.url", "{url}");
    }
    let app = server.app("web");
    let refused = server.manage("PATCH", &app.path).json(&json!({ "source": { "branch": "next" } })).expect(409);
    assert_eq!(refused.problem(), "wrong-kind");
}
