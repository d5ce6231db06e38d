//! The real server on nothing but a cluster: its store is the cluster too, and it may do what the printed manifests
//! say.
//!
//! Each test has a cluster of its own, as it changes what the ServiceAccount may do.

use std::path::PathBuf;

use rollhook_testing::{
    App, Call, Reply, Server, Start,
    beds::{Kubectl, OwnCluster, is_over},
    free_address, server,
    server::registration,
    test_name, until,
};
use serde_json::{Value, json};

use crate::calls::flood::{Left, assert_bounded, flood};

const V1: &str = "r.example.com/api:v1";
const V2: &str = "r.example.com/api:v2";
const V3: &str = "r.example.com/api:v3";

/// A cluster with rollhook's manifests in it, and a workload to deploy to.
pub(crate) struct Place {
    _cluster: OwnCluster,
    pub(crate) own: Kubectl,
    pub(crate) apps: Kubectl,
    pub(crate) start: Start,
}

impl Place {
    pub(crate) fn make(test: &str) -> Option<Self> {
        let cluster = OwnCluster::up(test)?;
        let kubectl = |namespace: &str| Kubectl { state: cluster.state.clone(), namespace: namespace.to_owned() };
        let (own, apps) = (kubectl("rollhook"), kubectl("shop-test"));
        let start = server!().driver("kubernetes").store("kubernetes").make("keys").make("admin-token");
        let place = Self { _cluster: cluster, own, apps, start };
        for namespace in ["rollhook", "shop-test"] {
            place.own.run(&["create", "namespace", namespace]);
        }
        place.install();
        place.own.run(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]);
        place.apps.make("Deployment", "api", V1, json!({}));
        place.write_kubeconfig();
        Some(place)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.start.file(name)
    }

    /// Applies what the server prints for this cluster.
    pub(crate) fn install(&self) {
        self.apply(&["--app-namespace", "shop-test"], "none");
    }

    fn apply(&self, arguments: &[&str], dry_run: &str) {
        let printed = self.start.command().arg("manifests").args(arguments).output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let file = self.file("manifests.yaml");
        std::fs::write(&file, printed.stdout).unwrap();
        let dry_run = format!("--dry-run={dry_run}");
        // Not all of it is in one namespace.
        self.own.run(&["--namespace=", "apply", &dry_run, "--filename", file.to_str().unwrap()]);
    }

    /// A kubeconfig with which one is the server's ServiceAccount and nobody else.
    pub(crate) fn write_kubeconfig(&self) {
        let token = self.own.run(&["create", "token", "rollhook", "--duration", "2h"]);
        let file = self.file("kubeconfig");
        std::fs::copy(self.own.state.join("kubeconfig"), &file).unwrap();
        let config = format!("--kubeconfig={}", file.display());
        self.own.run(&[&config, "config", "unset", "users.user"]);
        self.own.run(&[&config, "config", "set-credentials", "user", &format!("--token={}", token.trim())]);
        self.own.run(&[&config, "config", "set-context", "--current", "--namespace=rollhook"]);
        assert!(self.own.run(&[&config, "auth", "whoami"]).contains("system:serviceaccount:rollhook:rollhook"));
    }

    /// A replica with this name.
    pub(crate) fn serve(&self, name: &str) -> Server {
        let start = self.start.clone().at(free_address()).log_to(&format!("{name}.log"));
        let start = start.variable("KUBECONFIG", self.file("kubeconfig"));
        start.variable("HOSTNAME", name).variable("RUST_LOG", "info,rollhook_kubernetes=debug").run()
    }

    /// Takes a resource's verb out of what the ServiceAccount may do in the namespaces of apps.
    fn forbid(&self, resource: &str, verb: &str) {
        let mut role = self.own.get("clusterrole/rollhook-apps");
        for rule in role["rules"].as_array_mut().unwrap() {
            if rule["resources"].as_array().unwrap().contains(&json!(resource)) {
                rule["verbs"].as_array_mut().unwrap().retain(|known| known != verb);
            }
        }
        let file = self.file("role.json");
        std::fs::write(&file, role.to_string()).unwrap();
        self.own.run(&["replace", "--filename", file.to_str().unwrap()]);
        self.until_allowed(resource, verb, "no");
    }

    pub(crate) fn until_allowed(&self, resource: &str, verb: &str, answer: &str) {
        let config = format!("--kubeconfig={}", self.file("kubeconfig").display());
        // kubectl fails where the answer is no.
        let told = || self.apps.command(&[&config, "auth", "can-i", verb, resource]).output().unwrap().stdout;
        until("the permission is taken in", || String::from_utf8(told()).unwrap().trim() == answer);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the namespace\n{}", self.apps.story());
        }
    }
}

pub(crate) const APP: &str = "/api/v1/apps/shop-test/api";

fn register(server: &Server) -> App {
    let create = registration("api", &json!({ "policy": { "settle": "0s", "on_failure": "leave" } }));
    server.manage("POST", "/api/v1/apps").json(&create).expect(201);
    assert_eq!(ended(server, 1)["status"], "succeeded");
    App::new("shop-test", "api", server.enable(APP))
}

pub(crate) fn ended(server: &Server, revision: u64) -> Value {
    let call = server.manage("GET", &format!("{APP}/deploys/{revision}")).header("prefer", "wait=50");
    (0..6).map(|_| call.expect(200).json()).find(is_over).unwrap()
}

fn post(server: &Server, app: &App, image: &str) -> Call {
    server.post(app, &json!({ "image": image, "commit": image.rsplit(':').next() }))
}

pub(crate) fn deploy(server: &Server, app: &App, image: &str) -> Reply {
    post(server, app, image).header("idempotency-key", image).repeat()
}

/// Each entry as `revision trigger status`, oldest first.
fn outline(server: &Server) -> Vec<String> {
    let list = server.manage("GET", &format!("{APP}/deploys?limit=50")).expect(200).json();
    let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let line = |entry: &Value| format!("{} {} {}", entry["revision"], word(entry, "trigger"), word(entry, "status"));
    list["deploys"].as_array().unwrap().iter().rev().map(line).collect()
}

/// The objects of the store, and the bytes of their specifications.
fn left(place: &Place) -> Left {
    let of = |objects: &[&Value]| {
        let bytes: usize = objects.iter().map(|object| object["spec"].to_string().len()).sum();
        [objects.len() as u64, bytes as u64]
    };
    let records = place.own.get("serverrecords");
    let records: Vec<&Value> = records["items"].as_array().unwrap().iter().collect();
    let of_kind = |kind: &str| -> Vec<&Value> {
        records.iter().copied().filter(|record| record["spec"]["kind"] == kind).collect()
    };
    let deploys = place.apps.get("appdeploys");
    let deploys: Vec<&Value> = deploys["items"].as_array().unwrap().iter().collect();
    Left { sessions: of(&of_kind("session")), audit: of(&of_kind("audit")), keys: of(&deploys) }
}

#[test]
fn flood_of_one_caller_of_each_kind_leaves_a_bounded_number_of_objects_and_bytes() {
    let Some(mut place) = Place::make(&test_name!()) else { return };
    place.start = place.start.clone().unlimited();
    let server = place.serve("replica-1");
    let app = register(&server);
    let before = left(&place);
    flood(&server, &app);
    assert_bounded(before, left(&place));
}

#[test]
fn printed_permissions_suffice_for_an_apps_whole_life() {
    let Some(place) = Place::make(&test_name!()) else { return };
    place.apply(&["--app-namespace", "shop-test", "--image", "r.example.com/rollhook-server:1"], "server");
    let (one, two) = (place.serve("replica-1"), place.serve("replica-2"));
    until("both are ready", || [&one, &two].iter().all(|server| server.call("GET", "/readyz").send().status == 200));
    let app = register(&one);
    assert_eq!(deploy(&two, &app, V2).status, 200, "another replica knows the token");
    assert_eq!(place.apps.running("api"), [V2]);
    assert_eq!(deploy(&one, &app, "r.example.com/api:crash").status, 424);
    let back = one.manage("POST", &format!("{APP}/rollback")).expect(202).json();
    assert_eq!((&back["to"]["revision"], &back["revision"]), (&json!(2), &json!(4)), "{back}");
    assert_eq!(ended(&two, 4)["status"], "succeeded");
    assert_eq!(place.apps.image("deployment/api"), V2);
    let told = ["1 manual succeeded", "2 webhook succeeded", "3 webhook failed", "4 rollback succeeded"];
    for server in [&one, &two] {
        assert_eq!(outline(server), told);
    }

    let table = place.apps.run(&["get", "appdeploys"]);
    println!("{table}");
    for (line, words) in table.lines().zip([
        ["NAME", "IMAGE", "COMMIT", "TRIGGER", "STATUS"],
        ["api-1", V1, "", "manual", "succeeded"],
        ["api-2", V2, "v2", "webhook", "succeeded"],
        ["api-3", ":crash", "crash", "webhook", "failed"],
        ["api-4", V2, "v2", "rollback", "succeeded"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?} in\n{table}");
    }
    println!("{}", place.apps.run(&["get", "rollhookapps.rollhook.dev"]));

    // The token is in the Secret, sealed, and nowhere else.
    let secret = place.apps.get("secret/api-webhook");
    let owner = &secret["metadata"]["ownerReferences"][0];
    let object = place.apps.get("rollhookapps.rollhook.dev/api");
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("RollhookApp"), &object["metadata"]["uid"]));
    let announced = &object["metadata"]["annotations"]["rollhook.dev/webhook"];
    assert_eq!(announced, &secret["metadata"]["resourceVersion"], "what replicas are told by outlives the deploys");
    let stored = place.apps.run(&["get", "secrets,rollhookapps.rollhook.dev,appdeploys", "--output", "yaml"]);
    for text in [stored, one.log(), two.log()] {
        assert!(!text.contains(&app.token) && !text.contains("rh_"), "the token is to be read");
    }
    for server in [&one, &two] {
        assert!(!server.log().contains("forbidden"), "it tried what it may not do");
    }

    // Enable regenerates, everywhere at once.
    let renewed = App { token: two.enable(APP), ..app.clone() };
    for server in [&one, &two] {
        post(server, &app, V3).expect(401);
    }
    assert_eq!(deploy(&two, &renewed, V3).status, 200);
    until("the other replica knows it too", || {
        post(&one, &renewed, V3).header("idempotency-key", V3).send().status == 202
    });

    one.manage("DELETE", APP).expect(204);
    for server in [&one, &two] {
        post(server, &renewed, V3).expect(401);
        until("it is forgotten", || server.manage("GET", APP).send().status == 404);
    }
    let left = place.apps.run(&["get", "rollhookapps.rollhook.dev,appdeploys,secrets", "--output", "name"]);
    assert_eq!(left.trim(), "", "nothing of it is left");
    assert_eq!(place.apps.image("deployment/api"), V3, "the workload is not touched");
}

#[test]
fn missing_permissions_are_logged() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let server = place.serve("replica-1");
    let app = register(&server);
    let told = |what: &str| {
        until("the log tells", || server.log().contains(what) && server.log().contains("rollhook-server manifests"));
    };

    place.forbid("secrets", "update");
    let refused = server.manage("POST", &format!("{APP}/webhook")).send();
    assert!(refused.status >= 500, "{}", refused.text());
    told("cannot update resource \\\"secrets\\\"");
    assert_eq!(deploy(&server, &app, V2).status, 200, "the token that there was is still good");

    place.forbid("rollhookapps", "update");
    let refused = post(&server, &app, V3).send();
    assert!(refused.status >= 500, "{}", refused.text());
    assert!(!refused.text().contains("serviceaccount"), "no message of the cluster goes outward");
    told("cannot update resource \\\"rollhookapps\\\"");
    assert_eq!(outline(&server).len(), 2, "nothing was recorded");

    place.install();
    place.until_allowed("rollhookapps", "update", "yes");
    place.forbid("deployments", "patch");
    let waiting = post(&server, &app, V3).header("idempotency-key", "waits");
    waiting.expect(202);
    told("cannot patch resource \\\"deployments\\\"");
    assert_eq!(outline(&server).last().unwrap(), "3 webhook rolling_out", "it waits for the permission");

    place.install();
    place.until_allowed("deployments", "patch", "yes");
    assert_eq!(waiting.repeat().status, 200, "given back, it is used");
    assert_eq!(server.log().matches("waits for a permission").count(), 1, "told once, however often it was tried");
}
