//! Deploys of real containers on a real node: what they answer over HTTP, their digests, logs and ends.

use std::{io::Write, net::TcpStream, process::Command, time::Duration};

use rollhook_testing::{
    Reply,
    beds::{Bed, script},
    server, test_name, until,
};
use serde_json::{Value, json};

/// Puts a program into the node's registry, and returns the reference with its tag, and the digest.
pub(crate) fn push(bed: &Bed, name: &str, program: &str) -> (String, String) {
    push_with(bed, name, program, &[])
}

/// The same, made with further options.
pub(crate) fn push_with(bed: &Bed, name: &str, program: &str, options: &[&str]) -> (String, String) {
    let mut push = Command::new(script("node/push.sh"));
    let pushed = push.arg(&bed.kubectl.state).args([name, program]).args(options).output().unwrap();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let printed = String::from_utf8(pushed.stdout).unwrap();
    let (image, digest) = printed.trim().split_once('@').unwrap();
    (image.to_owned(), digest.to_owned())
}

/// What each pod of a workload answers over HTTP, without its own name.
pub(crate) fn answers(bed: &Bed, name: &str) -> Vec<String> {
    let answer = |pod: &Value| {
        let address = pod["status"]["podIP"].as_str()?;
        let mut stream = TcpStream::connect((address, 8080)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: app\r\nconnection: close\r\n\r\n").ok()?;
        Reply::read(stream).text().split_whitespace().next().map(str::to_owned)
    };
    bed.kubectl.pods(name).iter().map(|pod| answer(pod).unwrap_or_default()).collect()
}

#[test]
fn versions_come_and_go_back_as_they_answer_over_http() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let [(v1, first), (v2, second)] = ["v1", "v2"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")));
    let template = json!({ "replicas": 2, "port": 8080, "readiness_path": "/healthz" });
    let app = bed.register("api", json!({ "image": v1, "template": template, "policy": { "settle": "1s" } }));
    assert_eq!(answers(&bed, "api"), ["version=v1", "version=v1"]);
    assert_eq!(bed.entry(&app, 1)["digest"], first);

    bed.succeeds(&app, &v2);
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
    assert_eq!(bed.entry(&app, 2)["digest"], second);

    let told = bed.roll_back(&app);
    assert_eq!(told["to"], json!({ "revision": 1, "image": format!("{v1}@{first}"), "commit": null }));
    assert_eq!(answers(&bed, "api"), ["version=v1", "version=v1"]);
    assert_eq!(bed.entry(&app, 3)["digest"], first);
}

#[test]
fn a_moving_tag_does_not_bring_the_bad_bits_back() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let (tag, good) = push(&bed, "app:latest", "app-v1");
    let container = json!({ "name": "app", "image": push(&bed, "app:v3", "app-v3").0, "imagePullPolicy": "Always" });
    bed.kubectl.make("Deployment", "api", "-", json!({ "template": { "spec": { "containers": [container] } } }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    bed.succeeds(&app, &tag);
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
    let (_, bad) = push(&bed, "app:latest", "app-v2");
    bed.succeeds(&app, &tag);
    assert_eq!(answers(&bed, "api"), ["version=v2"]);
    assert_eq!([2, 3].map(|revision| bed.entry(&app, revision)["digest"].clone()), [json!(good), json!(bad)]);

    let told = bed.roll_back(&app);
    assert_eq!((&told["to"]["revision"], &told["image"]), (&json!(2), &json!(format!("{tag}@{good}"))));
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn a_container_that_dies_after_three_seconds_is_no_success() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let (v1, _) = push(&bed, "app:v1", "app-v1");
    let (dies, _) = push(&bed, "app:dies", "dies");
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    // Without a readiness probe and with the default policy: Kubernetes counts it as available while it lives.
    let app = bed.adopt("Deployment", "api", json!({}));
    let failed = bed.fails(&app, &dies);
    assert!(["CrashLoopBackOff", "containers-restarting"].contains(&failed["reason"].as_str().unwrap()), "{failed}");
    let log = bed.entry(&app, 2)["evidence"]["log"].to_string();
    assert!(log.contains("dies: exiting 1"), "{log}");
    assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn container_that_exits_every_14_s_succeeds_and_is_shown_as_degraded_until_it_is_rolled_back() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let degraded = || bed.server().counted("rollhook_apps_degraded");
    let (v1, _) = push(&bed, "app:v1", "app-v1");
    let (dies, _) = push(&bed, "app:dies", "dies");
    let env = json!([{ "name": "DIES_AFTER", "value": "14s" }]);
    let container = json!({ "name": "app", "image": v1, "env": env });
    bed.kubectl.make("Deployment", "api", "-", json!({ "template": { "spec": { "containers": [container] } } }));
    // A busy kubelet tells of a container that ended a second or two late.
    let app = bed.adopt("Deployment", "api", json!({ "settle": "8s" }));
    assert_eq!(degraded(), 0);
    bed.succeeds(&app, &dies);

    until("it is degraded", || degraded() == 1);
    let restarts = bed.kubectl.pods("api")[0]["status"]["containerStatuses"][0]["restartCount"].as_u64();
    assert!(restarts.is_some_and(|restarts| restarts <= 2), "at its second end: {restarts:?} restarts");
    let shown = bed.manage("GET", &app.path).expect(200).json();
    assert_eq!((&shown["degraded"]["reason"], &shown["drift"]), (&json!("CrashLoopBackOff"), &json!(null)), "{shown}");
    assert_eq!((&shown["current"]["revision"], &bed.entry(&app, 2)["status"]), (&json!(2), &json!("succeeded")));
    assert!(bed.cli().run("app list").ok().out.contains("degraded: CrashLoopBackOff"));
    assert_eq!(bed.server().log().matches("is degraded: ").count(), 1, "one line");

    bed.roll_back(&app);
    until("the version before runs well", || degraded() == 0);
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn a_crash_comes_with_the_last_lines_of_its_log() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let (v1, _) = push(&bed, "app:v1", "app-v1");
    let (crash, _) = push(&bed, "app:crash", "crash");
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    // A busy kubelet tells of a container that ended a second or two late.
    let app = bed.adopt("Deployment", "api", json!({ "settle": "5s" }));
    let failed = bed.fails(&app, &crash);
    assert_eq!(failed["reason"], "CrashLoopBackOff", "{failed}");
    let evidence = bed.entry(&app, 2)["evidence"].clone();
    assert_eq!((&evidence["container"], &evidence["log"]), (&json!("app"), &json!(["crash: exiting 1"])), "{evidence}");
    assert!(evidence["events"].to_string().contains("Back-off restarting"), "{evidence}");
    assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn a_tag_that_is_not_there_cannot_be_pulled() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let (v1, _) = push(&bed, "app:v1", "app-v1");
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let available = bed.kubectl.watch("deployment/api", ".status.availableReplicas");
    let failed = bed.fails(&app, &v1.replace(":v1", ":nosuch"));
    assert_eq!(failed["reason"], "ImagePullBackOff", "{failed}");
    let entry = bed.entry(&app, 2);
    assert!(entry["evidence"]["events"].to_string().contains("Failed to pull image"), "{entry}");
    assert_eq!(bed.await_revision(&app, 3)["status"], "succeeded");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
    let seen = available.finish();
    assert!(seen.len() > 1 && seen.iter().all(|count| count.parse::<u32>().unwrap() >= 1), "{seen:?}");
}
