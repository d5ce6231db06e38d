//! Several servers on one store.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::{FIRST, Kubectl, OwnCluster, Postgres};
use crate::{App, Call, Start, free_address, server::registration, skip};

/// The store that servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A PostgreSQL server.
    Postgres,
    /// The cluster itself.
    Kubernetes,
}

/// The namespace of the servers, and that of their apps.
const SERVERS: &str = "rollhook";
const APPS: &str = "shop-test";

/// Servers that share a store, keys and an admin token, with a cluster or a PostgreSQL of their own. On a cluster they
/// have the permissions that `rollhook-server manifests` prints, and no others.
pub struct Fleet {
    start: Start,
    is_simulated: bool,
    /// The database, if that is the store.
    pub postgres: Option<Postgres>,
    /// The cluster, if there is one.
    pub cluster: Option<OwnCluster>,
}

impl Fleet {
    /// Servers of this recipe whose rollouts are simulated and take so long. Without their store the test is reported
    /// as skipped.
    pub fn simulated(start: Start, shared: Shared, test: &str, delay: &str) -> Option<Self> {
        let cluster = match shared {
            Shared::Postgres => None,
            Shared::Kubernetes => Some(OwnCluster::up(test)?),
        };
        Self::new(start.driver(&format!("simulated:{delay}")), shared, test, cluster, true)
    }

    /// Servers of this recipe that roll out to a cluster of their own. Without that the test is reported as skipped.
    pub fn on_cluster(start: Start, shared: Shared, test: &str) -> Option<Self> {
        let cluster = OwnCluster::up(test)?;
        Self::new(start.driver("kubernetes"), shared, test, Some(cluster), false)
    }

    fn new(start: Start, shared: Shared, test: &str, cluster: Option<OwnCluster>, is_simulated: bool) -> Option<Self> {
        let postgres = match shared {
            Shared::Kubernetes => None,
            Shared::Postgres => Some(Postgres::own().inspect_err(|reason| skip(test, reason)).ok()?),
        };
        let mut start = start.make("keys").make("admin-token").unlimited();
        if shared == Shared::Kubernetes {
            start = start.store("kubernetes");
        }
        if let Some(postgres) = &postgres {
            start = start.store(&postgres.url("url").unwrap());
        }
        if cluster.is_some() {
            let kubeconfig = start.file("kubeconfig");
            start = start.variable("KUBECONFIG", kubeconfig);
        }
        let fleet = Self { start, is_simulated, postgres, cluster };
        if fleet.cluster.is_some() {
            let kubectl = Kubectl { namespace: SERVERS.to_owned(), ..fleet.kubectl() };
            for namespace in [SERVERS, APPS] {
                kubectl.run(&["create", "namespace", namespace]);
            }
            kubectl.apply(&fleet.manifests());
            kubectl.write_kubeconfig("rollhook", &fleet.file("kubeconfig"));
        }
        Some(fleet)
    }

    /// The manifests that the server prints for the fleet.
    pub fn manifests(&self) -> String {
        let arguments = ["manifests", "--namespace", SERVERS, "--app-namespace", APPS];
        let printed = Command::new(self.start.program()).args(arguments).output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8(printed.stdout).unwrap()
    }

    /// A file that all servers share.
    pub fn file(&self, name: &str) -> PathBuf {
        self.start.file(name)
    }

    /// The recipe of one of the servers, on an address that it keeps.
    pub fn replica(&self, name: &str) -> Start {
        self.start.clone().at(free_address()).log_to(&format!("{name}.log"))
    }

    /// `kubectl` in the namespace of the fleet's apps.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl { state: self.cluster.as_ref().unwrap().state.clone(), namespace: APPS.to_owned() }
    }

    /// A manager's call to one of the servers.
    pub fn manage(&self, address: SocketAddr, method: &str, path: &str) -> Call {
        let token = fs::read_to_string(self.file("admin-token")).unwrap();
        Call::to(address, method, path).header("authorization", &format!("Bearer {}", token.trim()))
    }

    /// Registers an app through one of the servers, waits until it runs, and enables its webhook.
    pub fn app(&self, address: SocketAddr, name: &str) -> App {
        self.app_with(address, name, &json!({ "settle": "0s" }))
    }

    /// Registers an app with this policy, waits until it runs, and enables its webhook.
    pub fn app_with(&self, address: SocketAddr, name: &str, policy: &Value) -> App {
        let path = self.register_with(address, name, policy);
        let first = self.manage(address, "GET", &format!("{path}/deploys/1")).header("prefer", "wait=50");
        assert_eq!(first.expect(200).json()["status"], "succeeded");
        App::new("shop-test", name, self.enable(address, &path))
    }

    /// Registers `shop-test/{name}`, whose deploys need not settle; on a cluster, it adopts a Deployment that is there.
    pub fn register(&self, address: SocketAddr, name: &str) -> String {
        self.register_with(address, name, &json!({ "settle": "0s" }))
    }

    fn register_with(&self, address: SocketAddr, name: &str, policy: &Value) -> String {
        let mut further = json!({ "policy": policy });
        if self.is_simulated {
            further["image"] = json!(FIRST);
        } else {
            self.kubectl().make("Deployment", name, FIRST, json!({}));
            further["workload"] = json!({ "kind": "Deployment", "name": name });
        }
        let create = registration(name, &further);
        self.manage(address, "POST", "/api/v1/apps").json(&create).expect(201);
        format!("/api/v1/apps/shop-test/{name}")
    }

    /// Enables an app's webhook anew, and returns the token.
    pub fn enable(&self, address: SocketAddr, path: &str) -> String {
        let webhook = self.manage(address, "POST", &format!("{path}/webhook")).expect(200).json();
        webhook["token"].as_str().unwrap().to_owned()
    }

    /// Returns an app's whole history from one of the servers, oldest first; `None` while its store is away.
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
}
