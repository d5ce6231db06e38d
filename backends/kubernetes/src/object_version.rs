//! What watches read of an object: which one it is, and its version.

use std::borrow::Cow;

use kube::{
    Api,
    api::ObjectMeta,
    core::{ApiResource, DynamicResourceScope, Resource},
    runtime::watcher,
};
use serde::Deserialize;

use crate::client::Cluster;

/// The most objects of a page of a watch's list. Each has all metadata, of which annotations may have 256 KiB.
const PAGE: u32 = 10;

/// The identity and the version of an object. Its other metadata, such as the annotations, is skipped while it is read; all
/// else is not sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Listed")]
pub(crate) struct ObjectVersion {
    pub(crate) metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl From<Listed> for ObjectVersion {
    fn from(Listed { metadata }: Listed) -> Self {
        let Identity { name, namespace, uid, resource_version } = metadata;
        Self { metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() } }
    }
}

impl Resource for ObjectVersion {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The versions of the objects of a kind in a namespace, of which at most a page is read at once.
pub(crate) fn of<K: Resource<DynamicType = ()>>(cluster: &Cluster, namespace: &str) -> Api<ObjectVersion> {
    Api::namespaced_with(cluster.lists().clone(), namespace, &ApiResource::erase::<K>(&()))
}

/// The configuration of a watch of versions.
pub(crate) fn watch() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_and_all_else_are_skipped() {
        let metadata = json!({"name": "api", "namespace": "shop-test", "uid": "7", "resourceVersion": "12",
                              "annotations": {"theirs": "x"}, "labels": {"app": "api"}, "managedFields": [{}]});
        let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        let read: ObjectVersion = serde_json::from_value(object).unwrap();
        let kept = json!({"name": "api", "namespace": "shop-test", "uid": "7", "resourceVersion": "12"});
        assert_eq!(serde_json::to_value(&read.metadata).unwrap(), kept);
    }
}
