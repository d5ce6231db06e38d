//! Objects that were read whole, reduced to the parts that rules read before anything else is waited for: whoever writes in
//! a namespace of apps makes them as large as the API server takes them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::{CronJob, CronJobSpec, Job, JobSpec, JobStatus, JobTemplateSpec},
        core::v1::{Container, EnvFromSource, PodSpec, PodTemplateSpec, ResourceRequirements},
    },
    apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta},
};
use serde_json::json;

use super::{
    configuration::{self, REMARK},
    drift,
    object::{CONFIGURED_BY, Object, REFERENCES, STAMP, TEMPLATE_STAMP},
    scale::STOPPED_FROM,
};
use crate::workload::Rollout;

/// The most conditions of a Job that are kept.
const CONDITIONS: usize = 32;

/// A Job with these annotations alone, its first container's name, image and memory limit, and the counts of its status.
pub(crate) fn job(job: Job, annotations: &[&str]) -> Job {
    let spec = job.spec.map(|spec| JobSpec {
        suspend: spec.suspend,
        active_deadline_seconds: spec.active_deadline_seconds,
        template: PodTemplateSpec {
            metadata: None,
            spec: spec.template.spec.map(|pod| PodSpec {
                containers: pod.containers.into_iter().take(1).map(container).collect(),
                ..PodSpec::default()
            }),
        },
        ..JobSpec::default()
    });
    let status = job.status.map(|status| JobStatus {
        active: status.active,
        succeeded: status.succeeded,
        terminating: status.terminating,
        start_time: status.start_time,
        conditions: status.conditions.map(|all| all.into_iter().take(CONDITIONS).collect()),
        ..JobStatus::default()
    });
    Job { metadata: metadata(job.metadata, annotations), spec, status }
}

/// A workload as observations read it: without the parts of its pod template that no rule reads.
pub(crate) fn workload(object: Object, rollout: &Rollout) -> Object {
    let paths = owned_paths(&object, &rollout.workload.containers);
    let own = |mut all: ObjectMeta| {
        let entries = all.managed_fields.take().into_iter().flatten().map(|entry| owned(entry, &paths)).collect();
        ObjectMeta {
            managed_fields: Some(entries),
            ..metadata(all, &[STAMP, TEMPLATE_STAMP, STOPPED_FROM, CONFIGURED_BY, REFERENCES, REMARK])
        }
    };
    match object {
        Object::Deployment(found) => {
            let Deployment { metadata, spec, status } = *found;
            let spec = spec.map(|mut spec| {
                spec.template = template(spec.template, rollout);
                spec
            });
            Object::Deployment(Box::new(Deployment { metadata: own(metadata), spec, status }))
        }
        Object::StatefulSet(found) => {
            let StatefulSet { metadata, spec, status } = *found;
            let spec = spec.map(|mut spec| {
                spec.template = template(spec.template, rollout);
                spec.volume_claim_templates = None;
                spec
            });
            Object::StatefulSet(Box::new(StatefulSet { metadata: own(metadata), spec, status }))
        }
        Object::DaemonSet(found) => {
            let DaemonSet { metadata, spec, status } = *found;
            let spec = spec.map(|mut spec| {
                spec.template = template(spec.template, rollout);
                spec
            });
            Object::DaemonSet(Box::new(DaemonSet { metadata: own(metadata), spec, status }))
        }
        Object::CronJob(found) => {
            let CronJob { metadata, spec, status } = *found;
            let spec = spec.map(|spec| {
                let job = spec
                    .job_template
                    .spec
                    .map(|job| JobSpec { template: template(job.template, rollout), ..JobSpec::default() });
                let job_template = JobTemplateSpec { metadata: None, spec: job };
                CronJobSpec { job_template, ..spec }
            });
            Object::CronJob(Box::new(CronJob { metadata: own(metadata), spec, status }))
        }
    }
}

/// The longest annotation that is kept, in bytes: longer than any that this driver writes. Others may write longer ones, up to
/// 256 KiB, for each of many workloads.
const ANNOTATION_MAX: usize = 32 * 1024;

/// The identity of an object, with these annotations alone.
fn metadata(all: ObjectMeta, annotations: &[&str]) -> ObjectMeta {
    ObjectMeta {
        name: all.name,
        uid: all.uid,
        resource_version: all.resource_version,
        generation: all.generation,
        creation_timestamp: all.creation_timestamp,
        deletion_timestamp: all.deletion_timestamp,
        annotations: all.annotations.map(|all| among(all, annotations)),
        ..ObjectMeta::default()
    }
}

fn among(mut all: BTreeMap<String, String>, names: &[&str]) -> BTreeMap<String, String> {
    all.retain(|name, text| names.contains(&name.as_str()) && text.len() <= ANNOTATION_MAX);
    all
}

fn template(all: PodTemplateSpec, rollout: &Rollout) -> PodTemplateSpec {
    let named = |all: Vec<Container>| -> Vec<Container> {
        let named = all.into_iter().filter(|found| rollout.workload.containers.contains(&found.name));
        named.map(|found| Container { env_from: own_entries(&found, rollout), ..container(found) }).collect()
    };
    let metadata = all.metadata.map(|metadata| ObjectMeta {
        annotations: metadata.annotations.map(|all| among(all, &[STAMP])),
        ..ObjectMeta::default()
    });
    let spec = all.spec.map(|spec| PodSpec {
        init_containers: spec.init_containers.map(named),
        containers: named(spec.containers),
        ..PodSpec::default()
    });
    PodTemplateSpec { metadata, spec }
}

/// The entry that names the Secret of the app's configuration.
fn own_entries(container: &Container, rollout: &Rollout) -> Option<Vec<EnvFromSource>> {
    let ours = container.env_from.iter().flatten().rfind(|entry| configuration::is_ours(entry, &rollout.app))?;
    Some(vec![ours.clone()])
}

/// A container's name, image and memory limit.
fn container(Container { name, image, resources, .. }: Container) -> Container {
    let memory = resources.and_then(|resources| resources.limits?.remove_entry("memory"));
    let resources = memory.map(|memory| ResourceRequirements {
        limits: Some(BTreeMap::from([memory])),
        ..ResourceRequirements::default()
    });
    Container { name, image, resources, ..Container::default() }
}

/// The fields whose owners rules read: our stamps, and of these containers the images and the sources of their environment.
fn owned_paths(object: &Object, containers: &[String]) -> Vec<Vec<String>> {
    let stamp = format!("f:{STAMP}");
    let own = |path: &[&str]| path.iter().map(|step| (*step).to_owned()).collect();
    let annotation = ["f:metadata", "f:annotations", &stamp];
    let stamps = [own(&annotation), own(&drift::template_path(object.kind(), &annotation))];
    let of_containers = containers.iter().flat_map(|name| {
        let key = format!("k:{{\"name\":\"{name}\"}}");
        ["f:image", "f:envFrom"].map(|field| own(&drift::container_path(object, name, &[&key, field])))
    });
    stamps.into_iter().chain(of_containers).collect()
}

/// A manager's entry with those of its fields that lie on one of these paths.
fn owned(mut entry: ManagedFieldsEntry, paths: &[Vec<String>]) -> ManagedFieldsEntry {
    entry.fields_v1 = entry.fields_v1.map(|fields| {
        let has = |path: &&Vec<String>| path.iter().try_fold(&fields.0, |at, step| at.get(step)).is_some();
        let mut kept = json!({});
        for path in paths.iter().filter(has) {
            path.iter().fold(&mut kept, |at, step| &mut at[step]);
        }
        FieldsV1(kept)
    });
    entry
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::rules::{
        observation,
        pod_list::PodList,
        samples::{self, merged, stamped},
    };

    /// What others write into a pod template, and the fields that managers own of it.
    fn bulk() -> Value {
        let container = json!({
            "name": "app", "image": "registry.example.com/api:v5", "env": [{"name": "BULK", "value": "bulk"}],
            "envFrom": [{"secretRef": {"name": "bulk"}}, {"secretRef": {"name": "api-config-0123456789abcdef"}}],
            "resources": {"limits": {"memory": "64Mi", "bulk": "1"}},
        });
        json!({
            "metadata": {"annotations": {"bulk": "bulk"}, "labels": {"app": "bulk"}},
            "spec": {
                "volumes": [{"name": "bulk", "emptyDir": {}}], "nodeSelector": {"bulk": "bulk"},
                "containers": [container, {"name": "bulk", "image": "bulk:1"}], "restartPolicy": "Never",
            },
        })
    }

    fn reduced_and_whole(object: Object) -> [Object; 2] {
        [workload(object.clone(), &samples::rollout(5)), object]
    }

    #[test]
    fn workload_is_observed_alike_without_the_parts_that_no_rule_reads() {
        let rollout = samples::rollout(5);
        let fields = json!({"f:spec": {"f:bulk": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"app\"}": {"f:image": {}, "f:bulk": {}}}}}}});
        let managers = json!([{"manager": "helm", "operation": "Update", "time": "2026-01-01T00:20:00Z",
                               "fieldsType": "FieldsV1", "fieldsV1": fields}]);
        let base = stamped(samples::deployment(json!({})), &rollout);
        let Object::Deployment(base) = base else { panic!("no Deployment") };
        let base = serde_json::to_value(base).unwrap();
        let bulky = json!({"metadata": {"annotations": {"bulk": "bulk"}, "managedFields": managers},
                           "spec": {"template": merged(bulk(), base["spec"]["template"].clone())}});
        let mut changed = bulky.clone();
        changed["spec"]["template"]["spec"]["containers"] = json!([{"name": "app", "image": "another:1"}]);
        for patch in [bulky, changed] {
            let object = samples::deployment(merged(base.clone(), patch));
            let [reduced, whole] = reduced_and_whole(object);
            assert!(!format!("{reduced:?}").contains("bulk"), "{reduced:?}");
            let seen =
                |object: &Object| observation::of(&rollout, object, &PodList::default(), jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(seen(&reduced), seen(&whole));
            assert_eq!(drift::told(&reduced, &rollout), drift::told(&whole, &rollout));
        }
    }

    #[test]
    fn workload_of_each_kind_keeps_what_finds_its_pods() {
        let patch = json!({"spec": {"template": bulk()}});
        let of_job = json!({"spec": {"jobTemplate": {"spec": {"template": bulk()}}}});
        let objects = [
            samples::deployment(patch.clone()),
            samples::stateful_set(patch.clone()),
            samples::daemon_set(patch),
            samples::cron_job(of_job),
        ];
        for object in objects {
            let kind = object.kind();
            let [reduced, whole] = reduced_and_whole(object);
            assert_eq!(reduced.kind(), kind);
            assert_eq!(reduced.selector(), whole.selector());
            assert_eq!(reduced.unsupported(), whole.unsupported());
            assert_eq!(reduced.containers().len(), 1, "{kind}");
            assert!(!format!("{:?}", reduced.template()).contains("bulk"), "{kind}");
        }
    }

    #[test]
    fn job_keeps_the_named_annotations_and_what_its_end_is_told_by() {
        let template = bulk();
        let whole = json!({
            "metadata": {"name": "release", "uid": "7", "resourceVersion": "12", "labels": {"a": "bulk"},
                         "annotations": {"own": "true", "bulk": "bulk"}},
            "spec": {"suspend": false, "activeDeadlineSeconds": 18000, "template": template},
            "status": {"active": 1, "succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "completedIndexes": "bulk"},
        });
        let reduced = job(serde_json::from_value(whole).unwrap(), &["own"]);
        assert_eq!(
            serde_json::to_value(reduced).unwrap(),
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "release", "uid": "7", "resourceVersion": "12", "annotations": {"own": "true"}},
                "spec": {"suspend": false, "activeDeadlineSeconds": 18000, "template": {"spec": {"containers": [{
                    "name": "app", "image": "registry.example.com/api:v5",
                    "resources": {"limits": {"memory": "64Mi"}},
                }]}}},
                "status": {"active": 1, "succeeded": 1, "startTime": "2026-01-01T00:00:00Z"},
            })
        );
    }
}
