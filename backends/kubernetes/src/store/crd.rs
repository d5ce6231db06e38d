//! The custom resources, as people see them with `kubectl`.
//!
//! Each field is optional, or has a default, and what a newer version adds is kept when an older one rewrites an object:
//! so fields can be added within `v1`. Nothing in here fails to decode what the schema admits; what the texts mean is
//! parsed elsewhere, object by object, so that one that is damaged leaves the others readable.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::{CustomResource, CustomResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The group of our custom resources.
pub const GROUP: &str = "rollhook.dev";
/// The label of `AppDeploy`s and Secrets, and of `App`s themselves: the registration that they belong to.
pub const UID_LABEL: &str = "rollhook.dev/uid";
/// The annotation of the definitions that numbers their form; an older process leaves a newer form alone.
pub const FORM: &str = "rollhook.dev/form";
/// This version's form.
pub const THIS_FORM: u32 = 2;
/// The label that names the app.
pub const APP_LABEL: &str = "rollhook.dev/app";

/// The name of the Secret that an app's webhook token is kept in.
pub fn webhook_secret(app: &str) -> String {
    format!("{app}-webhook")
}

/// The name of the `AppDeploy` of an app's revision.
///
/// The digits after the last hyphen are the revision, so that no two apps spell one name.
pub fn deploy_name(app: &str, revision: u64) -> String {
    format!("{app}-{revision}")
}

/// A registration: what rollhook deploys to, and where the app's history stands.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "rollhook.dev",
    version = "v1",
    kind = "App",
    root = "AppObject",
    namespaced,
    shortname = "rhapp",
    category = "rollhook",
    status = "AppStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An app that rollhook deploys: its registration, and where its history stands. Made and changed by rollhook.",
    printcolumn = r#"{"name":"Workload", "type":"string", "jsonPath":".spec.target.settings.name"}"#,
    printcolumn = r#"{"name":"Current", "type":"integer", "jsonPath":".status.current"}"#,
    printcolumn = r#"{"name":"Unfinished", "type":"string", "jsonPath":".status.open[*].revision"}"#,
    printcolumn = r#"{"name":"Driven by", "type":"string", "jsonPath":".status.owner.replica", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct AppSpec {
    /// Which registration of its name this is: 32 hexadecimal digits.
    pub uid: String,
    /// Its name, by which a copy of the object under another is told from it.
    pub name: String,
    /// The project; with the environment it spells the namespace.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// Where its images come from.
    #[schemars(schema_with = "object")]
    pub source: Value,
    /// What its deploys change.
    #[schemars(schema_with = "object")]
    pub target: Value,
    /// What its owner decided.
    #[schemars(schema_with = "object")]
    pub policy: Value,
    /// When it was registered.
    pub created_at: String,
    /// What a newer version added.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Map<String, Value>,
}

/// Where an app's history stands; changed only as a whole, guarded by the object's `resourceVersion`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AppStatus {
    /// Counts the changes of policy and holds.
    pub guard: u64,
    /// What people rolled away from, oldest first.
    #[schemars(schema_with = "objects")]
    pub holds: Vec<Value>,
    /// The newest revision that this status takes into account; those above it are queued, as they were accepted.
    pub folded: u64,
    /// The unfinished entries up to `folded`, ascending.
    pub open: Vec<EntryState>,
    /// Ends that are not in their `AppDeploy`s yet.
    pub pending: Vec<EntryState>,
    /// The newest that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The newest that touched the cluster and ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_on_cluster: Option<u64>,
    /// The newest that rollhook itself made to put a failed rollout right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restore: Option<u64>,
    /// Who drives it, or did last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Since when there has been something to do; none: nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_since: Option<String>,
    /// The latest time that was stored, below which none may follow.
    pub last_time: String,
    /// What a newer version added.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Map<String, Value>,
}

/// A process that drives an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Its name, which survives its restart.
    pub replica: String,
    /// Its number, which does not.
    pub incarnation: String,
    /// The namespace of its Lease.
    pub namespace: String,
    /// The uid of its Lease: one that was given up and made anew owns nothing yet.
    pub lease: String,
}

/// The part of an entry that changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EntryState {
    /// Which entry.
    pub revision: u64,
    /// How often it was changed.
    pub step: u32,
    /// Where it stands, with all that belongs to it.
    #[schemars(schema_with = "object")]
    pub state: Value,
    /// Whether it may have changed the cluster.
    pub touched: bool,
    /// The image, where it is not the accepted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The commit, where it is not the accepted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The digest that was observed running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When it was changed last.
    pub updated_at: String,
    /// What a newer version added.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Map<String, Value>,
}

/// One revision of an app's history: what was accepted. Creating the object is the accept; it never changes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "rollhook.dev",
    version = "v1",
    kind = "AppDeploy",
    root = "DeployObject",
    namespaced,
    shortname = "rhdeploy",
    category = "rollhook",
    status = "DeployStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One revision of an app's deploy history. Made and changed by rollhook; `rollhook app history` shows it best.",
    printcolumn = r##"{"name":"App", "type":"string", "jsonPath":".spec.app"}"##,
    printcolumn = r##"{"name":"#", "type":"integer", "jsonPath":".spec.revision"}"##,
    printcolumn = r##"{"name":"Image", "type":"string", "jsonPath":".spec.image"}"##,
    printcolumn = r##"{"name":"Commit", "type":"string", "jsonPath":".spec.commit"}"##,
    printcolumn = r##"{"name":"Trigger", "type":"string", "jsonPath":".spec.trigger"}"##,
    printcolumn = r##"{"name":"Status", "type":"string", "jsonPath":".status.status"}"##,
    printcolumn = r##"{"name":"When", "type":"date", "jsonPath":".spec.acceptedAt"}"##,
    printcolumn = r##"{"name":"Reason", "type":"string", "jsonPath":".status.state.reason", "priority":1}"##,
    printcolumn = r##"{"name":"By", "type":"string", "jsonPath":".spec.actor", "priority":1}"##
)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploySpec {
    /// The app's name.
    pub app: String,
    /// The app's namespace, by which a copy of the object in another is told from it.
    pub namespace: String,
    /// Which registration of that name.
    pub app_uid: String,
    /// The entry's number.
    pub revision: u64,
    /// The accept's own name: 32 hexadecimal digits.
    pub admission: String,
    /// What is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The commit, or for an image app a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What caused it.
    pub trigger: String,
    /// Who caused it.
    pub actor: String,
    /// Where its image was taken from, where it was not posted.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "object")]
    pub from: Value,
    /// The revision that it stands for.
    pub effective: u64,
    /// Whether it records what already ran when the app was registered.
    #[serde(skip_serializing_if = "is_false")]
    pub adopted: bool,
    /// When it was accepted.
    pub accepted_at: String,
    /// The idempotency key that it was accepted under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
    /// The app's guard that the accept was decided on.
    pub guard: u64,
    /// Whether every entry that was unfinished ends by this one.
    #[serde(skip_serializing_if = "is_false")]
    pub supersede: bool,
    /// What is held since.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "object")]
    pub hold: Value,
    /// What a newer version added.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Map<String, Value>,
}

/// What an idempotency key was used for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyUse {
    /// The header that carried it.
    pub header: String,
    /// Its text.
    pub key: String,
    /// The SHA-256 of the request, in hexadecimal digits.
    pub request: String,
    /// When it is free again.
    pub expires_at: String,
}

/// Where an entry stands. While it is unfinished, the app's own status is the truth and this is a copy for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployStatus {
    /// The state in a word.
    pub status: String,
    /// All of it; none for an entry that never changed.
    #[serde(flatten)]
    pub entry: EntryState,
}

impl AppObject {
    /// Whether it is the registration, and no copy of it: an environment that was cloned, objects and all, must not
    /// share an app with the one that it came from.
    pub fn is_original(&self) -> bool {
        let spec = &self.spec;
        let spelled = self.metadata.namespace.as_deref().and_then(|namespace| {
            namespace.strip_prefix(spec.project.as_str())?.strip_prefix('-').filter(|rest| *rest == spec.environment)
        });
        spelled.is_some() && self.metadata.name.as_deref() == Some(spec.name.as_str())
    }
}

impl DeployObject {
    /// Whether it is the entry, and no copy of it.
    pub fn is_original(&self) -> bool {
        let (metadata, spec) = (&self.metadata, &self.spec);
        metadata.namespace.as_deref() == Some(spec.namespace.as_str())
            && metadata.name.as_deref() == Some(deploy_name(&spec.app, spec.revision).as_str())
    }
}

/// The definitions of both resources, as the API server is told them.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    let mut app = AppObject::crd();
    for version in &mut app.spec.versions {
        // Policy, holds and head change in one write, which the subresource would make two.
        version.subresources = None;
    }
    let mut deploy = DeployObject::crd();
    for version in &mut deploy.spec.versions {
        let root = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let status = root.and_then(|root| root.properties.as_mut()).and_then(|fields| fields.get_mut("status"));
        if let Some(status) = status {
            // What has just been accepted has no status yet, and is shown as what it is.
            status.default = Some(JSON(serde_json::json!({"status": "queued"})));
        }
    }
    let form = [(FORM.to_owned(), THIS_FORM.to_string())];
    [app, deploy].map(|mut definition| {
        definition.metadata.annotations.get_or_insert_default().extend(form.clone());
        definition
    })
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Some object whose fields the API server need not know; replaced as a whole.
fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic"})
}

fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}
