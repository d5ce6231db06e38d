//! An `AppDeploy`: the deploy as JSON, and what people and the cache need beside it.

use kube::api::ObjectMeta;
use rollhook_core::{Result, deploy::Deploy};
use serde_json::Value;

use super::unreadable;
use crate::store::{
    app_record::{AppRecord, object, present, value},
    clock::calendar,
    crd::{APP_LABEL, DeployObject, DeploySpec, KEY_ANNOTATION, STATUS_LABEL, UID_LABEL, deploy_name, owned_by},
};

/// The object of a deploy, to be created, or to replace the one of this metadata.
pub(crate) fn of(record: &AppRecord, deploy: &Deploy, mut metadata: ObjectMeta) -> Result<DeployObject> {
    let app = record.id().name.as_str();
    let mut spec = present(object(deploy)?);
    let described = [
        ("app", app.to_owned()),
        ("by", deploy.actor.to_string()),
        ("accepted", calendar(deploy.created_at).to_string()),
    ];
    spec.extend(described.map(|(field, text)| (field.to_owned(), Value::String(text))));

    (metadata.name, metadata.namespace) =
        (Some(deploy_name(app, deploy.revision.get())), Some(record.namespace().to_owned()));
    let uid = record.state.app.uid.to_string();
    let labels = [(UID_LABEL, uid.as_str()), (APP_LABEL, app), (STATUS_LABEL, deploy.status().as_str())];
    metadata.labels.get_or_insert_default().extend(labels.map(|(name, value)| (name.to_owned(), value.to_owned())));
    if let Some(key) = record.kept.keys.get(&deploy.revision) {
        let key = Value::Object(object(key)?).to_string();
        metadata.annotations.get_or_insert_default().insert(KEY_ANNOTATION.to_owned(), key);
    }
    metadata.owner_references = Some(owned_by(app, record.metadata.uid.as_deref().unwrap_or_default()));
    Ok(DeployObject { metadata, spec: DeploySpec(spec) })
}

/// Whether the object belongs to this registration.
pub(crate) fn is_of(record: &AppRecord, metadata: &ObjectMeta) -> bool {
    let uid = metadata.labels.as_ref().and_then(|labels| labels.get(UID_LABEL));
    uid.is_some_and(|uid| *uid == record.state.app.uid.to_string())
}

/// The archived deploy of an object.
pub(crate) fn read(record: &AppRecord, object: DeployObject) -> Result<Deploy> {
    let name = object.metadata.name.as_deref();
    let deploy: Deploy =
        value(Value::Object(object.spec.0), || unreadable(record, name, "a field is damaged").to_string())?;
    let is_named = name == Some(deploy_name(record.id().name.as_str(), deploy.revision.get()).as_str());
    match (is_named, deploy.is_terminal()) {
        (true, true) => Ok(deploy),
        (false, _) => Err(unreadable(record, name, "it is a copy of another revision")),
        (true, false) => Err(unreadable(record, name, "its end is missing")),
    }
}
