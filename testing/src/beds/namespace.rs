//! A namespace of a real cluster, and the real server that deploys there.

use std::{
    path::PathBuf,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use super::{Kind, Kubectl, OwnCluster, service};
use crate::{App, Call, Cli, Reply, Server, Start, process::beside, server::registration_in, until};

/// The image of each app's first revision.
pub const FIRST: &str = "r.example.com/api:v1";

/// A namespace with a server of its own; both go with it.
pub struct Bed {
    /// The namespace.
    pub kubectl: Kubectl,
    /// The project of its apps.
    pub project: String,
    /// The environment of its apps.
    pub environment: String,
    server: Option<Server>,
    /// The cluster if it is the test's own; it goes down after everything else.
    own: Option<OwnCluster>,
    share: Option<Share>,
}

/// The tests of this process that use the lent node: of a test that takes parts of it away there is one, alone.
static NODE: RwLock<()> = RwLock::new(());

/// A test's use of the lent node.
#[expect(dead_code, reason = "it is held")]
enum Share {
    Part(RwLockReadGuard<'static, ()>),
    Whole(RwLockWriteGuard<'static, ()>),
}

impl Bed {
    /// A namespace of the lent cluster, with a server of this recipe. Without a cluster the test is reported as
    /// skipped.
    pub fn cluster(start: Start, test: &str) -> Option<Self> {
        Some(Self::at(Kind::Cluster.lent_for(test)?, start, |_| Vec::new()))
    }

    /// A namespace of the lent node, with a server of this recipe and these arguments, which may depend on the
    /// namespace.
    pub fn node(start: Start, test: &str, arguments: impl FnOnce(&Kubectl) -> Vec<String>) -> Option<Self> {
        let state = Kind::Node.lent_for(test)?;
        let share = Share::Part(NODE.read().unwrap_or_else(PoisonError::into_inner));
        let mut bed = Self::at(state, start, arguments);
        bed.share = Some(share);
        Some(bed)
    }

    /// The same for a test that takes parts of the node away, while no other one of this process uses it.
    pub fn sole_on_node(start: Start, test: &str) -> Option<Self> {
        let state = Kind::Node.lent_for(test)?;
        let share = Share::Whole(NODE.write().unwrap_or_else(PoisonError::into_inner));
        let mut bed = Self::at(state, start, |_| Vec::new());
        bed.share = Some(share);
        Some(bed)
    }

    /// A namespace of a cluster that no other test uses.
    pub fn own_cluster(start: Start, test: &str) -> Option<Self> {
        let own = OwnCluster::up(test)?;
        let mut bed = Self::at(own.state.clone(), start, |_| Vec::new());
        bed.own = Some(own);
        Some(bed)
    }

    fn at(state: PathBuf, start: Start, arguments: impl FnOnce(&Kubectl) -> Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let project = format!("e2e-{}", std::process::id());
        let environment = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let kubectl = Kubectl { state, namespace: format!("{project}-{environment}") };
        kubectl.run(&["create", "namespace", &kubectl.namespace]);
        let start = start.driver("kubernetes").arguments(arguments(&kubectl));
        let start = start.variable("KUBECONFIG", kubectl.state.join("kubeconfig"));
        let server = Some(start.variable("RUST_LOG", "info,rollhook_kubernetes=debug").run());
        Self { kubectl, project, environment, server, own: None, share: None }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Kills the server with SIGKILL and starts it again on the same store.
    pub fn kill_and_restart(&mut self) {
        self.server.as_mut().unwrap().restart();
    }

    /// Stops the server.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            drop(server.kill());
        }
    }

    /// The command line tool without the server: on its store and keys, and on the cluster.
    pub fn direct_cli(&self) -> Cli {
        let file = |name| self.server().file(name).display().to_string();
        Cli::new(beside(self.server().recipe().program(), "rollhook-cli", "rollhook"))
            .with("ROLLHOOK_STORE", &format!("sqlite:{}", file("rollhook.db")))
            .with("ROLLHOOK_KEY_DIR", &file("keys"))
            .with("ROLLHOOK_DRIVER", "kubernetes")
            .with("KUBECONFIG", &self.kubectl.state.join("kubeconfig").display().to_string())
            .with("ROLLHOOK_PROJECT", &self.project)
            .with("ROLLHOOK_ENVIRONMENT", &self.environment)
    }

    /// The command line tool on the bed's project and environment.
    pub fn cli(&self) -> Cli {
        Cli::new(beside(self.server().recipe().program(), "rollhook-cli", "rollhook"))
            .with("ROLLHOOK_SERVER", &format!("http://{}", self.server().address))
            .with("ROLLHOOK_TOKEN", &self.server().admin)
            .with("ROLLHOOK_PROJECT", &self.project)
            .with("ROLLHOOK_ENVIRONMENT", &self.environment)
    }

    /// Acts on the own cluster's API server: `stop`, `start`, `pause` or `resume`.
    pub fn api_server(&self, action: &str) {
        self.own.as_ref().unwrap().service("apiserver", action);
    }

    /// Registers an app that adopts the workload of its name, waits until that runs, and enables the webhook.
    pub fn adopt(&self, kind: &str, name: &str, policy: Value) -> App {
        self.register(name, json!({ "workload": { "kind": kind, "name": name }, "policy": policy }))
    }

    /// Registers an app by its [`create`](Self::create) document, waits until it runs, and enables the webhook.
    pub fn register(&self, name: &str, further: Value) -> App {
        let create = self.create(name, further);
        let registered = self.manage("POST", "/api/v1/apps").json(&create).expect(201).json();
        assert_eq!(registered["deploy"]["revision"], 1, "{registered}");
        let app = App::new(&self.kubectl.namespace, name, self.enable(name));
        let first = self.ended(&app, 1);
        assert_eq!(first["status"], "succeeded", "{first}");
        app
    }

    /// Returns the document that registers an app, with these further fields.
    pub fn create(&self, name: &str, further: Value) -> Value {
        registration_in(&self.project, &self.environment, name, &further)
    }

    /// Enables the webhook, and returns the token.
    pub fn enable(&self, name: &str) -> String {
        self.server().enable(&format!("/api/v1/apps/{}/{name}", self.kubectl.namespace))
    }

    /// A manager's call.
    pub fn manage(&self, method: &str, path: &str) -> Call {
        self.server().manage(method, path)
    }

    /// CI's call for an image, to be sent.
    pub fn post(&self, app: &App, image: &str) -> Call {
        let commit = image.rsplit(':').next().unwrap();
        self.server().post(app, &json!({ "image": image, "commit": commit }))
    }

    /// Deploys an image as a CI job does: repeats the same call until the deploy has ended.
    pub fn deploy(&self, app: &App, image: &str) -> Reply {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let key = format!("deploy-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.post(app, image).header("idempotency-key", &key).repeat()
    }

    /// Deploys an image, which must fail, and returns the entry with the evidence.
    pub fn fails(&self, app: &App, image: &str) -> Value {
        let reply = self.deploy(app, image);
        assert_eq!((reply.status, reply.problem().as_str()), (424, "deploy-failed"), "{}", reply.text());
        reply.json()["deploy"].clone()
    }

    /// Deploys an image, which must succeed, and returns the revision.
    pub fn succeeds(&self, app: &App, image: &str) -> u64 {
        let reply = self.deploy(app, image);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["revision"].as_u64().unwrap()
    }

    /// Rolls back over HTTP, which must succeed, and returns the answer.
    pub fn roll_back(&self, app: &App) -> Value {
        let answer = self.manage("POST", &format!("{}/rollback", app.path)).expect(202).json();
        let entry = self.ended(app, answer["revision"].as_u64().unwrap());
        assert_eq!(entry["status"], "succeeded", "{entry}");
        answer
    }

    /// Returns an entry of the history as it is now.
    pub fn entry(&self, app: &App, revision: u64) -> Value {
        self.manage("GET", &format!("{}/deploys/{revision}", app.path)).expect(200).json()
    }

    /// Returns an entry of the history once it has ended.
    pub fn ended(&self, app: &App, revision: u64) -> Value {
        let call = self.manage("GET", &format!("{}/deploys/{revision}", app.path)).header("prefer", "wait=50");
        let ended = (0..6).map(|_| call.expect(200).json()).find(is_over);
        ended.unwrap_or_else(|| panic!("revision {revision} does not end: {}", self.entry(app, revision)))
    }

    /// Returns the whole history, newest first, once every deploy in it has ended.
    pub fn history(&self, app: &App) -> Vec<Value> {
        let list = || self.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
        let entries = |list: Value| list["deploys"].as_array().unwrap().clone();
        until("the history has ended", || entries(list()).iter().all(is_over));
        entries(list())
    }

    /// Returns each entry's revision, trigger, actor and status, oldest first.
    pub fn outline(&self, app: &App) -> Vec<String> {
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        let line = |entry: &Value| {
            let [trigger, actor, status] = ["trigger", "actor", "status"].map(|name| word(entry, name));
            format!("{} {trigger} {actor} {status}", entry["revision"])
        };
        self.history(app).iter().rev().map(line).collect()
    }

    /// Waits until a revision exists, such as a restore, and has ended; returns its entry.
    pub fn await_revision(&self, app: &App, revision: u64) -> Value {
        let call = self.manage("GET", &format!("{}/deploys/{revision}", app.path));
        until(&format!("there is a revision {revision}"), || call.send().status == 200);
        self.ended(app, revision)
    }

    /// Waits until a revision rolls out.
    pub fn await_rollout(&self, app: &App, revision: u64) {
        until("it rolls out", || {
            let entry = self.entry(app, revision);
            assert!(!is_over(&entry), "{entry}");
            entry["status"] == "rolling_out"
        });
    }

    /// Returns the deploy id that the app's workload carries for a revision.
    pub fn stamp(&self, app: &App, revision: u64) -> String {
        let uid = self.manage("GET", &app.path).expect(200).json()["uid"].as_str().unwrap().to_owned();
        format!("{uid}/{revision}")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if matches!(self.share, Some(Share::Whole(_))) {
            // The next test finds it whole again.
            service(&self.kubectl.state, "apiserver", "start");
        }
        if thread::panicking() {
            eprintln!("--- the namespace\n{}", self.kubectl.story());
        }
        drop(self.server.take());
        if self.own.is_none() {
            self.kubectl.remove_namespace();
        }
    }
}

/// Returns whether an entry has ended.
pub fn is_over(entry: &Value) -> bool {
    !matches!(entry["status"].as_str(), Some("queued" | "building" | "releasing" | "rolling_out" | "verifying"))
}
