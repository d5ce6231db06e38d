//! The one change to a workload: images of the named containers and the Secret of the app's configuration in their
//! environment, our annotations, and of a stop or a start the number of its pods.

use serde_json::{Value, json};

use super::{
    configuration,
    object::{CHANGE_CAUSE, NONE, Object, STAMP, Stamp, TEMPLATE_STAMP},
    retained::KeptTemplate,
    scale,
};
use crate::workload::{Rollout, WorkloadKind};

/// How much of a rollout's cause is kept: an annotation that grows without bound blocks every later write.
const CAUSE_MAX: usize = 256;

/// The strategic merge patch that writes the rollout to the workload; valid only for the object as it was read. The pod
/// template gets the rollout's stamp and image, or those of the template that is brought back.
pub(crate) fn patch(object: &Object, rollout: &Rollout, kept: Option<&KeptTemplate>) -> Value {
    let image = rollout.image.to_string();
    let image_of = |name: &String| kept.and_then(|kept| kept.images.get(name)).unwrap_or(&image);
    let is_init = |name: &String| object.init_containers().iter().any(|container| container.name == *name);
    let (init, containers): (Vec<&String>, Vec<&String>) =
        rollout.workload.containers.iter().partition(|name| is_init(name));
    let container = |name: &String| {
        let mut container = json!({"name": name, "image": image_of(name)});
        let present = object.container(name);
        if let Some(env_from) = present.and_then(|present| configuration::changed_env_from(present, rollout)) {
            // The list is replaced as a whole; a `null` removes it.
            container["envFrom"] = if env_from.is_empty() { Value::Null } else { json!(env_from) };
        }
        container
    };
    let set = |names: Vec<&String>| -> Value { names.into_iter().map(container).collect() };
    // A `null` removes the annotation.
    let (stamp, marker) = match kept.map(|kept| &kept.stamp) {
        None => (json!(rollout.id.to_string()), Value::Null),
        Some(Stamp::Deploy(id)) => (json!(id.to_string()), json!(id.to_string())),
        Some(Stamp::Absent | Stamp::Unreadable(_)) => (Value::Null, json!(NONE)),
    };
    let mut template = json!({"metadata": {"annotations": {STAMP: stamp}}, "spec": {"containers": set(containers)}});
    if !init.is_empty() {
        template["spec"]["initContainers"] = set(init);
    }
    let mut spec = match rollout.workload.kind {
        WorkloadKind::CronJob => json!({"jobTemplate": {"spec": {"template": template}}}),
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => json!({"template": template}),
    };
    let metadata = object.metadata();
    let mut annotations = json!({STAMP: rollout.id.to_string(), TEMPLATE_STAMP: marker, CHANGE_CAUSE: cause(rollout)});
    let scaled = scale::patch(object, rollout.scale, rollout.purpose.returns_to().is_some());
    scaled.annotations.into_iter().for_each(|(name, value)| annotations[name] = value);
    scaled.spec.into_iter().for_each(|(name, value)| spec[name] = value);
    json!({
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// The rollout's cause, cut to its limit.
pub(crate) fn cause(rollout: &Rollout) -> String {
    rollout.cause.chars().take(CAUSE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples;

    #[test]
    fn patch_names_images_and_annotations_alone() {
        let rollout = samples::rollout(7);
        assert_eq!(
            patch(&samples::deployment(json!({})), &rollout, None),
            json!({
                "metadata": {
                    "uid": "0b5ba2ad-1111-4ab1-9f2c-000000000001",
                    "resourceVersion": "1234",
                    "annotations": {
                        STAMP: rollout.id.to_string(),
                        TEMPLATE_STAMP: null,
                        CHANGE_CAUSE: "webhook: revision 7",
                    },
                },
                "spec": {"template": {
                    "metadata": {"annotations": {STAMP: rollout.id.to_string()}},
                    "spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v7"}]},
                }},
            })
        );
    }

    #[test]
    fn stop_is_in_the_same_patch() {
        let stop = Rollout { scale: rollhook_core::deploy::Scale::Stop, ..samples::rollout(7) };
        let stopped = patch(&samples::deployment(json!({})), &stop, None);
        assert_eq!(stopped["spec"]["replicas"], 0);
        assert_eq!(stopped["metadata"]["annotations"][scale::STOPPED_FROM], "3");
        assert_eq!(stopped["spec"]["template"]["metadata"]["annotations"][STAMP], stop.id.to_string());
        let stop = Rollout { workload: samples::rollout_of(WorkloadKind::CronJob, 7).workload, ..stop };
        assert_eq!(patch(&samples::cron_job(json!({})), &stop, None)["spec"]["suspend"], true);
    }

    #[test]
    fn cron_job_is_patched_in_its_job_template() {
        let rollout = samples::rollout_of(WorkloadKind::CronJob, 7);
        let patch = patch(&samples::cron_job(json!({})), &rollout, None);
        let template = &patch["spec"]["jobTemplate"]["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][STAMP], rollout.id.to_string());
        assert_eq!(template["spec"]["containers"][0]["image"], "registry.example.com/api:v7");
    }

    #[test]
    fn configuration_is_in_the_same_patch_and_absent_where_nothing_changes() {
        let id = rollhook_core::configuration::ConfigurationId(7 << 88);
        let configured = Rollout { configuration: Some(id), ..samples::rollout(7) };
        let theirs = json!({"secretRef": {"name": "database"}});
        let ours = json!({"secretRef": {"name": "api-config-0000000007000000"}});
        let of = |entries: Value, rollout: &Rollout| {
            let containers = json!([{"name": "app", "image": "api:v6", "envFrom": entries}]);
            let object = samples::deployment(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
            patch(&object, rollout, None)["spec"]["template"]["spec"]["containers"][0].get("envFrom").cloned()
        };
        assert_eq!(of(json!([theirs]), &configured), Some(json!([theirs, ours])));
        assert_eq!(of(json!([theirs, ours]), &configured), None, "it is as it was");
        assert_eq!(of(json!([theirs, ours]), &samples::rollout(7)), Some(json!([theirs])));
        assert_eq!(of(json!([ours]), &samples::rollout(7)), Some(Value::Null), "as if there never was one");
        assert_eq!(of(json!([theirs]), &samples::rollout(7)), None);
    }

    #[test]
    fn image_of_a_named_init_container_is_set_as_well() {
        let mut rollout = samples::rollout(7);
        rollout.workload.containers = vec!["app".to_owned(), "migrate".to_owned()];
        let migrate = json!([{"name": "migrate", "image": "registry.example.com/api:v6"}]);
        let object = samples::deployment(json!({"spec": {"template": {"spec": {"initContainers": migrate}}}}));
        let image = "registry.example.com/api:v7";
        assert_eq!(
            patch(&object, &rollout, None)["spec"]["template"]["spec"],
            json!({
                "containers": [{"name": "app", "image": image}],
                "initContainers": [{"name": "migrate", "image": image}],
            })
        );
    }

    #[test]
    fn template_that_is_brought_back_has_its_own_stamp_and_images() {
        let (rollout, before) = (samples::rollout(7), samples::rollout(4).id);
        let image = "registry.example.com/api:v4".to_owned();
        let written = |stamp| {
            let kept = KeptTemplate { stamp, images: [("app".to_owned(), image.clone())].into() };
            let patch = patch(&samples::deployment(json!({})), &rollout, Some(&kept));
            assert_eq!(patch["metadata"]["annotations"][STAMP], rollout.id.to_string(), "the fence");
            let template = &patch["spec"]["template"];
            assert_eq!(template["spec"]["containers"][0]["image"], image);
            let stamps =
                [&template["metadata"]["annotations"][STAMP], &patch["metadata"]["annotations"][TEMPLATE_STAMP]];
            stamps.map(Value::clone)
        };
        assert_eq!(written(Stamp::Deploy(before)), [json!(before.to_string()), json!(before.to_string())]);
        assert_eq!(written(Stamp::Absent), [Value::Null, json!(NONE)]);
    }

    #[test]
    fn long_cause_is_cut() {
        let mut rollout = samples::rollout(7);
        rollout.cause = "é".repeat(100_000);
        assert_eq!(cause(&rollout).chars().count(), CAUSE_MAX);
    }
}
