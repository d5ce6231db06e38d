//! The one change that is made to a workload: images of the named containers, and our annotations.

use serde_json::{Value, json};

use super::object::{CHANGE_CAUSE, Object, STAMP};
use crate::workload::{Rollout, WorkloadKind};

/// How much of an order's cause is kept: an annotation that grows without bound blocks every later write.
const CAUSE_MAX: usize = 256;

/// The strategic merge patch that brings the workload to the order, valid only for the object as it was read.
pub(crate) fn patch(object: &Object, order: &Rollout) -> Value {
    let containers: Vec<Value> =
        order.workload.containers.iter().map(|name| json!({"name": name, "image": order.image.to_string()})).collect();
    let template = json!({
        "metadata": {"annotations": {STAMP: order.stamp.to_string()}},
        "spec": {"containers": containers},
    });
    let spec = match order.workload.kind {
        WorkloadKind::CronJob => json!({"jobTemplate": {"spec": {"template": template}}}),
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => json!({"template": template}),
    };
    let metadata = object.metadata();
    json!({
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": {STAMP: order.stamp.to_string(), CHANGE_CAUSE: cause(order)},
        },
        "spec": spec,
    })
}

/// The order's cause, as it is written.
pub(crate) fn cause(order: &Rollout) -> String {
    order.cause.chars().take(CAUSE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples;

    #[test]
    fn nothing_but_images_and_annotations_is_named() {
        let order = samples::order(7);
        assert_eq!(
            patch(&samples::deployment(json!({})), &order),
            json!({
                "metadata": {
                    "uid": "0b5ba2ad-1111-4ab1-9f2c-000000000001",
                    "resourceVersion": "1234",
                    "annotations": {STAMP: order.stamp.to_string(), CHANGE_CAUSE: "webhook: revision 7"},
                },
                "spec": {"template": {
                    "metadata": {"annotations": {STAMP: order.stamp.to_string()}},
                    "spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v7"}]},
                }},
            })
        );
    }

    #[test]
    fn a_cron_jobs_template_lies_deeper() {
        let order = samples::order_for(WorkloadKind::CronJob, 7);
        let patch = patch(&samples::cron_job(json!({})), &order);
        let template = &patch["spec"]["jobTemplate"]["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][STAMP], order.stamp.to_string());
        assert_eq!(template["spec"]["containers"][0]["image"], "registry.example.com/api:v7");
    }

    #[test]
    fn a_long_cause_is_cut() {
        let mut order = samples::order(7);
        order.cause = "é".repeat(100_000);
        assert_eq!(cause(&order).chars().count(), CAUSE_MAX);
    }
}
