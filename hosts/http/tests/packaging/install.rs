//! An operator's way, with image and chart as they get them, on a real kubelet: install, deploy, upgrade in the middle
//! of a rollout, go back, uninstall, install again.

use std::net::SocketAddr;

use rollhook_testing::{
    App, Call,
    beds::{Kind, Kubectl, is_over},
    test_name, until,
};
use serde_json::{Value, json};

use crate::{
    helm::{Helm, chart},
    images::Image,
};

const RELEASE: &str = "rollhook";

/// A release in a namespace of the lent node, and a namespace of its apps.
struct Release {
    own: Kubectl,
    apps: Kubectl,
    project: String,
    helm: Helm,
    image: &'static Image,
}

impl Release {
    /// Without a node or helm the test is reported as skipped.
    fn new(test: &str) -> Option<Self> {
        let project = format!("shop{}", std::process::id());
        let state = Kind::Node.lent_for(test)?;
        let own = Kubectl { state: state.clone(), namespace: format!("rollhook-{project}") };
        let apps = Kubectl { state, namespace: format!("{project}-test") };
        let helm = Helm::on(&own, test)?;
        for kubectl in [&own, &apps] {
            kubectl.run(&["create", "namespace", &kubectl.namespace]);
        }
        own.run(&["label", "namespace", &own.namespace, "pod-security.kubernetes.io/enforce=restricted"]);
        let image = Image::server(&own);
        Some(Self { own, apps, project, helm, image })
    }

    /// `helm install` or `helm upgrade`, as the notes of the docs have it.
    fn helm(&self, verb: &str, sets: &[&str]) -> String {
        let directory = chart();
        let values = [
            format!("appNamespaces={{{}}}", self.apps.namespace),
            format!("image.repository={}", self.image.repository()),
            format!("image.digest={}", self.image.digest),
        ];
        let mut arguments = vec![verb, RELEASE, directory.to_str().unwrap(), "--namespace", &self.own.namespace];
        arguments.extend(["--wait", "--timeout", "4m"]);
        for set in values.iter().map(String::as_str).chain(sets.iter().copied()) {
            arguments.extend(["--set", set]);
        }
        self.helm.run(&arguments)
    }

    /// The addresses of ready replicas.
    fn replicas(&self) -> Vec<SocketAddr> {
        let address = |pod: &Value| {
            let ready = pod["status"]["containerStatuses"].as_array()?.iter().all(|status| status["ready"] == true);
            let ip = pod["status"]["podIP"].as_str()?;
            ready.then(|| format!("{ip}:8080").parse().unwrap())
        };
        self.own.pods("rollhook").iter().filter_map(address).collect()
    }

    fn secrets(&self) -> [Value; 2] {
        ["rollhook-keys", "rollhook-admin-token"].map(|name| self.own.get(&format!("secret/{name}"))["data"].clone())
    }

    /// The admin token, read as the release's notes say.
    fn token(&self) -> String {
        let path = "go-template={{index .data \"admin-token\" | base64decode}}";
        self.own.run(&["get", "secret", "rollhook-admin-token", "--output", path]).trim().to_owned()
    }

    fn manage(&self, method: &str, path: &str) -> Call {
        let replica = until("a replica is ready", || self.replicas().first().copied());
        Call::to(replica, method, path).header("authorization", &format!("Bearer {}", self.token()))
    }

    fn path(&self) -> String {
        format!("/api/v1/apps/{}/api", self.apps.namespace)
    }

    /// The entry of a revision, once it has ended.
    fn ended(&self, revision: u64) -> Value {
        until("the deploy has ended", || {
            let path = format!("{}/deploys/{revision}", self.path());
            let entry = self.manage("GET", &path).header("prefer", "wait=20").send();
            (entry.status == 200).then(|| entry.json()).filter(is_over)
        })
    }

    /// Each entry as `revision trigger status`, oldest first.
    fn outline(&self) -> Vec<String> {
        let list = self.manage("GET", &format!("{}/deploys", self.path())).expect(200).json();
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        let line =
            |entry: &Value| format!("{} {} {}", entry["revision"], word(entry, "trigger"), word(entry, "status"));
        list["deploys"].as_array().unwrap().iter().rev().map(line).collect()
    }

    fn app_image(&self, tag: &str) -> String {
        format!("{}/app:{tag}", self.image.repository().split('/').next().unwrap())
    }

    /// CI's call, by a replica that is ready.
    fn post(&self, app: &App, tag: &str) -> Call {
        let body = json!({ "image": self.app_image(tag), "commit": tag });
        let replica = until("a replica is ready", || self.replicas().first().copied());
        let call = Call::to(replica, "POST", &app.hook).header("x-service-token", &app.token);
        call.header("idempotency-key", tag).json(&body)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's namespace\n{}", self.own.story());
            eprintln!("--- the namespace of apps\n{}", self.apps.story());
            let logs =
                self.own.command(&["logs", "--selector", "app.kubernetes.io/instance=rollhook", "--prefix"]).output();
            eprintln!(
                "--- the logs\n{}",
                logs.map(|logs| String::from_utf8_lossy(&logs.stdout).into_owned()).unwrap_or_default()
            );
        }
        let gone = self
            .helm
            .command(&["uninstall", RELEASE, "--namespace", &self.own.namespace, "--ignore-not-found"])
            .output();
        drop(gone);
        self.own.remove_namespace();
        self.apps.remove_namespace();
        let resources = ["apps", "appdeploys", "serverrecords"].map(|name| format!("crd/{name}.rollhook.dev"));
        let mut delete = self.own.command(&["delete", "--ignore-not-found", "--wait=false"]);
        drop(delete.args(resources).output());
    }
}

#[test]
fn release_is_installed_upgraded_in_a_rollout_rolled_back_and_removed_without_losing_a_deploy() {
    let Some(release) = Release::new(&test_name!()) else { return };
    let notes = release.helm("install", &[]);
    assert!(notes.contains("rollhook app create api") && notes.contains(&release.project), "{notes}");
    assert_eq!(release.replicas().len(), 2);
    let secrets = release.secrets();

    // The first app, registered in the pod as the notes say.
    let create = json!({
        "project": release.project, "environment": "test", "app": "api", "image": release.app_image("v1"),
        "template": { "replicas": 2, "port": 8080, "readiness_path": "/healthz" }, "policy": { "settle": "1s" },
    });
    release.manage("POST", "/api/v1/apps").json(&create).expect(201);
    assert_eq!(release.ended(1)["status"], "succeeded");
    let enabled = release.manage("POST", &format!("{}/webhook", release.path())).expect(200).json();
    let app = App::new(&release.apps.namespace, "api", enabled["token"].as_str().unwrap().to_owned());
    // Further pods count as soon as they are ready; what the app was made with is for apps that people use.
    let patch = json!({ "spec": { "minReadySeconds": 0 } }).to_string();
    release.apps.run(&["patch", "deployment", "api", "--patch", &patch]);
    assert_eq!(release.post(&app, "v2").repeat().status, 200);
    assert_eq!(release.apps.image("deployment/api"), release.app_image("v2"));
    let rollback = release.manage("POST", &format!("{}/rollback", release.path())).expect(202).json();
    assert_eq!(release.ended(rollback["revision"].as_u64().unwrap())["status"], "succeeded");
    let listed = release.own.run(&["exec", "deployment/rollhook", "--", "rollhook", "app", "list"]);
    assert!(listed.contains("api"), "{listed}");

    // The upgrade replaces both replicas while they wait for the deploy to settle.
    let policy = json!({ "policy": { "settle": "30s" } });
    release.manage("PATCH", &release.path()).json(&policy).expect(200);
    let accepted = release.post(&app, "v3").expect(202).json();
    assert_eq!(accepted["revision"], 4, "{accepted}");
    release.helm("upgrade", &["podAnnotations.restarted=once", "log.level=debug"]);
    assert_eq!(release.ended(4)["status"], "succeeded");
    let history = ["1 manual succeeded", "2 webhook succeeded", "3 rollback succeeded", "4 webhook succeeded"];
    assert_eq!(release.outline(), history);
    assert_eq!(release.secrets(), secrets, "the hook replaces nothing");

    release.helm.run(&["rollback", RELEASE, "1", "--namespace", &release.own.namespace, "--wait", "--timeout", "4m"]);
    assert_eq!(release.outline(), history);
    let replayed = release.post(&app, "v3").repeat();
    assert_eq!((replayed.status, replayed.json()["revision"].clone()), (200, json!(4)));

    release.helm.run(&["uninstall", RELEASE, "--namespace", &release.own.namespace, "--wait"]);
    assert_eq!(release.apps.running("api"), [release.app_image("v3"), release.app_image("v3")]);
    assert_eq!(release.apps.get("appdeploys")["items"].as_array().unwrap().len(), 4);
    assert_eq!(release.secrets(), secrets);

    release.helm("install", &[]);
    assert_eq!(release.outline(), history);
    assert_eq!(release.post(&app, "v3").repeat().json()["revision"], 4);
}
