//! Who else changed a workload: another field manager that owns the image or removed our stamp.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use rollhook_core::{image::ImageRef, ports::DeployId};
use serde_json::Value;

use super::object::{MANAGER, Mark, Object, STAMP};
use crate::workload::{Rollout, WorkloadKind};

/// A sentence on what another changed since the order was applied, and what to do about it; none where all is as it was
/// left, or where a newer revision of the same app took its place.
pub(crate) fn changed_by_another(object: &Object, order: &Rollout) -> Option<String> {
    let workload = object.own_mark();
    if is_newer(&workload, order) {
        return None;
    }
    if order.adopted {
        return changed_image(object, order);
    }
    changed_mark(object, order.stamp, &workload, &["f:metadata", "f:annotations"], "")
        .or_else(|| {
            let path = template_path(order.workload.kind, &["f:metadata", "f:annotations"]);
            changed_mark(object, order.stamp, &object.template_mark(), &path, " of its pod template")
        })
        .or_else(|| changed_image(object, order))
}

/// Whether a mark is of a newer revision of the order's app.
pub(crate) fn is_newer(mark: &Mark, order: &Rollout) -> bool {
    mark.stamp().is_some_and(|stamp| stamp.app == order.stamp.app && stamp.revision > order.stamp.revision)
}

fn changed_mark(object: &Object, ours: DeployId, found: &Mark, path: &[&str], of: &str) -> Option<String> {
    let what = match found {
        Mark::Stamp(stamp) if *stamp == ours => return None,
        Mark::Absent => format!("removed the annotation {STAMP}{of}"),
        Mark::Stamp(other) => format!("set the annotation {STAMP}{of} to {other}"),
        Mark::Unreadable(text) => format!("set the annotation {STAMP}{of} to {text:?}"),
    };
    let key = format!("f:{STAMP}");
    let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
    Some(sentence(object, &what, manager_of(object, &path)))
}

fn changed_image(object: &Object, order: &Rollout) -> Option<String> {
    order.workload.containers.iter().find_map(|name| {
        let Some(container) = object.containers().iter().find(|container| container.name == *name) else {
            return Some(sentence(object, &format!("removed the container {name}"), None));
        };
        let image = container.image.as_deref().unwrap_or_default();
        if same(image, &order.image, order.adopted) {
            return None;
        }
        let key = format!("k:{{\"name\":\"{name}\"}}");
        let manager =
            manager_of(object, &template_path(order.workload.kind, &["f:spec", "f:containers", &key, "f:image"]));
        // An admission webhook that rewrites images does so within our own patch, and the field stays ours.
        if manager == Some(MANAGER) && !order.adopted {
            return None;
        }
        let what = format!("set the image of the container {name} to {image}, where {} was rolled out", order.image);
        Some(sentence(object, &what, manager))
    })
}

/// Whether the cluster has the order's image; where nothing was patched, the two may be spelt differently.
fn same(image: &str, ordered: &ImageRef, adopted: bool) -> bool {
    image == ordered.to_string()
        || adopted
            && image.parse::<ImageRef>().is_ok_and(|image| {
                let (image, ordered) = (image.or_latest(), ordered.clone().or_latest());
                image.canonical_repository() == ordered.canonical_repository()
                    && image.tag() == ordered.tag()
                    && image.digest() == ordered.digest()
            })
}

fn sentence(object: &Object, what: &str, manager: Option<&str>) -> String {
    let title = object.title();
    match manager.or_else(|| last_other_manager(object)) {
        None => format!("another {what} ({title}): find out who, and let only one of the two set the image"),
        Some(manager) => format!("the field manager {manager:?} {what} ({title}): {}", advice(manager)),
    }
}

fn advice(manager: &str) -> &'static str {
    let name = manager.to_ascii_lowercase();
    if name.contains("argocd") {
        "let Argo CD leave the images and rollhook's annotations alone (ignoreDifferences with \
         managedFieldsManagers: [rollhook] and the sync option RespectIgnoreDifferences=true), or deploy through it alone"
    } else if name.contains("kustomize-controller") || name.contains("helm-controller") || name.contains("flux") {
        "leave the image out of what Flux applies, or annotate the workload with \
         kustomize.toolkit.fluxcd.io/ssa: IfNotPresent, or deploy through Flux alone"
    } else if name.contains("helm") {
        "give the Helm release the image that runs before it is upgraded, or deploy through Helm alone"
    } else {
        "deploy again if that was a mistake, and let only one of the two set the image"
    }
}

fn template_path<'a>(kind: WorkloadKind, rest: &[&'a str]) -> Vec<&'a str> {
    let start: &[&str] = match kind {
        WorkloadKind::CronJob => &["f:spec", "f:jobTemplate", "f:spec", "f:template"],
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => &["f:spec", "f:template"],
    };
    start.iter().chain(rest).copied().collect()
}

/// The manager that owns a field; ours first, as owning it together means that it has our value.
fn manager_of<'a>(object: &'a Object, path: &[&str]) -> Option<&'a str> {
    let mut owners: Vec<&ManagedFieldsEntry> = managers(object)
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            path.iter().fold(fields, |at: Option<&Value>, step| at?.get(step)).is_some()
        })
        .collect();
    owners.sort_by_key(|entry| (entry.manager.as_deref() != Some(MANAGER), std::cmp::Reverse(time(entry))));
    owners.first().and_then(|entry| entry.manager.as_deref())
}

/// The manager other than us that wrote last, where that was after us: one who removes a field owns nothing by it.
fn last_other_manager(object: &Object) -> Option<&str> {
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(MANAGER);
    let patched = managers(object).filter(is_ours).map(time).max().flatten();
    managers(object)
        .filter(|entry| !is_ours(entry) && time(entry) >= patched)
        .max_by_key(|entry| time(entry))
        .and_then(|entry| entry.manager.as_deref())
}

fn managers(object: &Object) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let entries = object.metadata().managed_fields.iter().flatten();
    entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
}

fn time(entry: &ManagedFieldsEntry) -> Option<jiff::Timestamp> {
    entry.time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::samples;

    fn entry(manager: &str, minute: u8, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:{minute:02}:00Z"),
               "fieldsV1": fields})
    }

    /// What is said of a Deployment whose stamp is gone, by its managers.
    fn said(entries: Value) -> String {
        let object = samples::deployment(json!({"metadata": {"managedFields": entries}}));
        changed_by_another(&object, &samples::order(5)).unwrap()
    }

    #[test]
    fn who_wrote_after_us_is_named() {
        let ours = entry("rollhook", 10, json!({}));
        let message = said(json!([entry("kubectl-create", 1, json!({})), ours, entry("helm", 20, json!({}))]));
        assert!(message.starts_with("the field manager \"helm\" removed the annotation"), "{message}");
        assert!(message.contains("Helm release"), "{message}");
    }

    #[test]
    fn who_wrote_before_us_is_not_accused() {
        let status = json!({"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
                            "time": "2026-01-01T00:30:00Z", "fieldsV1": {}});
        let message = said(json!([entry("kubectl-create", 1, json!({})), entry("rollhook", 10, json!({})), status]));
        assert!(message.starts_with("another removed the annotation"), "{message}");
    }

    #[test]
    fn a_newer_revision_is_nobodys_intrusion() {
        let object = samples::stamped(samples::deployment(json!({})), &samples::order(6));
        assert_eq!(changed_by_another(&object, &samples::order(5)), None);
    }

    #[test]
    fn spellings_of_an_adopted_image() {
        let nginx: ImageRef = "docker.io/library/nginx:latest".parse().unwrap();
        assert!(same("nginx", &nginx, true) && same("nginx:latest", &nginx, true));
        assert!(!same("nginx:1.27", &nginx, true) && !same("nginx", &nginx, false));
    }
}
