//! Apps of a server, and what CI and managers do with them.

use serde_json::{Value, json};

use super::Server;
use crate::client::Call;

/// An app with its webhook enabled.
#[derive(Clone, Debug)]
pub struct App {
    /// The app's name.
    pub name: String,
    /// The path of its management calls.
    pub path: String,
    /// The path of its webhook.
    pub hook: String,
    /// The webhook's token.
    pub token: String,
}

impl App {
    /// The app of this name in a namespace.
    pub fn new(namespace: &str, name: &str, token: String) -> Self {
        let path = format!("/api/v1/apps/{namespace}/{name}");
        Self { name: name.to_owned(), path, hook: format!("/api/v1/webhook/{namespace}/{name}"), token }
    }
}

/// The registration of `shop-test/{name}`, with what else is said of it.
pub fn registration(name: &str, further: &Value) -> Value {
    registration_in("shop", "test", name, further)
}

/// The registration of an app, with what else is said of it. A policy that names no patience has a short one: tests wait
/// for failures.
pub fn registration_in(project: &str, environment: &str, name: &str, further: &Value) -> Value {
    let mut create = json!({ "project": project, "environment": environment, "app": name });
    create.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    if let Some(policy) = create.get_mut("policy").and_then(Value::as_object_mut) {
        policy.entry("patience").or_insert_with(|| "10s".into());
    }
    create
}

impl Server {
    /// Registers `shop-test/{name}`, whose deploys need not settle, waits until it runs, and enables its webhook.
    pub fn app(&self, name: &str) -> App {
        self.app_with(name, json!({ "settle": "0s" }))
    }

    /// Registers an app with this policy, waits until it runs, and enables its webhook.
    pub fn app_with(&self, name: &str, policy: Value) -> App {
        let app = self.register(name, &json!({ "image": "r.example.com/api:v1", "policy": policy }));
        let first = self.manage("GET", &format!("{}/deploys/1", app.path)).header("prefer", "wait=50");
        assert_eq!(first.expect(200).json()["status"], "succeeded");
        app
    }

    /// Registers `shop-test/{name}`, whose deploys need not settle and which is built from this repository.
    pub fn git_app(&self, name: &str, url: &str) -> App {
        self.register(name, &git_source(url))
    }

    /// Registers `shop-test/{name}` with what else is said of it, and enables its webhook.
    pub fn register(&self, name: &str, further: &Value) -> App {
        self.manage("POST", "/api/v1/apps").json(&registration(name, further)).expect(201);
        let app = App::new("shop-test", name, String::new());
        App { token: self.enable(&app.path), ..app }
    }

    /// Enables an app's webhook anew, and returns the token.
    pub fn enable(&self, path: &str) -> String {
        let webhook = self.manage("POST", &format!("{path}/webhook")).expect(200).json();
        webhook["token"].as_str().unwrap().to_owned()
    }

    /// The webhook call of a CI job.
    pub fn post(&self, app: &App, body: &Value) -> Call {
        self.call("POST", &app.hook).header("x-service-token", &app.token).json(body)
    }
}

/// The members of a git app's registration; its deploys need not settle.
pub fn git_source(url: &str) -> Value {
    json!({
        "policy": { "settle": "0s" },
        "git": { "url": url, "image_repository": "registry.example.com/shop/api" }
    })
}
