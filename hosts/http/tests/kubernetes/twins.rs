//! The same change by rollhook, by `kubectl` and by Helm, in the same run: where the verdicts differ, docs/apps.md says why
//! ("Failures and patience").

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use rollhook_testing::{
    App,
    beds::{Bed, FIRST, Kubectl, workload},
    process::tool,
    server, test_name, until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a change of the image is called in the end: `Err` with the reason, or with a part of what the tool prints.
type Verdict = Result<(), &'static str>;

/// A row of the table of symptoms.
#[derive(Clone, Copy)]
struct Row {
    /// The name of rollhook's workload, to which the others' are twins.
    name: &'static str,
    image: &'static str,
    rollhook: Verdict,
    kubectl: Verdict,
    helm: bool,
}

impl Row {
    /// A row that all agree on.
    const fn good(name: &'static str, image: &'static str) -> Self {
        Self { name, image, rollhook: Ok(()), kubectl: Ok(()), helm: true }
    }

    /// A row in which the others wait for their time to be over.
    const fn bad(name: &'static str, image: &'static str, reason: &'static str) -> Self {
        Self { name, image, rollhook: Err(reason), kubectl: Err(DEADLINE), helm: false }
    }

    fn twin(&self, of: &str) -> String {
        format!("{}-{of}", self.name)
    }
}

/// What `kubectl rollout status` prints at the end of the workload's own deadline.
const DEADLINE: &str = "exceeded its progress deadline";
/// The workload's own deadline, and Helm's, which are longer than rollhook's patience.
const SECONDS: u64 = 24;

/// The tools on one namespace.
struct Tools {
    bed: Bed,
    helm: PathBuf,
    files: TempDir,
    patch: Value,
}

impl Tools {
    /// Makes the workloads of these rows, each three times, patched so.
    fn with(bed: Bed, test: &str, rows: &[Row], patch: Value) -> Option<(Self, Vec<App>)> {
        let tools = Self { bed, helm: tool("bin/helm", test)?, files: TempDir::new().unwrap(), patch };
        fs::create_dir(tools.files.path().join("templates")).unwrap();
        let file = |name: &str, text: &str| fs::write(tools.files.path().join(name), text).unwrap();
        file("Chart.yaml", "apiVersion: v2\nname: twin\nversion: 0.1.0\n");
        file("templates/workload.yaml", "{{ toJson .Values.object }}\n");
        let adopted = thread::scope(|scope| {
            let made = rows.iter().map(|row| scope.spawn(|| tools.make(row))).collect::<Vec<_>>();
            made.into_iter().map(|made| made.join().unwrap()).collect()
        });
        Some((tools, adopted))
    }

    fn object(&self, name: &str, image: &str) -> Value {
        let mut object = workload("Deployment", name, image, self.patch.clone());
        object["spec"]["progressDeadlineSeconds"] = json!(SECONDS);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        object
    }

    fn make(&self, row: &Row) -> App {
        for name in [row.name, &row.twin("kubectl")] {
            self.bed.kubectl.create(&self.object(name, FIRST));
        }
        let installed = self.upgrade(&row.twin("helm"), FIRST);
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        until("the twin runs", || self.bed.kubectl.running(&row.twin("kubectl")) == [FIRST]);
        self.bed.adopt("Deployment", row.name, json!({ "settle": "6s", "patience": "8s" }))
    }

    fn upgrade(&self, name: &str, image: &str) -> Output {
        let values = self.files.path().join(format!("{name}.{}.json", image.rsplit(':').next().unwrap()));
        fs::write(&values, json!({ "object": self.object(name, image) }).to_string()).unwrap();
        let (state, timeout) = (&self.bed.kubectl.state, format!("{SECONDS}s"));
        let mut helm = Command::new(&self.helm);
        helm.args(["upgrade", "--install", name]).arg(self.files.path()).arg("--values").arg(values);
        helm.args(["--namespace", &self.bed.kubectl.namespace, "--wait", "--timeout", &timeout]);
        for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(place, self.files.path().join(place));
        }
        helm.env("KUBECONFIG", state.join("kubeconfig")).stdin(Stdio::null()).output().unwrap()
    }

    fn kubectl_status(&self, name: &str) -> Output {
        let workload = format!("deployment/{name}");
        self.bed.kubectl.command(&["rollout", "status", &workload, "--timeout=100s"]).output().unwrap()
    }

    fn pods(&self, name: &str) -> Vec<Value> {
        self.bed.kubectl.pods(name).iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    }

    /// Changes the image with each tool at the same time, compares the verdicts with the row's, and what is there after the
    /// way back.
    fn judge(&self, row: &Row, app: &App) {
        let twin = row.twin("kubectl");
        let before = [row.name, &twin].map(|name| self.pods(name));
        let (ours, kubectl, helm) = thread::scope(|scope| {
            let ours = scope.spawn(|| self.bed.deploy(app, row.image));
            let helm = scope.spawn(|| self.upgrade(&row.twin("helm"), row.image));
            self.bed.kubectl.run(&["set", "image", &format!("deployment/{twin}"), &format!("app={}", row.image)]);
            (ours.join().unwrap(), self.kubectl_status(&twin), helm.join().unwrap())
        });
        let (name, told) = (row.name, String::from_utf8_lossy(&kubectl.stderr));
        match row.rollhook {
            Ok(()) => assert_eq!(ours.status, 200, "{name}: {}", ours.text()),
            Err(reason) => assert_eq!(ours.json()["deploy"]["reason"], reason, "{name}: {}", ours.text()),
        }
        match row.kubectl {
            Ok(()) => assert!(kubectl.status.success(), "{name}: {told}"),
            Err(text) => assert!(!kubectl.status.success() && told.contains(text), "{name}: {told}"),
        }
        assert_eq!(helm.status.success(), row.helm, "{name}: {}", String::from_utf8_lossy(&helm.stderr));
        if row.rollhook.is_err() {
            self.judge_way_back(row, app, before);
        }
    }

    /// Every restore that `kubectl rollout undo` survives succeeds, and both keep the pods that run.
    fn judge_way_back(&self, row: &Row, app: &App, [ours, twins]: [Vec<Value>; 2]) {
        let (name, twin) = (row.name, row.twin("kubectl"));
        self.bed.kubectl.run(&["rollout", "undo", &format!("deployment/{twin}")]);
        // Right after it, the condition of the deadline that is over may still be there.
        until("kubectl has undone it", || self.kubectl_status(&twin).status.success());
        let restored = self.bed.await_revision(app, 3);
        assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
        for name in [name, &twin] {
            assert_eq!(self.bed.kubectl.running(name), [FIRST], "{name}");
        }
        // Who calls such a version good has lost the pods of before.
        if row.kubectl.is_err() {
            assert_eq!((self.pods(name), self.pods(&twin)), (ours, twins), "{name}: no healthy pod is replaced");
        }
    }

    /// Leaves no room for a further pod.
    fn fill_quota(&self) {
        let pods = self.bed.kubectl.get("pods")["items"].as_array().unwrap().len().to_string();
        let spec = json!({ "hard": { "pods": pods } });
        let quota =
            json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "full" }, "spec": spec });
        self.bed.kubectl.create(&quota);
        until("the quota counts", || {
            self.bed.kubectl.get("resourcequota/full")["status"]["used"]["pods"] == json!(pods)
        });
    }

    fn judge_all(&self, rows: &[Row], apps: &[App], meanwhile: impl FnOnce()) {
        thread::scope(|scope| {
            for (row, app) in rows.iter().zip(apps) {
                scope.spawn(move || self.judge(row, app));
            }
            meanwhile();
        });
    }
}

#[test]
fn verdicts_differ_from_those_of_kubectl_and_helm_for_a_reason() {
    let (test, server) = (test_name!(), server!());
    let Some(bed) = Bed::cluster(server, &test) else { return };
    let rows = [
        Row::good("good", "r.example.com/api:v2"),
        Row::good("flaky", "r.example.com/api:flaky"),
        // At once, or after the patience, where the others wait for their one time.
        Row::bad("missing", "r.example.com/api:missing", "ImagePullBackOff"),
        Row::bad("badconfig", "r.example.com/api:badconfig", "CreateContainerConfigError"),
        Row::bad("crash", "r.example.com/api:crash", "CrashLoopBackOff"),
        // Nothing is known but that it is not ready: the workload's own deadline is ours.
        Row::bad("hang", "r.example.com/api:hang", "ProgressDeadlineExceeded"),
        // It is ready for 5 s after each start: the others look once, and call it good.
        Row {
            kubectl: Ok(()),
            helm: true,
            ..Row::bad("relapse", "r.example.com/api:relapse", "containers-restarting")
        },
    ];
    let Some((tools, apps)) = Tools::with(bed, &test, &rows, json!({})) else { return };
    tools.judge_all(&rows, &apps, || {});
}

#[test]
fn quota_that_is_full_is_waited_for_by_all() {
    let (test, server) = (test_name!(), server!());
    let Some(bed) = Bed::cluster(server, &test) else { return };
    let rows = [Row::good("full", "r.example.com/api:v2")];
    let Some((tools, apps)) = Tools::with(bed, &test, &rows, json!({})) else { return };
    tools.fill_quota();
    tools.judge_all(&rows, &apps, || {
        thread::sleep(Duration::from_secs(3));
        tools.bed.kubectl.run(&["delete", "resourcequota/full"]);
    });
}

#[test]
fn quota_that_stays_full_costs_no_pod() {
    let (test, server) = (test_name!(), server!());
    let Some(bed) = Bed::cluster(server, &test) else { return };
    let rows = [Row::bad("full", "r.example.com/api:v2", "ProgressDeadlineExceeded")];
    let Some((tools, apps)) = Tools::with(bed, &test, &rows, json!({})) else { return };
    tools.fill_quota();
    tools.judge_all(&rows, &apps, || {});
}

#[test]
fn node_that_comes_later_is_waited_for_by_all() {
    let (test, server) = (test_name!(), server!());
    let Some(bed) = Bed::cluster(server, &test) else { return };
    let nodes = Nodes(bed.kubectl.clone());
    nodes.add("first");
    let rows = [Row::good("grows", "r.example.com/api:v2")];
    let Some((tools, apps)) = Tools::with(bed, &test, &rows, nodes.only()) else { return };
    tools.judge_all(&rows, &apps, || {
        thread::sleep(Duration::from_secs(3));
        nodes.add("second");
    });
}

#[test]
fn node_that_never_comes_costs_no_pod() {
    let (test, server) = (test_name!(), server!());
    let Some(bed) = Bed::cluster(server, &test) else { return };
    let nodes = Nodes(bed.kubectl.clone());
    nodes.add("only");
    let rows = [Row::bad("stuck", "r.example.com/api:v2", "ProgressDeadlineExceeded")];
    let Some((tools, apps)) = Tools::with(bed, &test, &rows, nodes.only()) else { return };
    tools.judge_all(&rows, &apps, || {});
}

/// Nodes for the pods of one namespace, each with room for the three of a row. They are removed in the end.
struct Nodes(Kubectl);

impl Nodes {
    fn add(&self, name: &str) {
        let room = &self.0.namespace;
        let size = json!({ "cpu": "3", "memory": "8Gi", "pods": "100" });
        self.0.create(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("{room}-{name}"), "labels": { "room": room } },
            "spec": { "taints": [{ "key": "room", "value": room, "effect": "NoSchedule" }] },
            "status": { "allocatable": size, "capacity": size },
        }));
    }

    /// The patch of workloads whose pods run on these nodes alone.
    fn only(&self) -> Value {
        json!({ "template": { "spec": {
            "nodeSelector": { "room": self.0.namespace }, "tolerations": [{ "key": "room", "operator": "Exists" }],
            "containers": [{ "name": "app", "image": FIRST, "resources": { "requests": { "cpu": "1" } } }],
        } } })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        drop(self.0.command(&["delete", "node", "--selector", &format!("room={}", self.0.namespace)]).output());
    }
}
