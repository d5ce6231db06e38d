//! Drift of the Secret with an app's configuration: another party has deleted it, or has made one of its name anew.
//!
//! The Secret is immutable, so that its uid stands for its content. The workload has that uid in an annotation, written with
//! the stamp.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use rollhook_core::ports::Drift;
use serde_json::{Value, json};

use super::{
    configuration,
    object::{CONFIGURED_BY, MANAGER, Object},
};
use crate::{error::shortened, workload::Rollout};

/// The Secret that a workload needs for its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededSecret {
    /// Its name.
    pub(crate) name: String,
    /// The uid of the one that the deploy found or made; `None` for a deploy that noted none.
    uid: Option<String>,
    /// Kind and name of the workload.
    title: String,
}

/// The Secret that the workload needs since this rollout. Returns `None` if it needs none, or is at another deploy.
pub(crate) fn needed(object: &Object, rollout: &Rollout) -> Option<NeededSecret> {
    let id = rollout.configuration.filter(|_| object.own_stamp().id() == Some(rollout.id))?;
    let is_needed = configuration::is_referred_to(object, rollout);
    is_needed.then(|| NeededSecret {
        name: configuration::name(&rollout.app, id),
        uid: noted(object).map(str::to_owned),
        title: object.title(),
    })
}

/// The uid of the Secret that the workload was brought to.
pub(crate) fn noted(object: &Object) -> Option<&str> {
    object.metadata().annotations.as_ref()?.get(CONFIGURED_BY).map(String::as_str)
}

/// Adds to a patch of the workload the uid of the Secret that the patch names; without one, the removal of a former one.
pub(crate) fn note(patch: &mut Value, object: &Object, uid: Option<&str>) {
    if uid.is_some() || noted(object).is_some() {
        patch["metadata"]["annotations"][CONFIGURED_BY] = json!(uid);
    }
}

/// The patch that notes this uid and changes nothing else. Returns `None` if it is noted already.
pub(crate) fn note_alone(object: &Object, uid: Option<&str>) -> Option<Value> {
    let metadata = object.metadata();
    let mut patch = json!({"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}});
    (noted(object) != uid).then(|| {
        note(&mut patch, object, uid);
        patch
    })
}

/// The change of the Secret by another party, as its metadata show it now; `None` for metadata that there are not any more.
pub(crate) fn of(needed: &NeededSecret, found: Option<&ObjectMeta>) -> Option<Drift> {
    let NeededSecret { name, uid, title } = needed;
    let message = match found.filter(|found| found.deletion_timestamp.is_none()) {
        None => format!(
            "another deleted the Secret {name}, which has the app's configuration: no new pod of {title} starts until you \
             deploy again, which makes it anew"
        ),
        Some(found) if uid.is_some() && found.uid != *uid && !is_ours_alone(found) => {
            let by = maker(found).map_or_else(|| "another".to_owned(), |by| format!("the field manager {by:?}"));
            format!(
                "{by} made the Secret {name} anew, which has the app's configuration: new pods of {title} may start with other \
                 variables until you deploy again, which puts it right"
            )
        }
        Some(_) => return None,
    };
    Some(Drift { image: None, message })
}

/// Whether nobody but this service has written to an object: it made it anew for a command, as another party had deleted it.
fn is_ours_alone(metadata: &ObjectMeta) -> bool {
    let mut managers = metadata.managed_fields.iter().flatten().peekable();
    managers.peek().is_some() && managers.all(|entry| entry.manager.as_deref() == Some(MANAGER))
}

/// The manager that made an object: the first one that wrote to it, and another one than ours where several did at once.
fn maker(metadata: &ObjectMeta) -> Option<String> {
    let time = |entry: &&ManagedFieldsEntry| {
        (entry.time.as_ref().map(|time| time.0), entry.manager.as_deref() == Some(MANAGER))
    };
    let first = metadata.managed_fields.iter().flatten().min_by_key(time)?;
    first.manager.as_deref().map(shortened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, managers: &[(&str, u8)]) -> ObjectMeta {
        let entry = |(manager, minute): &(&str, u8)| json!({"manager": manager, "time": format!("2026-01-01T00:{minute:02}:00Z")});
        let managed: Vec<Value> = managers.iter().map(entry).collect();
        serde_json::from_value(json!({"name": "api-config-7", "uid": uid, "managedFields": managed})).unwrap()
    }

    fn secret(uid: Option<&str>) -> NeededSecret {
        NeededSecret {
            name: "api-config-7".to_owned(),
            uid: uid.map(str::to_owned),
            title: "Deployment api".to_owned(),
        }
    }

    #[test]
    fn secret_that_is_gone_or_made_anew_is_drift() {
        let found = metadata("u-2", &[("rollhook", 9), ("kubectl-create", 3)]);
        let message = |uid, found| of(&secret(uid), found).map(|drift| drift.message);
        assert!(message(Some("u-1"), None).unwrap().starts_with("another deleted the Secret api-config-7"));
        let anew = message(Some("u-1"), Some(&found)).unwrap();
        assert!(anew.starts_with("the field manager \"kubectl-create\" made the Secret api-config-7 anew"), "{anew}");
        assert_eq!(message(Some("u-2"), Some(&found)), None);
        assert_eq!(message(None, Some(&found)), None, "a deploy that noted none");
        let at_once = metadata("u-2", &[("rollhook", 3), ("kubectl-replace", 3)]);
        assert!(message(Some("u-1"), Some(&at_once)).unwrap().contains("kubectl-replace"));
        let nobody = metadata("u-2", &[]);
        assert!(message(Some("u-1"), Some(&nobody)).unwrap().starts_with("another made"));
    }
}
