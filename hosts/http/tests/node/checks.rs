//! Deploys judged in use: real containers under real traffic, by a Prometheus that scrapes them.

use std::{
    fs,
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
    App, Call, Connection,
    beds::{Bed, Kubectl},
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
                    for address in addresses.iter().filter(|_| is_used.load(Ordering::Relaxed)) {
                        let connection = Connection::open_for(*address, Duration::from_secs(2));
                        // A pod that is on its way out may refuse.
                        let _answer = connection.and_then(|mut pod| pod.send(&Call::to(*address, "GET", "/")));
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
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
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
