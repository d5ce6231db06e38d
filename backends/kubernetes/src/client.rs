//! The API server as this driver uses it: few calls, each classified, none repeated by itself.

use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::CronJob,
        core::v1::{Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{NamespaceResourceScope, Resource, Selector},
};
use rollhook_core::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::{classify, is_not_found},
    rules::object::{MANAGER, Object},
    workload::WorkloadKind,
};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to one cluster.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
}

impl Cluster {
    /// Connects as `kubectl` would, or from inside a pod with its service account; nothing is sent yet.
    pub(crate) async fn connect() -> Result<Self> {
        Self::with(inferred().await?)
    }

    /// The same for one that watches without end: a connection on which nothing comes for so long is dead.
    pub(crate) async fn connect_with_limit(quiet: Duration) -> Result<Self> {
        let mut config = inferred().await?;
        config.read_timeout = Some(quiet);
        Self::with(config)
    }

    /// Connects by a given configuration.
    pub(crate) fn with(mut config: Config) -> Result<Self> {
        // It repeats every method for minutes; who calls us has a deadline and repeats by itself.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        let agent = HeaderValue::from_static(concat!("rollhook/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, agent));
        let client = kube::Client::try_from(config).map_err(|error| Error::Invalid {
            what: "the configuration of the cluster cannot be used".to_owned(),
            cause: Some(error.into()),
        })?;
        Ok(Self { client })
    }

    /// The client itself.
    pub(crate) fn into_client(self) -> kube::Client {
        self.client
    }

    /// A connection through a client that is there already.
    #[cfg(test)]
    pub(crate) fn of(client: kube::Client) -> Self {
        Self { client }
    }

    /// The objects of one type in a namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The workload as it is, never from a cache.
    pub(crate) async fn workload(&self, namespace: &str, kind: WorkloadKind, name: &str) -> Result<Option<Object>> {
        Ok(match kind {
            WorkloadKind::Deployment => self.find::<Deployment>(namespace, name).await?.map(Object::Deployment),
            WorkloadKind::StatefulSet => self.find::<StatefulSet>(namespace, name).await?.map(Object::StatefulSet),
            WorkloadKind::DaemonSet => self.find::<DaemonSet>(namespace, name).await?.map(Object::DaemonSet),
            WorkloadKind::CronJob => self.find::<CronJob>(namespace, name).await?.map(Object::CronJob),
        })
    }

    /// Applies a strategic merge patch to the workload.
    pub(crate) async fn patch(&self, namespace: &str, object: &Object, patch: &Value) -> kube::Result<()> {
        let name = object.metadata().name.as_deref().unwrap_or_default();
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Strategic(patch);
        match object {
            Object::Deployment(_) => self.api::<Deployment>(namespace).patch(name, &parameters, &patch).await.map(drop),
            Object::StatefulSet(_) => {
                self.api::<StatefulSet>(namespace).patch(name, &parameters, &patch).await.map(drop)
            }
            Object::DaemonSet(_) => self.api::<DaemonSet>(namespace).patch(name, &parameters, &patch).await.map(drop),
            Object::CronJob(_) => self.api::<CronJob>(namespace).patch(name, &parameters, &patch).await.map(drop),
        }
    }

    /// Creates an object.
    pub(crate) async fn create<K>(&self, namespace: &str, object: &K) -> kube::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        self.api(namespace).create(&parameters, object).await
    }

    /// All pods that a selector selects; none where there is no selector.
    pub(crate) async fn pods(&self, namespace: &str, selector: Option<&LabelSelector>) -> Result<Vec<Pod>> {
        let Some(selector) = selector else { return Ok(Vec::new()) };
        let parameters = ListParams::default().labels_from(&parsed(selector)?);
        Ok(self.api::<Pod>(namespace).list(&parameters).await.map_err(classify)?.items)
    }

    /// Deletes just this pod, and not one of the same name made since.
    pub(crate) async fn delete_pod(&self, namespace: &str, pod: &Pod) -> Result<()> {
        self.delete::<Pod>(namespace, &pod.metadata.name, pod.metadata.uid.clone()).await
    }

    /// Deletes just this Service.
    pub(crate) async fn delete_service(&self, namespace: &str, service: &Service) -> Result<()> {
        self.delete::<Service>(namespace, &service.metadata.name, service.metadata.uid.clone()).await
    }

    async fn delete<K>(&self, namespace: &str, name: &Option<String>, uid: Option<String>) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let guard = Preconditions { uid, resource_version: None };
        let name = name.as_deref().unwrap_or_default();
        match self.api::<K>(namespace).delete(name, &DeleteParams::default().preconditions(guard)).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(classify(error)),
        }
    }

    async fn find<K>(&self, namespace: &str, name: &str) -> Result<Option<Box<K>>>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
        K::DynamicType: Default,
    {
        match self.api::<K>(namespace).get(name).await {
            Ok(found) => Ok(Some(Box::new(found))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(classify(error)),
        }
    }
}

async fn inferred() -> Result<Config> {
    Config::infer().await.map_err(|error| Error::Invalid {
        what: "there is no kubeconfig, and this is no pod with a service account".to_owned(),
        cause: Some(error.into()),
    })
}

/// The selector as queries spell it.
pub(crate) fn parsed(selector: &LabelSelector) -> Result<Selector> {
    Selector::try_from(selector.clone())
        .map_err(|error| Error::corrupt("the workload's label selector cannot be read", error))
}
