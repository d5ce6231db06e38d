//! Several servers on one store.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

pub mod postgres;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    bed::{FIRST, kubectl::Kubectl, own::OwnCluster},
    common::Call,
    process::{App, Process, without_settings},
};
use postgres::Postgres;

/// Which store the servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    Sqlite,
    Postgres,
    /// The cluster itself.
    Kubernetes,
}

/// Servers that share a store, keys and a management token, and what is theirs alone: a cluster, a PostgreSQL.
pub struct Fleet {
    directory: tempfile::TempDir,
    store: String,
    driver: String,
    pub postgres: Option<Postgres>,
    pub cluster: Option<OwnCluster>,
}

/// How one of them is started.
pub struct Replica<'a> {
    fleet: &'a Fleet,
    name: &'static str,
    pub address: SocketAddr,
    /// Where it reaches the cluster, if not where everybody does.
    pub kubeconfig: Option<PathBuf>,
    /// The program, with its arguments.
    pub program: Vec<String>,
    /// What else it is told by its environment.
    pub variables: Vec<(&'static str, String)>,
}

impl Fleet {
    /// Servers that roll out to nowhere; none where their store is not to be had here, which is said.
    pub fn simulated(shared: Shared, test: &str, delay: &str) -> Option<Self> {
        let cluster = match shared {
            Shared::Sqlite | Shared::Postgres => None,
            Shared::Kubernetes => Some(OwnCluster::up(test)?),
        };
        Self::new(shared, test, format!("simulated:{delay}"), cluster)
    }

    /// Servers that roll out to a cluster of their own; none where that or their store is not to be had here.
    pub fn on_cluster(shared: Shared, test: &str) -> Option<Self> {
        let cluster = OwnCluster::up(test)?;
        Self::new(shared, test, "kubernetes".to_owned(), Some(cluster))
    }

    fn new(shared: Shared, test: &str, driver: String, cluster: Option<OwnCluster>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let postgres = match shared {
            Shared::Sqlite | Shared::Kubernetes => None,
            Shared::Postgres => Some(Postgres::up(test)?),
        };
        let store = match (shared, &postgres) {
            (Shared::Kubernetes, _) => "kubernetes".to_owned(),
            (_, Some(postgres)) => postgres.url.clone(),
            (_, None) => format!("sqlite:{}", directory.path().join("rollhook.db").display()),
        };
        let fleet = Self { directory, store, driver, postgres, cluster };
        fleet.make(&["keys", "new"], "keys");
        fleet.make(&["admin-token", "new"], "admin-token");
        if fleet.cluster.is_some() {
            fleet.kubectl().run(&["create", "namespace", &fleet.kubectl().namespace]);
        }
        Some(fleet)
    }

    /// What replicas must be given, made as people make it.
    fn make(&self, what: &[&str], name: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rollhook-server"));
        without_settings(&mut command);
        let output = command.args(what).arg(self.path(name)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The real binary as a member of the fleet, on an address of its own.
    pub fn replica(&self, name: &'static str) -> Replica<'_> {
        Replica {
            fleet: self,
            name,
            address: crate::process::address(),
            kubeconfig: self.cluster.as_ref().map(|cluster| cluster.state.join("kubeconfig")),
            program: vec![env!("CARGO_BIN_EXE_rollhook-server").to_owned()],
            variables: Vec::new(),
        }
    }

    /// The cluster's own word, in the namespace of the fleet's apps.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl { state: self.cluster.as_ref().unwrap().state.clone(), namespace: "shop-test".to_owned() }
    }

    /// A manager's call to one of the servers.
    pub fn manage(&self, address: SocketAddr, method: &str, path: &str) -> Call {
        let token = fs::read_to_string(self.path("admin-token")).unwrap();
        Call::to(address, method, path).header("authorization", &format!("Bearer {}", token.trim()))
    }

    /// Registers an app through one of the servers, waits until it runs, and enables its webhook.
    pub fn app(&self, address: SocketAddr, name: &str) -> App {
        let path = self.register(address, name);
        let first = self.manage(address, "GET", &format!("{path}/deploys/1")).header("prefer", "wait=50");
        assert_eq!(first.expect(200).json()["status"], "succeeded");
        let token = self.enable(address, &path);
        App { name: name.to_owned(), hook: format!("/api/v1/webhook/shop-test/{name}"), token, path }
    }

    /// Registers `shop-test/{name}`, whose deploys need not settle; on a cluster, it adopts a Deployment that is there.
    pub fn register(&self, address: SocketAddr, name: &str) -> String {
        let mut create = json!({ "project": "shop", "environment": "test", "app": name, "policy": { "settle": "0s" } });
        if self.driver == "kubernetes" {
            self.kubectl().make("Deployment", name, FIRST, json!({}));
            create["workload"] = json!({ "kind": "Deployment", "name": name });
        } else {
            create["image"] = json!(FIRST);
        }
        self.manage(address, "POST", "/api/v1/apps").json(&create).expect(201);
        format!("/api/v1/apps/shop-test/{name}")
    }

    /// Enables an app's webhook anew.
    pub fn enable(&self, address: SocketAddr, path: &str) -> String {
        let webhook = self.manage(address, "POST", &format!("{path}/webhook")).expect(200).json();
        webhook["token"].as_str().unwrap().to_owned()
    }

    /// An app's whole history as one of the servers tells it, oldest first; none while it cannot tell.
    pub fn history(&self, address: SocketAddr, app: &App) -> Option<Vec<Value>> {
        let mut entries = Vec::new();
        let mut before = String::new();
        loop {
            let page = self.manage(address, "GET", &format!("{}/deploys?limit=200{before}", app.path)).send();
            if page.status == 503 {
                return None;
            }
            assert_eq!(page.status, 200, "{}", page.text());
            let page = page.json();
            entries.extend(page["deploys"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next"].as_u64() else { break };
            before = format!("&before={next}");
        }
        entries.reverse();
        Some(entries)
    }

    /// What a server has counted under a name with its labels; nothing yet is zero.
    pub fn counted(address: SocketAddr, series: &str) -> u64 {
        let text = Call::to(address, "GET", "/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }
}

impl Replica<'_> {
    pub fn run(&self) -> Process {
        let fleet = self.fleet;
        let [program, arguments @ ..] = &self.program[..] else { panic!("no program") };
        let mut command = Command::new(program);
        without_settings(&mut command);
        let path = |name: &str| fleet.path(name).into_os_string();
        command.args(arguments).env_remove("KUBECONFIG").env("ROLLHOOK_RATE_LIMIT", "off");
        command.env("ROLLHOOK_LISTEN", self.address.to_string()).env("ROLLHOOK_KEY_DIR", path("keys"));
        command.env("ROLLHOOK_STORE", &fleet.store).env("ROLLHOOK_DRIVER", &fleet.driver);
        command.env("ROLLHOOK_ADMIN_TOKEN_FILE", path("admin-token"));
        command.envs(self.kubeconfig.as_deref().map(|file: &Path| ("KUBECONFIG", file)));
        command.envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())));
        Process::start(command, self.address, fleet.directory.path(), &format!("{}.log", self.name))
    }
}
