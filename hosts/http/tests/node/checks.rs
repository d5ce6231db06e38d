//! Deploys judged in use: real containers under real traffic, by a Prometheus that scrapes them.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rollhook_testing::{
    App, Call, Connection, Reply,
    beds::{Bed, Kubectl, merge},
    fixtures::Prometheus,
    server, test_name, until, usually_or_long,
};
use serde_json::{Value, json};

use crate::containers::{answers, push};

/// The pods of an app, as Prometheus finds them and as users request them, until this is dropped.
struct Pods {
    ends: Arc<AtomicBool>,
    has_users: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pods {
    /// Keeps a file of targets for Prometheus up to date.
    fn follow(kubectl: &Kubectl, file: &Path) -> Self {
        let (ends, has_users) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (kubectl, file) = (kubectl.clone(), file.to_owned());
        let (is_over, is_used) = (Arc::clone(&ends), Arc::clone(&has_users));
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let pods = kubectl.pods("api");
                write(&file, &kubectl.namespace, &pods);
                let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
                let addresses: Vec<_> = pods.iter().filter(ready).filter_map(address).collect();
                for _ in 0..20 {
                    let mut used = addresses.iter().filter(|_| is_used.load(Ordering::Relaxed));
                    // Of one that has gone nothing comes: those that are there now are looked for at once.
                    if !used.all(|address| request(*address).is_ok()) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            }
        });
        Self { ends, has_users, thread: Some(thread) }
    }

    fn are_used(&self) {
        self.has_users.store(true, Ordering::Relaxed);
    }

    /// Deploys a version whose users come once it has settled. Those of the version before would be seen in its first
    /// measurements, for as long as its pods take to end.
    fn are_used_once_settled(&self, bed: &Bed, app: &App, revision: u64, image: &str) {
        self.has_users.store(false, Ordering::Relaxed);
        bed.post(app, image).expect(202);
        until("it is verified", || {
            let entry = bed.entry(app, revision);
            assert!(["queued", "rolling_out", "verifying"].contains(&entry["status"].as_str().unwrap()), "{entry}");
            entry["status"] == "verifying"
        });
        self.are_used();
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn request(address: SocketAddr) -> io::Result<Reply> {
    Connection::open_for(address, Duration::from_secs(2))?.send(&Call::to(address, "GET", "/"))
}

fn address(pod: &Value) -> Option<SocketAddr> {
    Some(SocketAddr::new(pod["status"]["podIP"].as_str()?.parse().ok()?, 8080))
}

/// Writes the pods of a namespace as Prometheus reads targets.
fn write(file: &Path, namespace: &str, pods: &[Value]) {
    let group = |pod: &Value| {
        let labels = json!({ "namespace": namespace, "pod": pod["metadata"]["name"] });
        Some(json!({ "targets": [address(pod)?.to_string()], "labels": labels }))
    };
    let groups: Vec<_> = pods.iter().filter_map(group).collect();
    let draft = file.with_extension("draft");
    fs::write(&draft, json!(groups).to_string()).unwrap();
    fs::rename(draft, file).unwrap();
}

/// A Prometheus that scrapes the pods of the app api.
fn prometheus(bed: &Bed, test: &str) -> Option<(Prometheus, Pods)> {
    let file = bed.server().file("targets.json");
    let pods = Pods::follow(&bed.kubectl, &file);
    let found = format!("{{files: ['{}'], refresh_interval: 1s}}", file.display());
    let prometheus = Prometheus::run(|_| format!("[{{job_name: pods, file_sd_configs: [{found}]}}]"), test)?;
    Some((prometheus, pods))
}

/// The share of requests that are answered with an error: below a twentieth, of ten requests at least.
fn errors(prometheus: &Prometheus) -> Value {
    let of = r#"namespace="{{namespace}}",pod=~"{{workload}}-.*""#;
    let query = format!(
        "sum(rate(http_requests_total{{{of},code=\"500\"}}[{{{{window}}}}])) \
         / sum(rate(http_requests_total{{{of}}}[{{{{window}}}}]))"
    );
    let samples = format!("sum(increase(http_requests_total{{{of}}}[{{{{window}}}}]))");
    json!({
        "kind": "prometheus", "every": "1s", "failures": 3,
        "settings": {
            "url": format!("http://{}", prometheus.address), "query": query, "condition": "< 0.05",
            "samples_query": samples, "minimum": 10,
        },
    })
}

/// Makes an app of two pods, whose version v3 fails a tenth of its users, judged by Prometheus.
fn judged(bed: &Bed, first: &str, prometheus: &Prometheus) -> App {
    let container = json!({ "name": "app", "image": first, "env": [{ "name": "ERRS", "value": "v3" }] });
    let spec = json!({ "replicas": 2, "template": { "spec": { "containers": [container] } } });
    bed.kubectl.make("Deployment", "api", "-", spec);
    let soak = usually_or_long("45s", "60s");
    let app = bed.adopt("Deployment", "api", json!({ "settle": "2s", "verify_for": soak }));
    set(bed, &app, &errors(prometheus));
    app
}

fn set(bed: &Bed, app: &App, check: &Value) {
    bed.manage("PUT", &format!("{}/checks/errors", app.path)).json(check).expect(200);
}

fn images(bed: &Bed) -> Vec<String> {
    let mut answered = answers(bed, "api");
    answered.dedup();
    answered
}

#[test]
fn version_is_judged_by_what_its_users_get() {
    let test = test_name!();
    let start = server!().arguments(["--allow-local-receivers"]);
    let Some(bed) = Bed::node(start, &test, |_| Vec::new()) else { return };
    let Some((mut prometheus, pods)) = prometheus(&bed, &test) else { return };
    let [v1, v2, v3] = ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = judged(&bed, &v1, &prometheus);
    let check = |revision: u64| bed.entry(&app, revision)["checks"][0].clone();
    // On a slow machine Prometheus may give no answer in between.
    let of = |revision: u64, verdict: &str| {
        let measurements = check(revision)["measurements"].as_array().unwrap().clone();
        measurements.into_iter().filter(|measured| measured["verdict"] == verdict).collect::<Vec<_>>()
    };

    // Nobody uses it: there is nothing to judge by, and nothing is restored.
    assert_eq!(bed.succeeds(&app, &v3), 2);
    let entry = bed.entry(&app, 2);
    assert!(entry["message"].as_str().is_some_and(|message| message.contains("not verified: errors")), "{entry}");
    assert_eq!((&check(2)["verdict"], images(&bed)), (&json!("none"), vec!["version=v3".to_owned()]), "{entry}");

    pods.are_used_once_settled(&bed, &app, 3, &v2);
    let entry = bed.ended(&app, 3);
    assert_eq!((&entry["status"], &check(3)["verdict"]), (&json!("succeeded"), &json!("pass")), "{entry}");
    let passed = of(3, "pass");
    assert!(passed.iter().all(|measured| measured["value"] == "0"), "{passed:?}");
    assert!(!entry["message"].to_string().contains("not verified"), "{entry}");

    // Ready, and bad for a tenth of its users.
    let failed = bed.fails(&app, &v3);
    assert_eq!((&failed["revision"], &failed["reason"]), (&json!(4), &json!("check-failed")), "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.contains("The check errors failed 3 times in a row: 0.") && message.contains("< 0.05"),
        "{message}"
    );
    let restored = bed.await_revision(&app, 5);
    assert_eq!((&restored["status"], images(&bed)), (&json!("succeeded"), vec!["version=v2".to_owned()]), "{restored}");
    let failures = of(4, "fail");
    let is_evidence = |measured: &Value| measured["samples"].as_u64() >= Some(10);
    assert!(failures.len() >= 3 && failures.iter().all(is_evidence), "{failures:?}");

    // Who only observes sees it, and nothing follows.
    let mut observed = errors(&prometheus);
    merge(&mut observed, json!({ "mode": "observe" }));
    set(&bed, &app, &observed);
    // Alone it would end with its first measurement.
    let guard = json!({ "kind": "prometheus", "every": "1s", "failures": 5, "without_verdict": "wait", "settings": {
        "url": format!("http://{}", prometheus.address), "condition": ">= 0",
        "query": r#"sum(increase(http_requests_total{namespace="{{namespace}}",pod=~"{{workload}}-.*"}[{{window}}]))"#,
    } });
    bed.manage("PUT", &format!("{}/checks/used", app.path)).json(&guard).expect(200);
    assert_eq!(bed.succeeds(&app, &v3), 6);
    let observed = check(6);
    assert_eq!((&observed["mode"], images(&bed)), (&json!("observe"), vec!["version=v3".to_owned()]), "{observed}");
    assert!(!of(6, "fail").is_empty(), "{observed}");

    // Prometheus ends in the middle: it decides nothing.
    bed.manage("DELETE", &format!("{}/checks/used", app.path)).expect(204);
    set(&bed, &app, &errors(&prometheus));
    bed.manage("PATCH", &app.path).json(&json!({ "policy": { "verify_for": "30s" } })).expect(200);
    pods.are_used_once_settled(&bed, &app, 7, &v1);
    until("it was measured", || check(7)["measurements"].as_array().is_some_and(|all| all.len() > 2));
    prometheus.stop();
    let ended = bed.ended(&app, 7);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert!(ended["message"].to_string().contains("not verified: errors"), "{ended}");
    assert_eq!(images(&bed), ["version=v1"]);
}

/// The points of a bad deploy at which its server is killed.
const POINTS: [&str; 5] =
    ["it is verifying", "it was measured", "it has failed once", "the restore is accepted", "the restore rolls out"];

#[test]
fn server_that_is_killed_while_it_verifies_finds_the_bad_version_and_restores_once() {
    let test = test_name!();
    let start = server!().arguments(["--allow-local-receivers"]);
    let Some(mut bed) = Bed::node(start, &test, |_| Vec::new()) else { return };
    let Some((prometheus, pods)) = prometheus(&bed, &test) else { return };
    let [v1, v3] = ["v1", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = judged(&bed, &v1, &prometheus);
    pods.are_used();
    let points = usually_or_long(&POINTS[1..4], &POINTS[..]);
    for (revision, point) in (2..).step_by(2).zip(points) {
        bed.post(&app, &v3).expect(202);
        let is = |revision: u64| {
            let call = bed.manage("GET", &format!("{}/deploys/{revision}", app.path)).send();
            (call.status == 200).then(|| call.json())
        };
        let has = |verdict: &str| {
            let measured = is(revision)?["checks"][0]["measurements"].as_array()?.clone();
            measured.iter().any(|one| verdict.is_empty() || one["verdict"] == verdict).then_some(())
        };
        until(point, || match *point {
            "it is verifying" => is(revision).filter(|entry| entry["status"] == "verifying").map(drop),
            "it was measured" => has(""),
            "it has failed once" => has("fail"),
            "the restore is accepted" => is(revision + 1).map(drop),
            _ => is(revision + 1).filter(|entry| entry["status"] != "queued").map(drop),
        });
        bed.kill_and_restart();
        let failed = bed.ended(&app, revision);
        assert_eq!(
            (&failed["status"], &failed["reason"]),
            (&json!("failed"), &json!("check-failed")),
            "{point}: {failed}"
        );
        let restored = bed.await_revision(&app, revision + 1);
        assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
        assert_eq!(images(&bed), ["version=v1"], "{point}");
    }
    assert_eq!(bed.history(&app).len(), 1 + 2 * points.len(), "one restore for each");
}

#[test]
fn watch_finds_what_users_meet_later_and_restores_once() {
    let test = test_name!();
    let start = server!().arguments(["--allow-local-receivers"]);
    let Some(mut bed) = Bed::node(start, &test, |_| Vec::new()) else { return };
    let Some((prometheus, pods)) = prometheus(&bed, &test) else { return };
    let [v1, v2, v3] = ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = judged(&bed, &v1, &prometheus);
    let watched = json!({ "policy": { "verify_for": "0s", "watch_for": "1h" } });
    bed.manage("PATCH", &app.path).json(&watched).expect(200);

    // Nobody uses it yet.
    bed.succeeds(&app, &v3);
    let entry = bed.entry(&app, 2);
    assert!(entry["revoked"].is_null() && entry["watch"]["ended"] == false, "{entry}");
    bed.kill_and_restart();
    pods.are_used();
    until("the verification is revoked", || bed.entry(&app, 2)["revoked"].is_object());
    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    let revoked = bed.entry(&app, 2);
    assert_eq!(
        (&revoked["status"], &revoked["revoked"]["check"]),
        (&json!("succeeded"), &json!("errors")),
        "{revoked}"
    );
    assert_eq!(images(&bed), ["version=v1"]);

    // A restore is not watched, and nothing goes back to the revoked version by itself.
    assert!(bed.entry(&app, 3)["watch"].is_null());
    bed.succeeds(&app, &v2);
    let rolled_back = bed.roll_back(&app);
    assert_eq!(rolled_back["image"].as_str().map(|image| image.contains(":v1")), Some(true), "{rolled_back}");
    assert_eq!(bed.history(&app).len(), 5);
}

#[test]
fn one_of_two_pods_that_answers_with_an_error_fails_the_deploy_and_is_named() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let [v1, v2, v3] = ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    // A pod without its file answers 503 at /healthz, and is ready all the same.
    let gates = bed.server().file("gates");
    fs::create_dir_all(&gates).unwrap();
    ["api-0", "api-1"].iter().for_each(|pod| fs::write(gates.join(pod), "").unwrap());
    let env = json!([
        { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        { "name": "GATE_FILE", "value": "/gates/$(POD)" },
    ]);
    let mounts = json!([{ "name": "gates", "mountPath": "/gates" }]);
    let container = json!({ "name": "app", "image": v1, "env": env, "volumeMounts": mounts });
    let volumes = json!([{ "name": "gates", "hostPath": { "path": gates } }]);
    let template = json!({ "spec": { "containers": [container], "volumes": volumes } });
    bed.kubectl.make("StatefulSet", "api", "-", json!({ "replicas": 2, "template": template }));
    let app = bed.adopt("StatefulSet", "api", json!({ "settle": "2s" }));
    let check = json!({
        "kind": "http", "every": "1s", "failures": 2,
        "settings": { "url": "https://api.invalid/healthz", "each_instance": 8080 },
    });
    bed.manage("PUT", &format!("{}/checks/each", app.path)).json(&check).expect(200);
    assert_eq!(bed.succeeds(&app, &v2), 2);
    let passed = bed.entry(&app, 2)["checks"][0].clone();
    assert_eq!(passed["verdict"], "pass", "{passed}");
    assert_eq!(passed["measurements"][0]["value"], "2 of 2 instances", "{passed}");

    fs::remove_file(gates.join("api-1")).unwrap();
    let failed = bed.fails(&app, &v3);
    assert_eq!((&failed["revision"], &failed["reason"]), (&json!(3), &json!("check-failed")), "{failed}");
    let message = failed["message"].as_str().unwrap();
    let expected = "The check each failed 2 times in a row: 503 from api-1 (1 of 2 instances), expected status 200.";
    assert!(message.starts_with(expected), "{message}");
    let restored = bed.await_revision(&app, 4);
    assert_eq!((&restored["status"], images(&bed)), (&json!("succeeded"), vec!["version=v2".to_owned()]), "{restored}");
    let tried = bed.manage("POST", &format!("{}/checks/each/test", app.path)).expect(200).json();
    assert_eq!(tried["value"], "503 from api-1 (1 of 2 instances)", "also the restore's own pods are asked: {tried}");
}
