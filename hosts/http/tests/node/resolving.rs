//! Images whose tags become digests at a real registry before a real kubelet runs them.

use std::net::SocketAddr;

use rollhook_testing::{
    Start,
    beds::Bed,
    fixtures::scripted::{Answer, Reaction, Server, forwarded},
    server, test_name, until,
};
use serde_json::{Value, json};

use crate::{
    containers::{answers, push, push_with},
    twins::Registry,
};

fn bed(test: &str) -> Option<Bed> {
    bed_of(server!(), test)
}

/// A namespace whose server reads the node's registry.
pub(crate) fn bed_of(start: Start, test: &str) -> Option<Bed> {
    Bed::node(start, test, |kubectl| {
        let registry = kubectl.setting("REGISTRY");
        let host = registry.rsplit_once(':').map_or(registry.as_str(), |(host, _)| host);
        vec!["--insecure-registry".to_owned(), host.to_owned()]
    })
}

#[test]
fn tag_that_moves_while_its_deploy_rolls_out_changes_nothing_of_it() {
    let Some(bed) = bed(&test_name!()) else { return };
    let (v1, _) = push(&bed, "moves:v1", "app-v1");
    let (stable, digest) = push(&bed, "moves:stable", "app-v2");
    bed.kubectl.make("Deployment", "api", &v1, json!({ "replicas": 2 }));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "5s" }));
    bed.server().post(&app, &json!({ "image": stable, "commit": "abc" })).expect(202);
    until("it rolls out", || bed.entry(&app, 2)["status"] == "rolling_out");
    push(&bed, "moves:stable", "app-v3");
    let ended = bed.await_revision(&app, 2);
    assert_eq!((&ended["status"], &ended["digest"]), (&json!("succeeded"), &json!(digest)), "{ended}");
    assert_eq!(ended["not_resolved"], Value::Null);
    assert_eq!(bed.kubectl.image("deployment/api"), format!("{stable}@{digest}"));
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
    // The same tag means the newer bits now, and a rollback the older ones.
    bed.succeeds(&app, &stable);
    assert_eq!(answers(&bed, "api"), ["version=v3", "version=v3"]);
    bed.manage("POST", &format!("{}/rollback", app.path)).json(&json!({})).expect(202);
    assert_eq!(bed.await_revision(&app, 4)["status"], "succeeded");
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
}

/// A registry before the node's own that lets in ada with the password hunter2 alone.
fn closed_registry(bed: &Bed) -> Server {
    let open: SocketAddr = bed.kubectl.setting("REGISTRY").parse().unwrap();
    Server::start_on(&open.ip().to_string(), move |asked| {
        let is_let_in = asked.authorization() == "Basic YWRhOmh1bnRlcjI=";
        let closed = || Answer::status(401).header("www-authenticate", "Basic realm=\"r\"");
        Reaction::Answer(if is_let_in { forwarded(open, asked) } else { closed() })
    })
}

#[test]
fn private_image_is_resolved_by_the_pull_secret_of_its_workload() {
    let Some(bed) = bed(&test_name!()) else { return };
    let registry = closed_registry(&bed);
    let address = registry.address.to_string();
    let _named = Registry::named(&bed, &address, &address);
    let [(v1, _), (v2, digest)] = ["v1", "v2"].map(|tag| push(&bed, &format!("private:{tag}"), &format!("app-{tag}")));
    let closed = |image: &str| image.replace(&bed.kubectl.setting("REGISTRY"), &address);
    let server = format!("--docker-server={address}");
    let login = ["--docker-username=ada", "--docker-password=hunter2"];
    bed.kubectl.run(&["create", "secret", "docker-registry", "pulls", &server, login[0], login[1]]);
    let secrets = json!({ "template": { "spec": { "imagePullSecrets": [{ "name": "pulls" }] } } });
    bed.kubectl.make("Deployment", "api", &closed(&v1), secrets);
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s", "resolve": "require" }));
    bed.succeeds(&app, &closed(&v2));
    assert_eq!((&bed.entry(&app, 2)["digest"], &bed.entry(&app, 2)["not_resolved"]), (&json!(digest), &Value::Null));
    assert_eq!(bed.kubectl.image("deployment/api"), format!("{}@{digest}", closed(&v2)));
    assert_eq!(answers(&bed, "api"), ["version=v2"]);
}

#[test]
fn tag_that_was_never_pushed_fails_with_the_nearest_and_no_pod_is_made() {
    let Some(bed) = bed(&test_name!()) else { return };
    let (v1, _) = push(&bed, "typos:v1.4.2", "app-v1");
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let before = bed.kubectl.generation("deployment/api");
    let failed = bed.fails(&app, &v1.replace("v1.4.2", "v1.42"));
    assert_eq!(failed["reason"], "image-not-found", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("nearest: v1.4.2"), "{failed}");
    assert_eq!(bed.kubectl.generation("deployment/api"), before);
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}

#[test]
fn index_for_other_machines_fails_at_its_pull_with_the_platform_that_it_is_for() {
    let Some(bed) = bed(&test_name!()) else { return };
    let (v1, _) = push(&bed, "platforms:v1", "app-v1");
    let (other, _) = push_with(&bed, "platforms:riscv", "app-v2", &["--architecture", "riscv64", "--index"]);
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let failed = bed.fails(&app, &other);
    let said = failed["message"].as_str().unwrap();
    assert!(said.contains(&format!("{other} is for linux/riscv64, as its registry says.")), "{failed}");
    bed.await_revision(&app, 3);
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
}
