//! The API server as rollouts and builds use it: few calls, each classified; no call repeats itself.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::{Event, Namespace, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Config,
    api::{DeleteParams, ListParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
    core::{NamespaceResourceScope, Resource, Selector},
};
use rollhook_core::{Error, Result, slots::Slots};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    bounded_answers::{bounded, too_long},
    connection,
    error::{classify, is_not_found},
    object_version::{self, ObjectVersion},
    pages::{self, Extent, PAGE_BYTES},
    rules::{
        diagnostics::{LOG_LINES, keep_events},
        listed::{ListedEvent, ListedRevision},
        object::{MANAGER, Object},
        pod_list::{PodCollector, PodList},
        pods, reduced,
        retained::Retained,
    },
    workload::{Rollout, WorkloadKind},
};

/// The deadline of establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The shortest time between two reads of a configuration whose credentials are not accepted.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// The most bytes of a log that are read for its last lines, which may be of any length.
const LOG_BYTES: i64 = 256 << 10;
/// The most bytes of an object. Its parts take up to thirty times as much memory as their JSON.
const OBJECT_BYTES: usize = 1 << 20;
/// The most pages that are read at once, in turns of the namespaces: one with many pods holds up no other.
const PAGES_AT_ONCE: usize = 4;
/// The most pages of one namespace that are read at once.
const PAGES_OF_ONE: usize = PAGES_AT_ONCE - 1;
/// The most objects that are read at once, and of one namespace.
const OBJECTS_AT_ONCE: usize = 16;
const OBJECTS_OF_ONE: usize = 4;

/// A type of objects that live in namespaces.
pub(crate) trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The parameters of a write by our field manager.
pub(crate) fn post_parameters() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The parameters of a patch by our field manager.
pub(crate) fn patch_parameters() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A connection to one cluster.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
    /// The same for single objects that others write.
    objects: kube::Client,
    /// The same for lists of them.
    lists: kube::Client,
}

impl Cluster {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Nothing is sent yet.
    pub(crate) async fn connect() -> Result<Self> {
        Self::renewed(None).await
    }

    /// Connects in the same way for endless watches: a connection that is silent for this long is dead.
    pub(crate) async fn connect_with_limit(silence: Duration) -> Result<Self> {
        Self::renewed(Some(silence)).await
    }

    async fn renewed(silence: Option<Duration>) -> Result<Self> {
        let make = move |mut config: Config| {
            config.read_timeout = silence.or(config.read_timeout);
            Ok(Self::with(config)?.client)
        };
        let client = connection::renewed(Arc::new(|| inferred().boxed()), Arc::new(make), READ_AGAIN).await?;
        Ok(Self::through(client))
    }

    fn through(client: kube::Client) -> Self {
        let lists = bounded(&client, PAGE_BYTES, Slots::with_share(PAGES_AT_ONCE, PAGES_OF_ONE));
        let objects = bounded(&client, OBJECT_BYTES, Slots::with_share(OBJECTS_AT_ONCE, OBJECTS_OF_ONE));
        Self { objects, client, lists }
    }

    /// Connects by a given configuration.
    pub(crate) fn with(mut config: Config) -> Result<Self> {
        // It repeats every method for minutes, while our callers have deadlines and repeat by themselves.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        let agent = HeaderValue::from_static(concat!("rollhook/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, agent));
        let client = kube::Client::try_from(config).map_err(|error| Error::Invalid {
            what: "the configuration of the cluster cannot be used".to_owned(),
            cause: Some(error.into()),
        })?;
        Ok(Self::through(client))
    }

    /// The client of the connection.
    pub(crate) fn into_client(self) -> kube::Client {
        self.client
    }

    /// A connection through an existing client.
    #[cfg(test)]
    pub(crate) fn of(client: kube::Client) -> Self {
        Self::through(client)
    }

    /// The objects of one type in a namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The client for lists of objects that others write.
    pub(crate) fn lists(&self) -> &kube::Client {
        &self.lists
    }

    /// The versions of the workloads of a kind in a namespace.
    pub(crate) fn workloads(&self, namespace: &str, kind: WorkloadKind) -> Api<ObjectVersion> {
        match kind {
            WorkloadKind::Deployment => object_version::of::<Deployment>(self, namespace),
            WorkloadKind::StatefulSet => object_version::of::<StatefulSet>(self, namespace),
            WorkloadKind::DaemonSet => object_version::of::<DaemonSet>(self, namespace),
            WorkloadKind::CronJob => object_version::of::<CronJob>(self, namespace),
        }
    }

    /// The workload as it is, never from a cache.
    pub(crate) async fn workload(&self, namespace: &str, kind: WorkloadKind, name: &str) -> Result<Option<Object>> {
        Ok(match kind {
            WorkloadKind::Deployment => self.find(namespace, name).await?.map(Object::Deployment),
            WorkloadKind::StatefulSet => self.find(namespace, name).await?.map(Object::StatefulSet),
            WorkloadKind::DaemonSet => self.find(namespace, name).await?.map(Object::DaemonSet),
            WorkloadKind::CronJob => self.find(namespace, name).await?.map(Object::CronJob),
        })
    }

    /// The uid of a namespace.
    pub(crate) async fn namespace_uid(&self, name: &str) -> Result<String> {
        let namespace = Api::<Namespace>::all(self.client.clone()).get(name).await.map_err(classify)?;
        namespace.metadata.uid.ok_or_else(|| Error::corrupt(format!("the namespace {name}"), "it has no uid"))
    }

    /// The workload of the rollout.
    pub(crate) async fn target(&self, rollout: &Rollout) -> Result<Option<Object>> {
        self.workload(rollout.namespace(), rollout.workload.kind, &rollout.workload.name).await
    }

    /// The workload of the rollout, as observations read it: it is kept while its pods are read.
    pub(crate) async fn observed_target(&self, rollout: &Rollout) -> Result<Option<Object>> {
        let found = self.target(rollout).await?;
        Ok(found.map(|object| reduced::workload(object, rollout)))
    }

    /// Applies a strategic merge patch to the workload.
    pub(crate) async fn patch(&self, namespace: &str, object: &Object, patch: &Value) -> kube::Result<()> {
        let name = object.metadata().name.as_deref().unwrap_or_default();
        let workloads = self.workloads(namespace, object.kind());
        workloads.patch(name, &patch_parameters(), &Patch::Strategic(patch)).await.map(drop)
    }

    /// The earlier revisions of the workload that the cluster retains, the newest of them if there are many; none for a
    /// CronJob.
    pub(crate) async fn retained(&self, namespace: &str, object: &Object) -> Result<Vec<Retained>> {
        let Some(selector) = object.selector() else { return Ok(Vec::new()) };
        let parameters = ListParams::default().labels_from(&parsed(selector)?);
        let mut kept = Vec::new();
        if object.kind() == WorkloadKind::Deployment {
            let keep = |page: Vec<ListedRevision>| {
                let own = page.into_iter().filter_map(|listed| Retained::of_replica_set(listed, object));
                Retained::keep(&mut kept, own);
            };
            self.list::<ReplicaSet, _>(namespace, parameters, keep).await?;
        } else {
            let keep = |page: Vec<ListedRevision>| {
                let own = page.into_iter().filter_map(|listed| Retained::of_controller_revision(listed, object));
                Retained::keep(&mut kept, own);
            };
            self.list::<ControllerRevision, _>(namespace, parameters, keep).await?;
        }
        Ok(kept)
    }

    /// Hands over each page of a list of objects of a kind, as far as rules use them.
    pub(crate) async fn list<K, T>(
        &self,
        namespace: &str,
        parameters: ListParams,
        keep: impl FnMut(Vec<T>),
    ) -> Result<Extent>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        T: DeserializeOwned,
    {
        let listed = Api::<K>::namespaced(self.lists.clone(), namespace);
        pages::each(&self.lists, listed.resource_url(), parameters, keep).await
    }

    /// Creates an object.
    pub(crate) async fn create<K: Namespaced>(&self, namespace: &str, object: &K) -> kube::Result<K> {
        self.api(namespace).create(&post_parameters(), object).await
    }

    /// The pods that the selector of the rollout's workload selects; none for a CronJob.
    pub(crate) async fn pods(&self, rollout: &Rollout, object: &Object) -> Result<PodList> {
        let Some(selector) = object.selector() else { return Ok(PodList::default()) };
        let parameters = ListParams::default().labels_from(&parsed(selector)?);
        let mut pods = PodCollector::new(rollout, object);
        let extent = self.list::<Pod, _>(rollout.namespace(), parameters, |page| pods.add(page)).await?;
        let pods = pods.finish(extent);
        if pods.is_part {
            tracing::debug!(app = %rollout.app, kept = pods.kept.len(), "reading pods ended before the end of their list");
        }
        Ok(pods)
    }

    /// The events of the object with this uid, the newest of them if there are many; none if they cannot be read.
    pub(crate) async fn events(&self, namespace: &str, uid: &str) -> Vec<Event> {
        self.events_of(namespace, uid).await.unwrap_or_else(|error| {
            tracing::debug!(namespace, uid, error = %error.chain(), "reading the events of an object failed");
            Vec::new()
        })
    }

    /// The events of the object with this uid, the newest of them if there are many.
    pub(crate) async fn events_of(&self, namespace: &str, uid: &str) -> Result<Vec<Event>> {
        let of_object = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let mut kept = Vec::new();
        let keep = |page: Vec<ListedEvent>| keep_events(&mut kept, page.into_iter().map(Event::from));
        self.list::<Event, _>(namespace, of_object, keep).await?;
        Ok(kept)
    }

    /// The end of a container's log, of its present or its previous run.
    pub(crate) async fn log(
        &self,
        namespace: &str,
        pod: &Pod,
        container: &str,
        previous: bool,
    ) -> kube::Result<String> {
        let parameters = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: i64::try_from(LOG_LINES).ok(),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        self.api::<Pod>(namespace).logs(pods::name(pod), &parameters).await
    }

    /// Deletes the object of this metadata; one of the same name that was made since stays.
    pub(crate) async fn delete<K: Namespaced>(&self, namespace: &str, metadata: &ObjectMeta) -> Result<()> {
        self.delete_if::<K>(namespace, metadata, None).await
    }

    /// Deletes the object of this metadata as it was read.
    ///
    /// # Errors
    /// `Conflict` if it has changed since.
    pub(crate) async fn delete_as_read<K: Namespaced>(&self, namespace: &str, metadata: &ObjectMeta) -> Result<()> {
        self.delete_if::<K>(namespace, metadata, metadata.resource_version.clone()).await
    }

    async fn delete_if<K: Namespaced>(
        &self,
        namespace: &str,
        metadata: &ObjectMeta,
        resource_version: Option<String>,
    ) -> Result<()> {
        let guard = Preconditions { uid: metadata.uid.clone(), resource_version };
        let name = metadata.name.as_deref().unwrap_or_default();
        match self.api::<K>(namespace).delete(name, &DeleteParams::default().preconditions(guard)).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(classify(error)),
        }
    }

    /// Patches the Job as it was read.
    pub(crate) async fn patch_job(&self, namespace: &str, job: &Job, mut patch: Value) -> kube::Result<()> {
        let metadata = &job.metadata;
        patch["metadata"]["resourceVersion"] = metadata.resource_version.clone().into();
        patch["metadata"]["uid"] = metadata.uid.clone().into();
        let name = metadata.name.as_deref().unwrap_or_default();
        self.api::<Job>(namespace).patch(name, &patch_parameters(), &Patch::Merge(patch)).await.map(drop)
    }

    /// The object of this name, which others may have written.
    pub(crate) async fn find<K: Namespaced>(&self, namespace: &str, name: &str) -> Result<Option<Box<K>>> {
        let found = Api::<K>::namespaced(self.objects.clone(), namespace).get_opt(name).await;
        let found = found.map_err(|error| match too_long(&error) {
            Some(long) => Error::invalid(format!(
                "the {} {name} in the namespace {namespace} has more than {} KiB of JSON: make it smaller",
                K::kind(&()),
                long.most >> 10
            )),
            None => classify(error),
        });
        Ok(found?.map(Box::new))
    }
}

/// The configuration of `kubectl`, or of the pod that this process runs in.
pub(crate) async fn inferred() -> Result<Config> {
    Config::infer().await.map_err(|error| Error::Invalid {
        what: "there is no kubeconfig, and this process is not a pod with a service account".to_owned(),
        cause: Some(error.into()),
    })
}

/// The selector in the form that queries have.
pub(crate) fn parsed(selector: &LabelSelector) -> Result<Selector> {
    Selector::try_from(selector.clone())
        .map_err(|error| Error::corrupt("the workload's label selector cannot be read", error))
}
