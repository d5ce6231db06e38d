//! The one change to a workload: images of the named containers, and our annotations.

use serde_json::{Value, json};

use super::object::{CHANGE_CAUSE, Object, STAMP};
use crate::workload::{Rollout, WorkloadKind};

/// How much of a rollout's cause is kept: an annotation that grows without bound blocks every later write.
const CAUSE_MAX: usize = 256;

/// The strategic merge patch that writes the rollout to the workload; valid only for the object as it was read.
pub(crate) fn patch(object: &Object, rollout: &Rollout) -> Value {
    let is_init = |name: &String| object.init_containers().iter().any(|container| container.name == *name);
    let (init, containers): (Vec<&String>, Vec<&String>) =
        rollout.workload.containers.iter().partition(|name| is_init(name));
    let images = |names: Vec<&String>| -> Value {
        names.into_iter().map(|name| json!({"name": name, "image": rollout.image.to_string()})).collect()
    };
    let mut template = json!({
        "metadata": {"annotations": {STAMP: rollout.id.to_string()}},
        "spec": {"containers": images(containers)},
    });
    if !init.is_empty() {
        template["spec"]["initContainers"] = images(init);
    }
    let spec = match rollout.workload.kind {
        WorkloadKind::CronJob => json!({"jobTemplate": {"spec": {"template": template}}}),
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => json!({"template": template}),
    };
    let metadata = object.metadata();
    json!({
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": {STAMP: rollout.id.to_string(), CHANGE_CAUSE: cause(rollout)},
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
            patch(&samples::deployment(json!({})), &rollout),
            json!({
                "metadata": {
                    "uid": "0b5ba2ad-1111-4ab1-9f2c-000000000001",
                    "resourceVersion": "1234",
                    "annotations": {STAMP: rollout.id.to_string(), CHANGE_CAUSE: "webhook: revision 7"},
                },
                "spec": {"template": {
                    "metadata": {"annotations": {STAMP: rollout.id.to_string()}},
                    "spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v7"}]},
                }},
            })
        );
    }

    #[test]
    fn cron_job_is_patched_in_its_job_template() {
        let rollout = samples::rollout_of(WorkloadKind::CronJob, 7);
        let patch = patch(&samples::cron_job(json!({})), &rollout);
        let template = &patch["spec"]["jobTemplate"]["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][STAMP], rollout.id.to_string());
        assert_eq!(template["spec"]["containers"][0]["image"], "registry.example.com/api:v7");
    }

    #[test]
    fn image_of_a_named_init_container_is_set_as_well() {
        let mut rollout = samples::rollout(7);
        rollout.workload.containers = vec!["app".to_owned(), "migrate".to_owned()];
        let migrate = json!([{"name": "migrate", "image": "registry.example.com/api:v6"}]);
        let object = samples::deployment(json!({"spec": {"template": {"spec": {"initContainers": migrate}}}}));
        let image = "registry.example.com/api:v7";
        assert_eq!(
            patch(&object, &rollout)["spec"]["template"]["spec"],
            json!({
                "containers": [{"name": "app", "image": image}],
                "initContainers": [{"name": "migrate", "image": image}],
            })
        );
    }

    #[test]
    fn long_cause_is_cut() {
        let mut rollout = samples::rollout(7);
        rollout.cause = "é".repeat(100_000);
        assert_eq!(cause(&rollout).chars().count(), CAUSE_MAX);
    }
}
