//! A registry that goes away and a tag that moves, in the hands of rollhook and of `kubectl`, on a real kubelet.

use std::{fs, path::PathBuf};

use rollhook_testing::{beds::Bed, server, test_name, until};
use serde_json::{Value, json};

use super::containers::{answers, push, push_with};

/// The bed's registry under a name of its own, by which the node may lose it.
pub(crate) struct Registry {
    /// Where the node is told of it.
    hosts: PathBuf,
    name: String,
}

impl Registry {
    fn of(bed: &Bed, pushed: &str) -> Self {
        let name = format!("{}.example.com", bed.kubectl.namespace);
        Self::named(bed, &name, pushed.split('/').next().unwrap())
    }

    /// Has the node pull images of this name from the registry at an address, as long as this is kept.
    pub(crate) fn named(bed: &Bed, name: &str, address: &str) -> Self {
        let hosts = bed.kubectl.state.join("registries").join(name);
        fs::create_dir_all(&hosts).unwrap();
        let registry = Self { hosts, name: name.to_owned() };
        registry.is_at(address);
        registry
    }

    fn is_at(&self, address: &str) {
        let hosts = format!("server = \"http://{address}\"\n[host.\"http://{address}\"]\n");
        fs::write(self.hosts.join("hosts.toml"), hosts).unwrap();
    }

    fn image(&self, pushed: &str) -> String {
        format!("{}/{}", self.name, pushed.split_once('/').unwrap().1)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.hosts));
    }
}

fn make(bed: &Bed, name: &str, image: &str) {
    let container = json!({ "name": "app", "image": image, "imagePullPolicy": "Always" });
    let template = json!({ "spec": { "containers": [container] } });
    bed.kubectl.make("Deployment", name, "-", json!({ "progressDeadlineSeconds": 30, "template": template }));
    until("it runs", || answers(bed, name) == ["version=v1"]);
}

fn pods(bed: &Bed, name: &str) -> Vec<Value> {
    bed.kubectl.pods(name).iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
}

fn status(bed: &Bed, name: &str) -> bool {
    let arguments = ["rollout", "status", &format!("deployment/{name}"), "--timeout=100s"];
    bed.kubectl.command(&arguments).output().unwrap().status.success()
}

#[test]
fn registry_that_is_away_costs_no_pod_neither_here_nor_with_kubectl() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    // Images of its own: the node would call those of other tests by this registry's name.
    let apart = ["--env", "TWIN=1"];
    let push = |tag: &str| push_with(&bed, &format!("twin:{tag}"), &format!("app-{tag}"), &apart).0;
    let [v1, v2] = ["v1", "v2"].map(push);
    let registry = Registry::of(&bed, &v1);
    let [v1, v2] = [v1, v2].map(|pushed| registry.image(&pushed));
    make(&bed, "api", &v1);
    make(&bed, "twin", &v1);
    let app = bed.adopt("Deployment", "api", json!({ "settle": "2s", "patience": "8s" }));
    let before = ["api", "twin"].map(|name| pods(&bed, name));

    registry.is_at("10.77.0.1:1");
    bed.kubectl.run(&["set", "image", "deployment/twin", &format!("app={v2}")]);
    let failed = bed.fails(&app, &v2);
    assert!(["ImagePullBackOff", "ErrImagePull"].contains(&failed["reason"].as_str().unwrap()), "{failed}");
    assert!(!status(&bed, "twin"), "kubectl waits for its deadline, and says the same");
    // The way back needs no registry.
    bed.kubectl.run(&["rollout", "undo", "deployment/twin"]);
    until("kubectl has undone it", || status(&bed, "twin"));
    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    assert_eq!(["api", "twin"].map(|name| pods(&bed, name)), before, "no healthy pod is replaced");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn tag_that_moved_to_bad_bits_is_restored_to_those_that_ran() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let (tag, good) = push(&bed, "app:moving", "app-v1");
    make(&bed, "api", &tag);
    let app = bed.adopt("Deployment", "api", json!({ "settle": "2s", "patience": "5s" }));
    assert_eq!(bed.entry(&app, 1)["digest"], good);
    let (_, bad) = push(&bed, "app:moving", "crash");
    assert_ne!(good, bad);
    assert_eq!(bed.fails(&app, &tag)["reason"], "CrashLoopBackOff");
    // `kubectl rollout undo` finds nothing to undo: by its template, it is the same version.
    let restored = bed.await_revision(&app, 3);
    assert_eq!((&restored["status"], &restored["digest"]), (&json!("succeeded"), &json!(good)), "{restored}");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}
