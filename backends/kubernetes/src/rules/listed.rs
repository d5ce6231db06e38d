//! Listed objects, as far as rules use them. All else that others write, such as their annotations, the fields' managers
//! and most of a specification, is skipped while a page is read.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobStatus},
        core::v1::{Container, ContainerStatus, Event, EventSeries, Pod, PodCondition, PodSpec, PodStatus},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{object::STAMP, retained::NUMBER};

/// The annotations that rules read.
const ANNOTATIONS: [&str; 2] = [STAMP, NUMBER];
/// The most elements of a list within an object, such as the states of a pod's containers.
const FEW: usize = 32;
/// The most characters of a message.
const MESSAGE: usize = 1000;

/// The first [`FEW`] elements of a list.
struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = Few<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Few::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut few = Vec::new();
                while few.len() < FEW {
                    let Some(element) = list.next_element()? else { return Ok(Few(few)) };
                    few.push(element);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Few(few))
            }
        }
        deserializer.deserialize_any(Elements(PhantomData))
    }
}

/// The annotations among [`ANNOTATIONS`].
#[derive(Default)]
struct OwnAnnotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for OwnAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = OwnAnnotations;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("annotations")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(OwnAnnotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut own = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if ANNOTATIONS.contains(&key.as_str()) {
                        own.insert(key, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(OwnAnnotations(own))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    annotations: OwnAnnotations,
    owner_references: Few<OwnerReference>,
}

impl From<Metadata> for ObjectMeta {
    fn from(listed: Metadata) -> Self {
        Self {
            name: listed.name,
            uid: listed.uid,
            resource_version: listed.resource_version,
            creation_timestamp: listed.creation_timestamp,
            deletion_timestamp: listed.deletion_timestamp,
            annotations: Some(listed.annotations.0).filter(|all| !all.is_empty()),
            owner_references: Some(listed.owner_references.0).filter(|all| !all.is_empty()),
            ..Self::default()
        }
    }
}

/// A pod of a list.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct ListedPod {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    init_containers: Option<Vec<NamedImage>>,
    containers: Option<Vec<NamedImage>>,
    host_network: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedImage {
    name: String,
    image: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    start_time: Option<Time>,
    conditions: Few<PodCondition>,
    init_container_statuses: Few<ContainerStatus>,
    container_statuses: Few<ContainerStatus>,
}

impl ListedPod {
    /// The pod, with the specification of these containers alone.
    pub(crate) fn with_containers(self, names: &[String]) -> Pod {
        let named = |all: Option<Vec<NamedImage>>| -> Vec<Container> {
            let named = all.into_iter().flatten().filter(|container| names.contains(&container.name)).take(FEW);
            named.map(|NamedImage { name, image }| Container { name, image, ..Container::default() }).collect()
        };
        let spec = self.spec.map(|spec| PodSpec {
            init_containers: Some(named(spec.init_containers)),
            containers: named(spec.containers),
            host_network: spec.host_network,
            ..PodSpec::default()
        });
        let status = self.status.map(|status| PodStatus {
            phase: status.phase,
            reason: status.reason.map(cut),
            message: status.message.map(cut),
            host_ip: status.host_ip.map(cut),
            pod_ip: status.pod_ip.map(cut),
            start_time: status.start_time,
            conditions: Some(status.conditions.0),
            init_container_statuses: Some(stripped(status.init_container_statuses)),
            container_statuses: Some(stripped(status.container_statuses)),
            ..PodStatus::default()
        });
        Pod { metadata: self.metadata.into(), spec, status }
    }
}

fn cut(text: String) -> String {
    text.chars().take(MESSAGE).collect()
}

/// The states of containers, without what no rule reads.
fn stripped(statuses: Few<ContainerStatus>) -> Vec<ContainerStatus> {
    let stripped = |status: ContainerStatus| ContainerStatus {
        image: status.image,
        image_id: status.image_id,
        last_state: status.last_state,
        name: status.name,
        ready: status.ready,
        restart_count: status.restart_count,
        state: status.state,
        ..ContainerStatus::default()
    };
    statuses.0.into_iter().map(stripped).collect()
}

/// A Job of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListedJob {
    metadata: Metadata,
    status: Option<StatusOfJob>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusOfJob {
    active: Option<i32>,
    terminating: Option<i32>,
    conditions: Few<JobCondition>,
}

impl From<ListedJob> for Job {
    /// The Job's identity, and what says whether it is over.
    fn from(listed: ListedJob) -> Self {
        let status = listed.status.map(|status| JobStatus {
            active: status.active,
            terminating: status.terminating,
            conditions: Some(status.conditions.0),
            ..JobStatus::default()
        });
        Self { metadata: listed.metadata.into(), spec: None, status }
    }
}

/// A ReplicaSet or ControllerRevision of a list, whose pod template is the text that it came as.
#[derive(Deserialize)]
pub(crate) struct ListedRevision {
    #[serde(default)]
    metadata: Metadata,
    /// The number of a ControllerRevision.
    #[serde(default)]
    revision: i64,
    /// The specification of a ReplicaSet.
    spec: Option<Box<RawValue>>,
    /// The patch that a ControllerRevision holds, which may be any JSON.
    data: Option<Box<RawValue>>,
}

impl ListedRevision {
    /// Its name, uid and owners, and the annotations that rules read.
    pub(crate) fn metadata(&mut self) -> ObjectMeta {
        std::mem::take(&mut self.metadata).into()
    }

    /// The number of a ControllerRevision.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// The pod template of a ReplicaSet. Returns `None` if it has none.
    pub(crate) fn template(&self) -> Option<Box<RawValue>> {
        #[derive(Deserialize)]
        struct Specification {
            template: Option<Box<RawValue>>,
        }
        serde_json::from_str::<Specification>(self.spec.as_ref()?.get()).ok()?.template
    }

    /// The pod template in the patch of a ControllerRevision. Returns `None` if it has none.
    pub(crate) fn patched_template(&self) -> Option<Box<RawValue>> {
        #[derive(Deserialize)]
        struct Patch {
            spec: Option<Box<RawValue>>,
        }
        let spec = serde_json::from_str::<Patch>(self.data.as_ref()?.get()).ok()?.spec;
        Self { metadata: Metadata::default(), revision: 0, spec, data: None }.template()
    }
}

/// An event of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListedEvent {
    #[serde(rename = "type")]
    type_: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    count: Option<i32>,
    event_time: Option<MicroTime>,
    first_timestamp: Option<Time>,
    last_timestamp: Option<Time>,
    series: Option<EventSeries>,
}

impl From<ListedEvent> for Event {
    fn from(listed: ListedEvent) -> Self {
        Self {
            type_: listed.type_.map(cut),
            reason: listed.reason.map(cut),
            message: listed.message.map(cut),
            count: listed.count,
            event_time: listed.event_time,
            first_timestamp: listed.first_timestamp,
            last_timestamp: listed.last_timestamp,
            series: listed.series,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(json: &Value) -> Pod {
        serde_json::from_str::<ListedPod>(&json.to_string()).unwrap().with_containers(&["app".to_owned()])
    }

    /// A pod as an API server (1.34) lists it, shortened.
    fn recorded() -> Value {
        json!({
            "metadata": {
                "name": "api-7d4b9-x2x1k", "generateName": "api-7d4b9-", "namespace": "shop-test", "uid": "7",
                "resourceVersion": "812", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "api"},
                "annotations": {STAMP: "0000000000000000000000000000002a/5", "theirs": "x".repeat(1000)},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-7d4b9", "uid": "3",
                                     "controller": true, "blockOwnerDeletion": true}],
                "managedFields": [{"manager": "kubelet", "operation": "Update", "apiVersion": "v1",
                                   "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {
                "volumes": [{"name": "token", "projected": {"sources": [], "defaultMode": 420}}],
                "initContainers": [{"name": "migrate", "image": "migrate:1", "resources": {}}],
                "containers": [
                    {"name": "proxy", "image": "proxy:1", "env": [{"name": "A", "value": "1"}]},
                    {"name": "app", "image": "api:v5", "env": [{"name": "A", "value": "1"}], "resources": {}},
                ],
                "restartPolicy": "Always", "nodeName": "node-1",
            },
            "status": {
                "phase": "Running", "hostIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
                "containerStatuses": [
                    {"name": "app", "image": "api:v5", "imageID": "api@sha256:1", "ready": true, "restartCount": 2,
                     "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, "lastState": {},
                     "volumeMounts": [{"name": "token", "mountPath": "/token"}]},
                ],
            },
        })
    }

    #[test]
    fn pod_has_what_rules_read_and_nothing_else() {
        let pod = pod(&recorded());
        let kept = serde_json::to_value(&pod).unwrap();
        assert_eq!(kept["metadata"]["annotations"], json!({STAMP: "0000000000000000000000000000002a/5"}));
        assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], "3");
        assert_eq!(kept["spec"], json!({"containers": [{"name": "app", "image": "api:v5"}], "initContainers": []}));
        assert_eq!(kept["status"]["conditions"], recorded()["status"]["conditions"]);
        assert_eq!(kept["status"]["containerStatuses"][0]["restartCount"], 2);
        let all = kept.to_string();
        for left_out in ["theirs", "managedFields", "volume", "proxy", "labels"] {
            assert!(!all.contains(left_out), "{left_out}: {all}");
        }
        assert_eq!(super::super::pods::name(&pod), "api-7d4b9-x2x1k");
    }

    #[test]
    fn lists_within_a_pod_are_cut_and_those_that_are_null_are_empty() {
        let status = |at: usize| json!({"name": format!("c{at}"), "image": "", "imageID": "", "ready": false, "restartCount": 0});
        let statuses: Vec<Value> = (0..10_000).map(status).collect();
        let containers: Vec<Value> = (0..10_000).map(|_| json!({"name": "app", "image": "api:v5"})).collect();
        let large = pod(&json!({
            "metadata": {"annotations": null, "ownerReferences": null},
            "spec": {"containers": containers, "initContainers": null},
            "status": {"containerStatuses": statuses, "initContainerStatuses": null},
        }));
        assert_eq!(large.spec.unwrap().containers.len(), FEW);
        assert_eq!(super::super::pods::statuses(&Pod { status: large.status, ..Pod::default() }).count(), FEW);
        assert_eq!(pod(&json!({"metadata": {"name": "a"}})).status, None);
    }

    #[test]
    fn revision_with_other_data_has_no_template() {
        for data in [json!([1]), json!("text"), json!({"spec": 3}), json!({}), Value::Null] {
            let text = json!({"metadata": {}, "revision": 3, "data": data}).to_string();
            let listed: ListedRevision = serde_json::from_str(&text).unwrap();
            assert_eq!(listed.patched_template().map(|text| text.get().to_owned()), None);
        }
    }
}
