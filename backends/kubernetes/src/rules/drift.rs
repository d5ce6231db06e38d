//! Drift: another field manager has changed the image, the stamp or the configuration of a workload since it was rolled out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use rollhook_core::{image::ImageRef, ports::Drift};
use serde_json::Value;

use super::{
    configuration,
    object::{MANAGER, Object, STAMP, Stamp},
    retained,
};
use crate::{
    error::shortened,
    workload::{Rollout, WorkloadKind},
};

/// A sentence that names the change of another manager since the rollout was applied, and says what to do about it.
/// Returns `None` if there is none, or if a newer revision of the same app took its place.
pub(crate) fn of(object: &Object, rollout: &Rollout) -> Option<String> {
    let own_stamp = object.own_stamp();
    if is_newer(&own_stamp, rollout) {
        return None;
    }
    if rollout.adopted {
        return changed_image(object, rollout);
    }
    changed_stamp(object, &Stamp::Deploy(rollout.id), &own_stamp, &["f:metadata", "f:annotations"], "")
        .or_else(|| {
            let path = template_path(rollout.workload.kind, &["f:metadata", "f:annotations"]);
            changed_stamp(
                object,
                &object.pods_stamp(rollout.id),
                &object.template_stamp(),
                &path,
                " of its pod template",
            )
        })
        .or_else(|| changed_image(object, rollout))
        .or_else(|| changed_configuration(object, rollout))
}

/// The change of another manager since the rollout, and the image that its containers have instead.
pub(crate) fn told(object: &Object, rollout: &Rollout) -> Option<Drift> {
    let message = of(object, rollout)?;
    let ours = rollout.workload.containers.iter().filter_map(|name| object.container(name));
    let mut others = ours.filter_map(|container| container.image.as_deref()?.parse::<ImageRef>().ok());
    Some(Drift { image: others.find(|image| !image.same_bits(None, &rollout.image, None)), message })
}

/// The drift of a workload that does not exist any more.
pub(crate) fn of_missing(rollout: &Rollout) -> Drift {
    let (kind, name) = (rollout.workload.kind, &rollout.workload.name);
    Drift { image: None, message: format!("there is no {kind} {name} any more: another deleted it") }
}

/// Whether the stamp is of a newer revision of the rollout's app.
pub(crate) fn is_newer(stamp: &Stamp, rollout: &Rollout) -> bool {
    stamp.id().is_some_and(|id| id.app == rollout.id.app && id.revision > rollout.id.revision)
}

fn changed_stamp(object: &Object, ours: &Stamp, stamp: &Stamp, path: &[&str], of: &str) -> Option<String> {
    let change = match stamp {
        stamp if stamp == ours => return None,
        Stamp::Absent => format!("removed the annotation {STAMP}{of}"),
        Stamp::Deploy(other) => format!("set the annotation {STAMP}{of} to {other}"),
        Stamp::Unreadable(text) => format!("set the annotation {STAMP}{of} to {:?}", shortened(text)),
    };
    let key = format!("f:{STAMP}");
    let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
    let manager = manager_of(object, &path);
    // A deploy that never arrived leaves the one before it.
    let is_before =
        stamp.id().zip(ours.id()).is_some_and(|(id, ours)| id.app == ours.app && id.revision < ours.revision);
    if is_before && manager == Some(MANAGER) {
        return None;
    }
    Some(sentence(object, &change, manager))
}

fn changed_image(object: &Object, rollout: &Rollout) -> Option<String> {
    rollout.workload.containers.iter().find_map(|name| {
        let Some(container) = object.container(name) else {
            return Some(sentence(object, &format!("removed the container {name}"), None));
        };
        let image = container.image.as_deref().unwrap_or_default();
        let is_kept = object.is_kept(rollout.id) && retained::stands_for(image, &rollout.image);
        if is_kept || is_same(image, &rollout.image, rollout.adopted) {
            return None;
        }
        let key = format!("k:{{\"name\":\"{name}\"}}");
        let manager = manager_of(object, &image_path(object, name, &key));
        // An admission webhook that rewrites images does so within our own patch: the field stays ours.
        if manager == Some(MANAGER) && !rollout.adopted {
            return None;
        }
        // No rule of Kubernetes bounds the length of an image that another party sets.
        let image = shortened(image);
        let change =
            format!("set the image of the container {name} to {image}, where {} was rolled out", rollout.image);
        Some(sentence(object, &change, manager))
    })
}

/// Whether the workload has the rollout's image; an adopted one may be spelt differently.
fn is_same(image: &str, ordered: &ImageRef, adopted: bool) -> bool {
    image == ordered.to_string()
        || adopted
            && image.parse::<ImageRef>().is_ok_and(|image| {
                let (image, ordered) = (image.or_latest(), ordered.clone().or_latest());
                image.canonical_repository() == ordered.canonical_repository()
                    && image.tag() == ordered.tag()
                    && image.digest() == ordered.digest()
            })
}

/// The change of the reference to the configuration's Secret. A deploy that never arrived has set none.
fn changed_configuration(object: &Object, rollout: &Rollout) -> Option<String> {
    if object.own_stamp().id() != Some(rollout.id) {
        return None;
    }
    let wanted = rollout.configuration.map(|id| configuration::name(&rollout.app, id));
    rollout.workload.containers.iter().find_map(|name| {
        let found = configuration::reference(object.container(name)?, &rollout.app);
        if found == wanted.as_deref() {
            return None;
        }
        let key = format!("k:{{\"name\":\"{name}\"}}");
        let manager = manager_of(object, &container_path(object, name, &[&key, "f:envFrom"]));
        // As for the image: an admission webhook changes it within our own patch.
        if found.is_some() && manager == Some(MANAGER) {
            return None;
        }
        let change = match (found, &wanted) {
            (Some(found), _) => format!("set envFrom of the container {name} to the Secret {found}"),
            (None, wanted) => {
                let wanted = wanted.as_deref().unwrap_or_default();
                format!(
                    "removed the Secret {wanted}, with the app's configuration, from envFrom of the container {name}"
                )
            }
        };
        let manager = manager.filter(|manager| *manager != MANAGER).or_else(|| last_other_manager(object));
        let by = manager.map_or_else(|| "another".to_owned(), |manager| format!("the field manager {manager:?}"));
        Some(format!(
            "{by} {change} ({}): deploy again to set it anew, and let rollhook alone name that Secret",
            object.title()
        ))
    })
}

/// The manager that set a variable in the `env` of a container.
pub(crate) fn setter_of_variable<'a>(object: &'a Object, container: &str, variable: &str) -> Option<&'a str> {
    let (key, variable) = (format!("k:{{\"name\":\"{container}\"}}"), format!("k:{{\"name\":\"{variable}\"}}"));
    manager_of(object, &container_path(object, container, &[&key, "f:env", &variable]))
}

fn sentence(object: &Object, change: &str, manager: Option<&str>) -> String {
    let title = object.title();
    match manager.or_else(|| last_other_manager(object)) {
        None => format!("another {change} ({title}): find out who, and let only one of the two set the image"),
        Some(manager) => format!("the field manager {manager:?} {change} ({title}): {}", advice(manager)),
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

/// The path of the image of a container, whose key this is, within the fields that managers own.
pub(crate) fn image_path<'a>(object: &Object, name: &str, key: &'a str) -> Vec<&'a str> {
    container_path(object, name, &[key, "f:image"])
}

/// A path within the container of this name, which begins with the container's key.
pub(crate) fn container_path<'a>(object: &Object, name: &str, rest: &[&'a str]) -> Vec<&'a str> {
    let is_init = object.init_containers().iter().any(|container| container.name == name);
    let list = if is_init { "f:initContainers" } else { "f:containers" };
    let start = ["f:spec", list];
    template_path(object.kind(), &start.iter().chain(rest).copied().collect::<Vec<_>>())
}

/// A path within the pod template of a workload of this kind.
pub(crate) fn template_path<'a>(kind: WorkloadKind, rest: &[&'a str]) -> Vec<&'a str> {
    let start: &[&str] = match kind {
        WorkloadKind::CronJob => &["f:spec", "f:jobTemplate", "f:spec", "f:template"],
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => &["f:spec", "f:template"],
    };
    start.iter().chain(rest).copied().collect()
}

/// The manager that owns a field. Ours comes first: a field that others own too has our value.
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

/// The other manager that wrote last, if that was after us: removing a field leaves no ownership behind.
fn last_other_manager(object: &Object) -> Option<&str> {
    let patched = patched_at(object);
    managers(object)
        .filter(|entry| !is_ours(entry) && time(entry) >= patched)
        .max_by_key(|entry| time(entry))
        .and_then(|entry| entry.manager.as_deref())
}

/// The time of our last change of the workload.
pub(crate) fn patched_at(object: &Object) -> Option<jiff::Timestamp> {
    managers(object).filter(is_ours).map(time).max().flatten()
}

fn is_ours(entry: &&ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER)
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

    /// The drift of a Deployment with these managers whose stamp is gone.
    fn drift(entries: Value) -> String {
        let object = samples::deployment(json!({"metadata": {"managedFields": entries}}));
        of(&object, &samples::rollout(5)).unwrap()
    }

    #[test]
    fn manager_that_wrote_after_us_is_named() {
        let ours = entry("rollhook", 10, json!({}));
        let message = drift(json!([entry("kubectl-create", 1, json!({})), ours, entry("helm", 20, json!({}))]));
        assert!(message.starts_with("the field manager \"helm\" removed the annotation"), "{message}");
        assert!(message.contains("Helm release"), "{message}");
    }

    #[test]
    fn manager_that_wrote_before_us_is_not_named() {
        let status = json!({"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
                            "time": "2026-01-01T00:30:00Z", "fieldsV1": {}});
        let message = drift(json!([entry("kubectl-create", 1, json!({})), entry("rollhook", 10, json!({})), status]));
        assert!(message.starts_with("another removed the annotation"), "{message}");
    }

    #[test]
    fn newer_revision_of_the_app_is_no_drift() {
        let object = samples::stamped(samples::deployment(json!({})), &samples::rollout(6));
        assert_eq!(of(&object, &samples::rollout(5)), None);
    }

    #[test]
    fn adopted_image_may_be_spelt_differently() {
        let nginx: ImageRef = "docker.io/library/nginx:latest".parse().unwrap();
        assert!(is_same("nginx", &nginx, true) && is_same("nginx:latest", &nginx, true));
        assert!(!is_same("nginx:1.27", &nginx, true) && !is_same("nginx", &nginx, false));
    }
}
