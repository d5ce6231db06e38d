//! The custom resources, as people see them with `kubectl`.
//!
//! A `RollhookApp` is the state of one app: the registration in `spec`, the rest in `status`, replaced as one object. An
//! `AppDeploy` is one revision of its history, for people to read and for the store to look up once the deploy has
//! ended. A `ServerRecord` is one of the service's own records, in the server's namespace. All hold the JSON that the
//! core writes; the schema names only the fields that people look for, so that a field can be added within `v1`, and an
//! object that is damaged leaves the others readable.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, CustomResourceValidation},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{CustomResource, CustomResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The group of the custom resources.
pub const GROUP: &str = "rollhook.dev";
/// The kind of apps. Tools that call theirs `App` or `Application` are many, and `kubectl get app` is to go on meaning
/// what it meant.
pub const KIND: &str = "RollhookApp";
/// The label of `RollhookApp`s, `AppDeploy`s and Secrets: the uid of the registration that they belong to.
pub const UID_LABEL: &str = "rollhook.dev/uid";
/// The label of `AppDeploy`s that names the app.
pub const APP_LABEL: &str = "rollhook.dev/app";
/// The label of `AppDeploy`s that tells their status.
pub const STATUS_LABEL: &str = "rollhook.dev/status";
/// The annotation of `AppDeploy`s that were accepted under an idempotency key: the key and its use, as JSON.
pub const KEY_ANNOTATION: &str = "rollhook.dev/idempotency-key";
/// The annotation of the definitions that numbers their form.
pub const FORM: &str = "rollhook.dev/form";
/// The form of this version.
pub const THIS_FORM: u32 = 1;

/// The label of `ServerRecord`s that tells the record's kind.
pub const RECORD_LABEL: &str = "rollhook.dev/record";
/// The annotation of `ServerRecord`s that tells the end of the record's time, in milliseconds since the epoch.
pub const EXPIRY_ANNOTATION: &str = "rollhook.dev/expires-at";
/// The annotation of `ServerRecord`s that tells when the record was written first, in milliseconds since the epoch.
pub const CREATED_ANNOTATION: &str = "rollhook.dev/created-at";
/// The annotation of `ServerRecord`s that tells the record's key, if the object's name does not spell it.
pub const RECORD_KEY_ANNOTATION: &str = "rollhook.dev/record-key";

/// The fields of a part of an object.
pub type Fields = Map<String, Value>;

/// The name of the Secret that holds an app's webhook token.
pub fn webhook_secret(app: &str) -> String {
    format!("{app}-webhook")
}

/// The name of the `AppDeploy` of an app's revision.
///
/// The digits after the last hyphen are the revision, so that no two apps spell one name.
pub fn deploy_name(app: &str, revision: u64) -> String {
    format!("{app}-{revision}")
}

/// The reference by which an object is removed with its `RollhookApp`, whose name and Kubernetes uid these are.
pub(crate) fn owned_by(app: &str, object: &str) -> Vec<OwnerReference> {
    vec![OwnerReference {
        api_version: format!("{GROUP}/v1"),
        kind: KIND.to_owned(),
        name: app.to_owned(),
        uid: object.to_owned(),
        ..OwnerReference::default()
    }]
}

/// The registration of an app, as JSON of [`rollhook_core::app::App`].
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rollhook.dev",
    version = "v1",
    kind = "RollhookApp",
    root = "AppObject",
    namespaced,
    shortname = "rhapp",
    category = "rollhook",
    status = "Fields",
    schema = "disabled",
    derive = "Default",
    printcolumn = r#"{"name":"Image", "type":"string", "jsonPath":".status.image"}"#,
    printcolumn = r#"{"name":"Status", "type":"string", "jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Current", "type":"integer", "jsonPath":".status.current.revision"}"#,
    printcolumn = r#"{"name":"Unfinished", "type":"string", "jsonPath":".status.unfinished_revisions"}"#,
    printcolumn = r#"{"name":"Workload", "type":"string", "jsonPath":".spec.target.settings.name", "priority":1}"#,
    printcolumn = r#"{"name":"Driven by", "type":"string", "jsonPath":".status.lease.name", "priority":1}"#,
    printcolumn = r#"{"name":"Message", "type":"string", "jsonPath":".status.message", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
pub struct AppSpec(pub Fields);

/// One revision of an app's history, as JSON of [`rollhook_core::deploy::Deploy`] and of what only people read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rollhook.dev",
    version = "v1",
    kind = "AppDeploy",
    root = "DeployObject",
    namespaced,
    shortname = "rhdeploy",
    category = "rollhook",
    schema = "disabled",
    derive = "Default",
    printcolumn = r##"{"name":"App", "type":"string", "jsonPath":".spec.app"}"##,
    printcolumn = r##"{"name":"#", "type":"integer", "jsonPath":".spec.revision"}"##,
    printcolumn = r##"{"name":"Image", "type":"string", "jsonPath":".spec.image"}"##,
    printcolumn = r##"{"name":"Commit", "type":"string", "jsonPath":".spec.commit"}"##,
    printcolumn = r##"{"name":"Trigger", "type":"string", "jsonPath":".spec.trigger"}"##,
    printcolumn = r##"{"name":"Status", "type":"string", "jsonPath":".spec.state.status"}"##,
    printcolumn = r##"{"name":"Age", "type":"date", "jsonPath":".spec.accepted"}"##,
    printcolumn = r##"{"name":"Reason", "type":"string", "jsonPath":".spec.state.reason", "priority":1}"##,
    printcolumn = r##"{"name":"By", "type":"string", "jsonPath":".spec.by", "priority":1}"##
)]
#[serde(transparent)]
pub struct DeploySpec(pub Fields);

/// One of the service's own records: an API token's hash, a session, or an act of management.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rollhook.dev",
    version = "v1",
    kind = "ServerRecord",
    root = "RecordObject",
    namespaced,
    shortname = "rhrecord",
    schema = "disabled",
    derive = "Default",
    printcolumn = r#"{"name":"Kind", "type":"string", "jsonPath":".spec.kind"}"#,
    printcolumn = r#"{"name":"Key", "type":"string", "jsonPath":".spec.key"}"#,
    printcolumn = r#"{"name":"Expires", "type":"string", "jsonPath":".spec.expires"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
pub struct RecordSpec(pub Fields);

/// The definitions of all resources, as the API server is told them.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    let app = schema(
        "An app that rollhook deploys: its registration, and the state of its deploys. Written by rollhook.",
        json!({
            "spec": with_fixed_uid(fields("The registration.", json!({
                "uid": text("The uid of the registration: set as the object is made, and never changed."),
                "project": text("The project; with the environment it spells the namespace."),
                "environment": text("The project's environment."),
                "source": fields("Where images come from.", Value::Null),
                "workload": fields("The workload whose containers a deploy changes.", Value::Null),
                "policy": fields("The decisions of the app's owner; change them with `rollhook app set`.", Value::Null),
            }))),
            "status": fields("The state of the deploys, replaced as a whole.", json!({
                "image": text("The image of the newest deploy that has touched the workload."),
                "state": text("The status of the newest deploy; `NotRegistered` if rollhook did not make this object."),
                "message": text("The reason why this object is no app, and what to do."),
            })),
        }),
    );
    let deploy = schema(
        "One revision of an app's deploy history. Written by rollhook; `rollhook app history` shows it best.",
        json!({
            "spec": fields("The deploy as it was last.", json!({
                "app": text("The app's name."),
                "by": text("The person or service that caused the deploy."),
                "accepted": text("When the deploy was accepted."),
            })),
        }),
    );
    let record = schema(
        "One of the records of rollhook's server: the hash of an API token, a session, or an act of management. Written by \
         rollhook.",
        json!({
            "spec": fields("The record.", json!({
                "kind": text("The kind of the record."),
                "key": text("The key of the record, within its kind."),
                "document": text("The content, as JSON; it holds no secret."),
                "expires": text("When the record is forgotten."),
            })),
        }),
    );
    let defined = |mut definition: CustomResourceDefinition, schema: &CustomResourceValidation| {
        definition.metadata.annotations.get_or_insert_default().insert(FORM.to_owned(), THIS_FORM.to_string());
        for version in &mut definition.spec.versions {
            version.schema = Some(schema.clone());
            // Registration and state change in one write, which the subresource would make two.
            version.subresources = None;
        }
        definition
    };
    [defined(AppObject::crd(), &app), defined(DeployObject::crd(), &deploy), defined(RecordObject::crd(), &record)]
}

fn schema(description: &str, properties: Value) -> CustomResourceValidation {
    let root = json!({"type": "object", "description": description, "properties": properties, "required": ["spec"]});
    // A constant, which the committed manifests show as it is read.
    serde_json::from_value(json!({ "openAPIV3Schema": root })).unwrap_or_default()
}

/// An object with these properties, and others that the API server need not know; replaced as a whole.
fn fields(description: &str, properties: Value) -> Value {
    json!({
        "type": "object", "description": description, "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic",
    })
}

/// The schema with the rule that `uid` is never changed, given or taken away. Of objects with one uid the oldest is the app:
/// nobody turns an older object of their own into another's app.
fn with_fixed_uid(mut schema: Value) -> Value {
    schema["x-kubernetes-validations"] = json!([{
        "rule": "has(self.uid) == has(oldSelf.uid) && (!has(self.uid) || self.uid == oldSelf.uid)",
        "message": "is set as the object is made, and cannot be changed",
        "fieldPath": ".uid",
    }]);
    schema
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}
