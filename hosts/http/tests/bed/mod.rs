//! A namespace of a real cluster, and the real server that deploys there.
//!
//! The runner lends two clusters by their state directories: `ROLLHOOK_TEST_CLUSTER` plays nodes and pods, which do what
//! their image's name says (backends/kubernetes/testbed/cluster/stages.yaml); `ROLLHOOK_TEST_NODE` runs real containers.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "real clusters live in real time")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

pub mod cli;
pub mod kubectl;
pub mod own;

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::common::{App, Call, Reply, Server, skip};
use kubectl::Kubectl;
use own::OwnCluster;

/// The image that apps begin with.
pub const FIRST: &str = "r.example.com/api:v1";

/// A namespace with a server of its own; both go with it.
pub struct Bed {
    pub kubectl: Kubectl,
    pub project: String,
    pub environment: String,
    server: Option<Server>,
    /// What its servers are told beside the cluster.
    arguments: Vec<String>,
    /// Where the cluster is this test's own; it goes down after everything else.
    own: Option<OwnCluster>,
}

impl Bed {
    /// On the lent cluster of simulated nodes; none where there is none, which is said.
    pub fn cluster(test: &str) -> Option<Self> {
        Some(Self::at(lent("ROLLHOOK_TEST_CLUSTER", test)?, |_| Vec::new()))
    }

    /// On the lent node that runs containers; none where there is none, which is said.
    pub fn node(test: &str) -> Option<Self> {
        Self::node_with(test, |_| Vec::new())
    }

    /// The same, with a server that is told more; what, may depend on its namespace.
    pub fn node_with(test: &str, arguments: impl FnOnce(&Kubectl) -> Vec<String>) -> Option<Self> {
        Some(Self::at(lent("ROLLHOOK_TEST_NODE", test)?, arguments))
    }

    /// On a cluster that nobody else uses, beside the lent one; none where none is lent.
    pub fn own_cluster(test: &str) -> Option<Self> {
        let own = OwnCluster::up(test)?;
        let mut bed = Self::at(own.state.clone(), |_| Vec::new());
        bed.own = Some(own);
        Some(bed)
    }

    fn at(state: PathBuf, arguments: impl FnOnce(&Kubectl) -> Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let project = format!("e2e-{}", std::process::id());
        let environment = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let kubectl = Kubectl { state, namespace: format!("{project}-{environment}") };
        kubectl.run(&["create", "namespace", &kubectl.namespace]);
        let arguments = arguments(&kubectl);
        let server = Some(serve(&kubectl.state, tempfile::tempdir().unwrap(), &arguments));
        Self { kubectl, project, environment, server, arguments, own: None }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Kills the server with SIGKILL and starts it again on the same store.
    pub fn kill_and_restart(&mut self) {
        let directory = self.server.take().unwrap().stop();
        self.server = Some(serve(&self.kubectl.state, directory, &self.arguments));
    }

    /// A second server on the same store, keys and cluster.
    pub fn second_server(&self) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let first = self.server().directory.path();
        for name in ["keys", "admin-token", "rollhook.db"] {
            symlink(first.join(name), directory.path().join(name)).unwrap();
        }
        serve(&self.kubectl.state, directory, &self.arguments)
    }

    /// Does something to the own cluster's API server, as `service.sh` has it.
    pub fn api_server(&self, what: &str) {
        self.own.as_ref().unwrap().service("apiserver", what);
    }

    /// Registers an app that adopts the workload of its name, waits until that runs, and enables the webhook.
    pub fn adopt(&self, kind: &str, name: &str, policy: Value) -> App {
        self.register(name, json!({ "workload": { "kind": kind, "name": name }, "policy": policy }))
    }

    /// Registers an app with what else is to be said of it.
    pub fn register(&self, name: &str, further: Value) -> App {
        let create = self.create(name, further);
        let path = format!("/api/v1/apps/{}/{name}", self.kubectl.namespace);
        let registered = self.manage("POST", "/api/v1/apps").json(&create).expect(201).json();
        assert_eq!(registered["deploy"]["revision"], 1, "{registered}");
        let app =
            App { path, hook: format!("/api/v1/webhook/{}/{name}", self.kubectl.namespace), token: self.enable(name) };
        let first = self.ended(&app, 1);
        assert_eq!(first["status"], "succeeded", "{first}");
        app
    }

    /// What registers an app, with what else is to be said of it.
    pub fn create(&self, name: &str, further: Value) -> Value {
        let mut create = json!({ "project": self.project, "environment": self.environment, "app": name });
        create.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        create
    }

    /// Enables the webhook; the token.
    pub fn enable(&self, name: &str) -> String {
        let path = format!("/api/v1/apps/{}/{name}/webhook", self.kubectl.namespace);
        self.manage("POST", &path).expect(200).json()["token"].as_str().unwrap().to_owned()
    }

    /// A manager's call.
    pub fn manage(&self, method: &str, path: &str) -> Call {
        self.server().manage(method, path)
    }

    /// CI's call, as it is made; give it a preference, and send it.
    pub fn post(&self, app: &App, image: &str) -> Call {
        let commit = image.rsplit(':').next().unwrap();
        self.server().post(app, &json!({ "image": image, "commit": commit }))
    }

    /// What a CI job does: it repeats the same call until the deploy has ended.
    pub fn deploy(&self, app: &App, image: &str) -> Reply {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let key = format!("deploy-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        repeat(self.post(app, image).header("idempotency-key", &key))
    }

    /// A deploy that must fail, and its entry with the evidence.
    pub fn fails(&self, app: &App, image: &str) -> Value {
        let reply = self.deploy(app, image);
        assert_eq!((reply.status, reply.problem().as_str()), (424, "deploy-failed"), "{}", reply.text());
        reply.json()["deploy"].clone()
    }

    /// A deploy that must succeed, and its revision.
    pub fn succeeds(&self, app: &App, image: &str) -> u64 {
        let reply = self.deploy(app, image);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["revision"].as_u64().unwrap()
    }

    /// A rollback over HTTP that must succeed; its answer.
    pub fn roll_back(&self, app: &App) -> Value {
        let answer = self.manage("POST", &format!("{}/rollback", app.path)).expect(202).json();
        let entry = self.ended(app, answer["revision"].as_u64().unwrap());
        assert_eq!(entry["status"], "succeeded", "{entry}");
        answer
    }

    /// An entry of the history as it is.
    pub fn entry(&self, app: &App, revision: u64) -> Value {
        self.manage("GET", &format!("{}/deploys/{revision}", app.path)).expect(200).json()
    }

    /// An entry of the history once it has ended.
    pub fn ended(&self, app: &App, revision: u64) -> Value {
        let call = self.manage("GET", &format!("{}/deploys/{revision}", app.path)).header("prefer", "wait=50");
        let ended = (0..6).map(|_| call.expect(200).json()).find(is_over);
        ended.unwrap_or_else(|| panic!("revision {revision} does not end: {}", self.entry(app, revision)))
    }

    /// The whole history, newest first, once everything in it has ended, and a failed rollout was put right.
    pub fn history(&self, app: &App) -> Vec<Value> {
        let list = || self.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
        let entries = |list: Value| list["deploys"].as_array().unwrap().clone();
        self.until("the history has ended", || entries(list()).iter().all(is_over));
        entries(list())
    }

    /// Each entry's revision, trigger, actor and status, oldest first.
    pub fn outline(&self, app: &App) -> Vec<String> {
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        let line = |entry: &Value| {
            let [trigger, actor, status] = ["trigger", "actor", "status"].map(|name| word(entry, name));
            format!("{} {trigger} {actor} {status}", entry["revision"])
        };
        self.history(app).iter().rev().map(line).collect()
    }

    /// Waits until the app has this many revisions, such as a restore that the service makes itself.
    pub fn await_revision(&self, app: &App, revision: u64) -> Value {
        let call = self.manage("GET", &format!("{}/deploys/{revision}", app.path));
        self.until(&format!("there is a revision {revision}"), || call.send().status == 200);
        self.ended(app, revision)
    }

    /// Waits until a revision rolls out.
    pub fn await_rollout(&self, app: &App, revision: u64) {
        self.until("it rolls out", || {
            let entry = self.entry(app, revision);
            assert!(!is_over(&entry), "{entry}");
            entry["status"] == "rolling_out"
        });
    }

    /// What the app's annotations name it by.
    pub fn stamp(&self, app: &App, revision: u64) -> String {
        let uid = self.manage("GET", &app.path).expect(200).json()["uid"].as_str().unwrap().to_owned();
        format!("{uid}/{revision}")
    }

    /// Looks again and again until it is so; that it never is, is found out after a time that no busy machine needs.
    pub fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !so() {
            assert!(Instant::now() < end, "never: {what}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the namespace\n{}", self.kubectl.story());
        }
        drop(self.server.take());
        if self.own.is_none() {
            self.kubectl.remove_namespace();
        }
    }
}

/// Repeats a call that has an idempotency key until the deploy has ended.
pub fn repeat(call: Call) -> Reply {
    let call = call.header("prefer", "wait=50");
    (0..6).map(|_| call.send()).find(|reply| reply.status != 202).unwrap_or_else(|| panic!("it does not end"))
}

/// Whether an entry has ended.
pub fn is_over(entry: &Value) -> bool {
    !matches!(entry["status"].as_str(), Some("queued" | "building" | "rolling_out"))
}

/// A file of the test beds.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../backends/kubernetes/testbed").join(name)
}

fn serve(state: &Path, directory: tempfile::TempDir, further: &[String]) -> Server {
    let kubeconfig = state.join("kubeconfig");
    let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("RUST_LOG", "info,rollhook_kubernetes=debug")];
    let arguments = ["--driver", "kubernetes"].into_iter().chain(further.iter().map(String::as_str));
    Server::in_directory(directory, &arguments.collect::<Vec<_>>(), &variables)
}

fn lent(variable: &str, test: &str) -> Option<PathBuf> {
    let state = std::env::var_os(variable).filter(|state| !state.is_empty());
    if state.is_none() {
        lacks(test, &format!("no cluster is lent ({variable})"));
    }
    state.map(PathBuf::from)
}

/// Tells of a test that cannot run here.
pub fn lacks(test: &str, what: &str) {
    skip(&format!("{}/{test}", env!("CARGO_PKG_NAME")), what);
}
