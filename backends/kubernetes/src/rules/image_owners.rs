//! Other field managers that set the image of an app's containers, and what becomes of a deploy by them: said when the
//! app is registered, before anything is deployed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::{
    drift::image_path,
    object::{MANAGER, Object},
};

/// Where to read on.
const CHAPTER: &str = "See the chapter \"With Helm and GitOps\" of the documentation.";

/// Returns a sentence for each manager that will set the image again.
pub(crate) fn notes(object: &Object, containers: &[String]) -> Vec<String> {
    let mut owners: BTreeMap<&str, (&ManagedFieldsEntry, Vec<&str>)> = BTreeMap::new();
    for name in containers {
        let key = format!("k:{{\"name\":\"{name}\"}}");
        let path = image_path(object, name, &key);
        for entry in object.metadata().managed_fields.iter().flatten().filter(|entry| owns(entry, &path)) {
            if let Some(manager) = entry.manager.as_deref().filter(|manager| comes_again(manager, entry)) {
                owners.entry(manager).or_insert((entry, Vec::new())).1.push(name);
            }
        }
    }
    owners.into_iter().map(|(manager, (entry, names))| sentence(object, manager, entry, &names.join(", "))).collect()
}

fn owns(entry: &ManagedFieldsEntry, path: &[&str]) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    path.iter().fold(fields, |at: Option<&Value>, step| at?.get(step)).is_some()
}

/// The tools that update a workload as a whole, again and again; any other update may have been a person's or a script's.
const TOOLS: [&str; 7] =
    ["helm", "argocd", "kustomize-controller", "kubectl-client-side-apply", "terraform", "pulumi", "fleet"];

/// Whether the manager will apply its workload again: by server-side apply, or as a tool that is known for it.
fn comes_again(manager: &str, entry: &ManagedFieldsEntry) -> bool {
    let name = manager.to_ascii_lowercase();
    let applies = entry.operation.as_deref() == Some("Apply") || TOOLS.iter().any(|tool| name.contains(tool));
    manager != MANAGER && applies
}

fn sentence(object: &Object, manager: &str, entry: &ManagedFieldsEntry, containers: &str) -> String {
    let name = manager.to_ascii_lowercase();
    let becomes = if name.contains("argocd")
        || name.contains("kustomize-controller")
        || name.contains("helm-controller")
    {
        "takes it back to its own with its next sync, unless it is told to leave the image alone"
    } else if entry.operation.as_deref() == Some("Apply") {
        "conflicts over it when it is applied next, after rollhook's first deploy, unless it is given the image that runs"
    } else {
        "takes it back to its own, without a word, when it is applied next, unless it is given the image that runs"
    };
    format!(
        "The field manager {manager:?} sets the image of {} ({containers}) too: it {becomes} (rollhook app image). {CHAPTER}",
        object.title()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples;

    fn managed(manager: &str, operation: &str, list: &str, container: &str) -> Value {
        let image = json!({format!("k:{{\"name\":\"{container}\"}}"): {".": {}, "f:image": {}}});
        json!({
            "manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": {list: image}}}},
        })
    }

    fn notes_of(entries: &[Value]) -> Vec<String> {
        let migrate = json!([{"name": "migrate", "image": "registry.example.com/api:v1"}]);
        let object = samples::deployment(json!({
            "metadata": {"managedFields": entries}, "spec": {"template": {"spec": {"initContainers": migrate}}},
        }));
        notes(&object, &["app".to_owned(), "migrate".to_owned()])
    }

    #[test]
    fn other_manager_of_the_image_is_named_with_what_it_does() {
        let conflict = notes_of(&[managed("helm", "Apply", "f:containers", "app")]);
        assert!(conflict[0].contains("\"helm\"") && conflict[0].contains("conflicts over it"), "{conflict:?}");
        let silent = notes_of(&[managed("helm", "Update", "f:containers", "app")]);
        assert!(silent[0].contains("without a word"), "{silent:?}");
        for controller in ["argocd-controller", "kustomize-controller", "helm-controller"] {
            let told = notes_of(&[managed(controller, "Apply", "f:containers", "app")]);
            assert!(told[0].contains(controller) && told[0].contains("next sync"), "{told:?}");
        }
        let init = notes_of(&[managed("helm", "Apply", "f:initContainers", "migrate")]);
        assert!(init[0].contains("(migrate)"), "{init:?}");
    }

    #[test]
    fn nothing_is_said_of_other_fields_of_rollhook_itself_and_of_changes_by_hand() {
        let entries = [
            managed("helm", "Apply", "f:containers", "sidecar"),
            managed("rollhook", "Update", "f:containers", "app"),
            managed("kubectl-set", "Update", "f:containers", "app"),
            managed("kubectl-create", "Update", "f:containers", "app"),
            managed("some-script", "Update", "f:containers", "app"),
        ];
        assert_eq!(notes_of(&entries), Vec::<String>::new());
        assert_eq!(notes_of(&[managed("kubectl-client-side-apply", "Update", "f:containers", "app")]).len(), 1);
    }
}
