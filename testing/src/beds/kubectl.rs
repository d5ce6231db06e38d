//! `kubectl`, and the workloads that stand in a cluster before rollhook comes.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use serde_json::{Value, json};

use crate::process::Running;

/// `kubectl` in one namespace of one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// The cluster's state directory, which names program and kubeconfig.
    pub state: PathBuf,
    /// The namespace; if empty, the kubeconfig's.
    pub namespace: String,
}

impl Kubectl {
    /// A `kubectl` command, whose process id is kubectl's own.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", r#". "$0/env" && exec "$KUBECTL" "$@""#]).arg(&self.state);
        command.args(["--namespace", &self.namespace]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Returns what the test bed exports by this name, such as `REGISTRY`.
    pub fn setting(&self, name: &str) -> String {
        let mut shell = Command::new("bash");
        let shell = shell.args(["-c", r#". "$0/env" && echo -n "${!1}""#]).arg(&self.state).arg(name);
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    }

    /// Returns what a command prints; it must succeed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns an object, or a list of them, such as `deployment/api` or `pods`.
    pub fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.run(&["get", what, "--output", "json"])).unwrap()
    }

    /// Makes an object.
    pub fn create(&self, object: &Value) {
        self.feed("create", &object.to_string());
    }

    /// Applies manifests, each in its own namespace.
    pub fn apply(&self, manifests: &str) {
        Self { namespace: String::new(), ..self.clone() }.feed("apply", manifests);
    }

    fn feed(&self, verb: &str, documents: &str) {
        let mut child = self.command(&[verb, "--filename", "-"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(documents.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{documents}");
    }

    /// Writes a kubeconfig by which a program acts as a ServiceAccount of this namespace, in the namespace.
    pub fn write_kubeconfig(&self, account: &str, file: &Path) {
        let mut config: Value =
            serde_json::from_str(&self.run(&["config", "view", "--raw", "--output", "json"])).unwrap();
        config["users"][0]["user"] = json!({ "token": self.run(&["create", "token", account]).trim() });
        config["contexts"][0]["context"]["namespace"] = json!(self.namespace);
        std::fs::write(file, config.to_string()).unwrap();
    }

    /// Makes a [`workload`].
    pub fn make(&self, kind: &str, name: &str, image: &str, patch: Value) {
        self.create(&workload(kind, name, image, patch));
    }

    /// Returns the image of a workload's first container.
    pub fn image(&self, workload: &str) -> String {
        let object = self.get(workload);
        let template = ["/spec/jobTemplate/spec/template", "/spec/template"];
        let template = template.into_iter().find_map(|path| object.pointer(path)).unwrap();
        template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    }

    /// Returns how often a workload's specification was changed.
    pub fn generation(&self, workload: &str) -> u64 {
        self.get(workload)["metadata"]["generation"].as_u64().unwrap()
    }

    /// Returns the pods of a workload that are not being deleted.
    pub fn pods(&self, name: &str) -> Vec<Value> {
        let pods = self.get("pods")["items"].as_array().unwrap().clone();
        let of_it = |pod: &Value| {
            let labels = &pod["metadata"]["labels"];
            (labels["app"] == name || labels["app.kubernetes.io/name"] == name)
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        pods.into_iter().filter(of_it).collect()
    }

    /// Returns the images of a workload's ready pods.
    pub fn running(&self, name: &str) -> Vec<String> {
        let ready =
            |pod: &&Value| pod["status"]["containerStatuses"].as_array().is_some_and(|all| all.iter().all(is_ready));
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        self.pods(name).iter().filter(ready).map(image).collect()
    }

    /// Opens the gate of the pods of a workload that have one. Old pods are left alone: once a gate is open, they go.
    pub fn open_gate(&self, name: &str) {
        let gated = |pod: &&Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().contains("gate");
        for pod in self.pods(name).iter().filter(gated) {
            let pod = pod["metadata"]["name"].as_str().unwrap();
            self.run(&["annotate", "pod", pod, "rollhook.test/open=true", "--overwrite"]);
        }
    }

    /// Watches a field of a workload, at each change of the object.
    pub fn watch(&self, workload: &str, path: &str) -> Watch {
        let template = format!("jsonpath={{{path}}}{{\"\\n\"}}");
        let arguments = ["get", workload, "--watch", "--output", &template];
        let mut child = Running(self.command(&arguments).stdout(Stdio::piped()).spawn().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (noted, output) = (lines.clone(), BufReader::new(child.0.stdout.take().unwrap()));
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                noted.lock().unwrap().push(line);
            }
        });
        Watch { child, reader: Some(reader), lines }
    }

    /// Describes the namespace, for the log of a failed test.
    pub fn story(&self) -> String {
        let output = self.command(&["get", "all,events", "--output", "wide", "--request-timeout", "5s"]).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }

    /// Removes the namespace, without waiting for its end.
    pub fn remove_namespace(&self) {
        let arguments = ["delete", "namespace", &self.namespace, "--wait=false", "--request-timeout", "10s"];
        drop(self.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).status());
    }
}

fn is_ready(status: &Value) -> bool {
    status["ready"] == true
}

/// The values of a field since the watch began.
#[derive(Debug)]
pub struct Watch {
    child: Running,
    reader: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    /// Returns the values so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns all values; the watch must have lasted until now.
    pub fn finish(mut self) -> Vec<String> {
        assert!(self.child.0.try_wait().unwrap().is_none(), "the watch has ended before its time");
        self.end();
        self.lines()
    }

    fn end(&mut self) {
        self.child.kill();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a workload whose pods have one container, `app`, with a patch laid over its specification. A Deployment
/// never goes below its number of pods.
pub fn workload(kind: &str, name: &str, image: &str, patch: Value) -> Value {
    let labels = json!({ "app": name });
    let mut template = json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "app", "image": image }], "terminationGracePeriodSeconds": 0 },
    });
    let selector = json!({ "matchLabels": labels });
    let mut spec = match kind {
        "CronJob" => {
            template["spec"]["restartPolicy"] = json!("Never");
            json!({ "schedule": "0 3 1 1 *", "jobTemplate": { "spec": { "template": template } } })
        }
        "DaemonSet" => json!({ "selector": selector, "template": template }),
        "Deployment" => json!({
            "replicas": 1, "selector": selector, "template": template,
            "strategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
        }),
        _ => json!({ "replicas": 2, "selector": selector, "template": template }),
    };
    merge(&mut spec, patch);
    let version = if kind == "CronJob" { "batch/v1" } else { "apps/v1" };
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Merges a patch into a document.
pub fn merge(value: &mut Value, patch: Value) {
    match (value, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, part) in patch {
                merge(object.entry(key).or_insert(Value::Null), part);
            }
        }
        (value, patch) => *value = patch,
    }
}
