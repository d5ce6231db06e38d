//! Objects as an API server (1.36) gives them, to be changed by a test's own JSON.

use rollhook_core::{
    app::{AppUid, Target},
    deploy::Revision,
    ports::{DeployId, RolloutSpec},
};
use serde_json::{Value, json};

use super::object::{Object, STAMP};
use crate::workload::{Rollout, Workload, WorkloadKind};

/// The uid of every sample workload.
pub(crate) const UID: &str = "0b5ba2ad-1111-4ab1-9f2c-000000000001";

/// A rollout of this revision for a Deployment `api` with the container `app`.
pub(crate) fn rollout(revision: u64) -> Rollout {
    rollout_of(WorkloadKind::Deployment, revision)
}

/// A rollout of this revision for a workload of this kind.
pub(crate) fn rollout_of(kind: WorkloadKind, revision: u64) -> Rollout {
    let workload = Workload { kind, name: "api".to_owned(), containers: vec!["app".to_owned()], template: None };
    Rollout { workload, ..Rollout::of(&spec(revision)).unwrap() }
}

/// The spec of [`rollout`].
pub(crate) fn spec(revision: u64) -> RolloutSpec {
    let settings = json!({"kind": "Deployment", "name": "api", "containers": ["app"]});
    let id = DeployId { app: AppUid::from_bits(42), revision: Revision::new(revision).unwrap() };
    let target = Target { settings: serde_json::from_value(settings).unwrap(), ..Target::default() };
    let image = format!("registry.example.com/api:v{revision}").parse().unwrap();
    let spec = RolloutSpec::new("shop-test/api".parse().unwrap(), id, target, image);
    spec.with(|spec| spec.cause = format!("webhook: revision {revision}"))
}

/// The value with the patch laid over it, as in RFC 7396.
pub(crate) fn merged(mut value: Value, patch: Value) -> Value {
    merge(&mut value, patch);
    value
}

fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, part) in patch {
        merge(&mut value[key.as_str()], part);
    }
}

fn metadata() -> Value {
    json!({
        "name": "api", "namespace": "shop-test", "uid": UID, "resourceVersion": "1234", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "api"}},
        "spec": {
            "initContainers": [{"name": "migrate", "image": "registry.example.com/migrate:1"}],
            "containers": [{"name": "app", "image": "registry.example.com/api:v0"}],
        },
    })
}

fn workload() -> Value {
    json!({
        "metadata": metadata(),
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "api"}}, "template": template()},
    })
}

/// A Deployment of 3 replicas.
pub(crate) fn deployment(patch: Value) -> Object {
    Object::Deployment(serde_json::from_value(merged(workload(), patch)).unwrap())
}

/// A StatefulSet of 3 replicas.
pub(crate) fn stateful_set(patch: Value) -> Object {
    let base = merged(workload(), json!({"spec": {"serviceName": "api"}}));
    Object::StatefulSet(serde_json::from_value(merged(base, patch)).unwrap())
}

/// A DaemonSet with one container.
pub(crate) fn daemon_set(patch: Value) -> Object {
    Object::DaemonSet(serde_json::from_value(merged(workload(), patch)).unwrap())
}

/// A CronJob that runs at night.
pub(crate) fn cron_job(patch: Value) -> Object {
    let base = json!({
        "metadata": metadata(),
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template()}}},
    });
    Object::CronJob(serde_json::from_value(merged(base, patch)).unwrap())
}

/// The object after our patch for the rollout.
pub(crate) fn stamped(object: Object, rollout: &Rollout) -> Object {
    let annotations = json!({STAMP: rollout.id.to_string()});
    let container = json!([{"name": "app", "image": rollout.image.to_string()}]);
    let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": container}});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"template": template}});
    let deeper = json!({"metadata": {"annotations": annotations},
                        "spec": {"jobTemplate": {"spec": {"template": template}}}});
    match object {
        Object::Deployment(object) => deployment(merged(serde_json::to_value(object).unwrap(), patch)),
        Object::StatefulSet(object) => stateful_set(merged(serde_json::to_value(object).unwrap(), patch)),
        Object::DaemonSet(object) => daemon_set(merged(serde_json::to_value(object).unwrap(), patch)),
        Object::CronJob(object) => cron_job(merged(serde_json::to_value(object).unwrap(), deeper)),
    }
}
