//! Two replicas at the Secret of one run, on a cluster that keeps one Secret.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use http::{Method, Request, Response};
use kube::client::Body;
use rollhook_core::{
    app::AppId,
    configuration::{ConfigurationId, Variables},
    deploy::Revision,
};
use serde_json::{Value, json};

use super::*;
use crate::lock;

/// A cluster with at most one Secret.
#[derive(Clone, Default)]
struct OneSecret(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    secret: Option<Value>,
    /// The number of writes.
    writes: u64,
    /// The Secret is removed before the next change of it arrives.
    is_removed_next: bool,
}

impl OneSecret {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    fn cluster(&self) -> Cluster {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (code, answer) =
                    this.state().answer(&parts.method, serde_json::from_slice(&body).unwrap_or_default());
                let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Cluster::of(kube::Client::new(service, "default"))
    }
}

impl State {
    fn answer(&mut self, method: &Method, body: Value) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""}))
        };
        if *method == Method::PATCH && std::mem::take(&mut self.is_removed_next) {
            self.secret = None;
        }
        let present = self.secret.as_ref().map(|secret| secret["metadata"].clone());
        let guard = match *method {
            Method::PATCH => &body["metadata"],
            _ => &body["preconditions"],
        };
        let is_as_read = |present: &Value| ["uid", "resourceVersion"].iter().all(|name| guard[name] == present[name]);
        match (method.clone(), present) {
            (Method::GET, Some(_)) => {}
            (Method::POST, Some(_)) => return status(409, "AlreadyExists"),
            (Method::POST, None) => {
                let mut made = body;
                made["metadata"]["uid"] = format!("s-{}", self.writes).into();
                self.secret = Some(made);
            }
            (_, None) => return status(404, "NotFound"),
            (_, Some(present)) if !is_as_read(&present) => return status(409, "Conflict"),
            (Method::DELETE, Some(_)) => {
                self.secret = None;
                return (200, json!({"kind": "Status", "status": "Success"}));
            }
            (_, Some(_)) => {
                let metadata = &mut self.secret.as_mut().unwrap()["metadata"];
                for (name, value) in body["metadata"]["annotations"].as_object().unwrap() {
                    metadata["annotations"][name] = value.clone();
                }
            }
        }
        let secret = self.secret.as_mut().unwrap();
        if *method != Method::GET {
            self.writes += 1;
            secret["metadata"]["resourceVersion"] = self.writes.to_string().into();
        }
        (200, secret.clone())
    }
}

const UID: AppUid = AppUid::from_bits(42);

fn wanted() -> Configuration {
    let text = json!({"salt": vec![0; 16], "variables": [["MODE", "test", false]]}).to_string();
    let variables = Variables::from_text(&text).unwrap();
    Configuration::of(ConfigurationId(7 << 88)).with(|wanted| wanted.variables = variables)
}

async fn provided(cluster: &Cluster, known: Option<&str>) -> Provided {
    let app: AppId = "shop-test/api".parse().unwrap();
    let deploy = DeployId { app: UID, revision: Revision::new(3).unwrap() };
    let owner = Owner { app: &app, uid: UID, deploy: Some(deploy), object: None };
    provide(cluster, &owner, &wanted(), known).await.unwrap()
}

#[tokio::test]
async fn secret_that_nobody_else_has_found_is_taken_back() {
    let secrets = OneSecret::default();
    let cluster = secrets.cluster();
    let made = provided(&cluster, None).await;
    assert!(matches!(made, Provided::Made(_)), "{made:?}");
    take_back(&cluster, "shop-test", Some(&made)).await;
    assert_eq!(secrets.state().secret, None);
}

#[tokio::test]
async fn secret_that_another_replica_has_found_for_the_same_run_stays() {
    let secrets = OneSecret::default();
    let cluster = secrets.cluster();
    let made = provided(&cluster, None).await;
    let found = [provided(&cluster, None).await, provided(&cluster, None).await];
    assert!(found.iter().all(|found| matches!(found, Provided::Found(_)) && found.uid() == made.uid()), "{found:?}");
    assert_eq!(secrets.state().writes, 2, "the first one that finds it leaves the mark");
    for provided in [&made, &found[0]] {
        take_back(&cluster, "shop-test", Some(provided)).await;
    }
    assert_ne!(secrets.state().secret, None);
}

#[tokio::test]
async fn secret_that_is_taken_back_as_another_replica_finds_it_is_made_anew() {
    let secrets = OneSecret::default();
    let cluster = secrets.cluster();
    let made = provided(&cluster, None).await;
    secrets.state().is_removed_next = true;
    let anew = provided(&cluster, None).await;
    assert!(matches!(anew, Provided::Made(_)) && anew.uid() != made.uid(), "{anew:?}");
    take_back(&cluster, "shop-test", Some(&made)).await;
    assert_eq!(secrets.state().secret.as_ref().unwrap()["metadata"]["uid"], anew.uid().unwrap());
}

#[tokio::test]
async fn secret_that_the_workload_was_given_is_read_alone() {
    let secrets = OneSecret::default();
    let cluster = secrets.cluster();
    let made = provided(&cluster, None).await;
    let found = provided(&cluster, made.uid()).await;
    assert!(matches!(found, Provided::Found(_)), "{found:?}");
    assert_eq!(secrets.state().writes, 1);
}
