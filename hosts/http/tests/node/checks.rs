//! Deploys judged in use: real containers under real traffic, by a Prometheus that scrapes them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rollhook_testing::{
    App, Call, Connection,
    beds::{Bed, Kubectl, merge},
    fixtures::Prometheus,
    server, test_name, until, usually_or_long,
};
use serde_json::{Value, json};

use crate::containers::{answers, push};

/// Users of an app: they request its pods, whichever there are, until this is dropped.
struct Traffic {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn of(kubectl: &Kubectl) -> Self {
        let (kubectl, ends) = (kubectl.clone(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let pods = kubectl.pods("api");
                let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
                let address = |pod: &Value| Some(SocketAddr::new(pod["status"]["podIP"].as_str()?.parse().ok()?, 8080));
                let addresses: Vec<_> = pods.iter().filter(ready).filter_map(address).collect();
                for _ in 0..20 {
                    for address in &addresses {
                        // A pod that is on its way out may refuse.
                        let connection = Connection::open_for(*address, Duration::from_secs(2));
                        let _answer = connection.and_then(|mut pod| pod.send(&Call::to(*address, "GET", "/")));
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A Prometheus that scrapes the pods of a namespace.
fn prometheus(bed: &Bed, test: &str) -> Option<Prometheus> {
    let (namespace, kubeconfig) = (&bed.kubectl.namespace, bed.kubectl.state.join("kubeconfig"));
    let found = format!(
        "{{role: pod, kubeconfig_file: {}, namespaces: {{names: [{namespace}]}}}}",
        kubeconfig.canonicalize().unwrap().display()
    );
    let relabel = "[{source_labels: [__meta_kubernetes_pod_ip], regex: '(.+)', target_label: __address__, replacement: '$1:8080'}, \
                   {source_labels: [__meta_kubernetes_namespace], target_label: namespace}, \
                   {source_labels: [__meta_kubernetes_pod_name], target_label: pod}]";
    let job = format!("[{{job_name: pods, kubernetes_sd_configs: [{found}], relabel_configs: {relabel}}}]");
    Prometheus::run(|_| job, test)
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
    let soak = usually_or_long("15s", "60s");
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
    let Some(mut prometheus) = prometheus(&bed, &test) else { return };
    let [v1, v2, v3] = ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = judged(&bed, &v1, &prometheus);
    let check = |revision: u64| bed.entry(&app, revision)["checks"][0].clone();

    // Nobody uses it: there is nothing to judge by, and nothing is restored.
    assert_eq!(bed.succeeds(&app, &v3), 2);
    let entry = bed.entry(&app, 2);
    assert!(entry["message"].as_str().is_some_and(|message| message.contains("not verified: errors")), "{entry}");
    assert_eq!((&check(2)["verdict"], images(&bed)), (&json!("none"), vec!["version=v3".to_owned()]), "{entry}");

    let traffic = Traffic::of(&bed.kubectl);
    assert_eq!(bed.succeeds(&app, &v2), 3);
    let entry = bed.entry(&app, 3);
    assert_eq!((&check(3)["verdict"], &check(3)["value"]), (&json!("pass"), &json!("0")), "{entry}");
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
    let measurements = check(4)["measurements"].as_array().unwrap().clone();
    let is_evidence = |measured: &Value| measured["verdict"] == "fail" && measured["samples"].as_u64() >= Some(10);
    assert!(measurements.len() >= 3 && measurements.iter().rev().take(3).all(is_evidence), "{measurements:?}");

    // Who only observes sees it, and nothing follows.
    let mut observed = errors(&prometheus);
    merge(&mut observed, json!({ "mode": "observe" }));
    set(&bed, &app, &observed);
    let policy = json!({ "policy": { "verify_for": "0s" } });
    bed.manage("PATCH", &app.path).json(&policy).expect(200);
    let guard = json!({ "kind": "prometheus", "every": "1s", "failures": 5, "without_verdict": "wait", "settings": {
        "url": format!("http://{}", prometheus.address), "condition": ">= 40",
        "query": r#"sum(increase(http_requests_total{namespace="{{namespace}}",pod=~"{{workload}}-.*"}[{{window}}]))"#,
    } });
    bed.manage("PUT", &format!("{}/checks/used", app.path)).json(&guard).expect(200);
    assert_eq!(bed.succeeds(&app, &v3), 6);
    let observed = check(6);
    assert_eq!((&observed["mode"], images(&bed)), (&json!("observe"), vec!["version=v3".to_owned()]), "{observed}");
    let last = observed["measurements"].as_array().unwrap().last().cloned().unwrap();
    assert_eq!(last["verdict"], "fail", "{observed}");

    // Prometheus ends in the middle: it decides nothing.
    bed.manage("DELETE", &format!("{}/checks/used", app.path)).expect(204);
    set(&bed, &app, &errors(&prometheus));
    bed.manage("PATCH", &app.path).json(&json!({ "policy": { "verify_for": "15s" } })).expect(200);
    bed.post(&app, &v1).expect(202);
    until("it is verified", || {
        bed.entry(&app, 7)["checks"][0]["measurements"].as_array().is_some_and(|all| all.len() > 2)
    });
    prometheus.stop();
    let ended = bed.ended(&app, 7);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert!(ended["message"].to_string().contains("not verified: errors"), "{ended}");
    assert_eq!(images(&bed), ["version=v1"]);
    drop(traffic);
}

/// The points of a bad deploy at which its server is killed.
const POINTS: [&str; 5] =
    ["it is verifying", "it was measured", "it has failed once", "the restore is accepted", "the restore rolls out"];

#[test]
fn server_that_is_killed_while_it_verifies_finds_the_bad_version_and_restores_once() {
    let test = test_name!();
    let start = server!().arguments(["--allow-local-receivers"]);
    let Some(mut bed) = Bed::node(start, &test, |_| Vec::new()) else { return };
    let Some(prometheus) = prometheus(&bed, &test) else { return };
    let [v1, v3] = ["v1", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = judged(&bed, &v1, &prometheus);
    let _traffic = Traffic::of(&bed.kubectl);
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
