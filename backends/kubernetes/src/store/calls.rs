//! The API server as the store uses it: each call with a deadline, its failure classified, none repeated by itself.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::{NamespaceResourceScope, Resource},
};
use rollhook_core::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    crd::{AppObject, DeployObject},
    error::classify,
};
use crate::{
    error::{is_already_exists, is_conflict},
    rules::object::MANAGER,
};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);

/// Tells the Leases of replicas from others.
pub(crate) const REPLICA_SELECTOR: &str = "rollhook.dev/lease=replica";

/// What came of a write that may be refused for what is stored.
#[derive(Debug)]
pub(crate) enum Written<T> {
    /// It was made.
    Done(T),
    /// Something of that name is there already, or it has changed since it was read.
    Conflict,
    /// It is gone.
    Gone,
}

/// A connection, and the namespace of our own objects.
#[derive(Clone)]
pub(crate) struct Calls {
    client: Client,
    namespace: String,
}

impl Calls {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    /// The namespace of our own objects.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn all_apps(&self) -> Api<AppObject> {
        Api::all(self.client.clone())
    }

    pub(crate) fn all_deploys(&self) -> Api<DeployObject> {
        Api::all(self.client.clone())
    }

    pub(crate) fn apps(&self, namespace: &str) -> Api<AppObject> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn deploys(&self, namespace: &str) -> Api<DeployObject> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The Leases in our own namespace.
    pub(crate) fn leases(&self) -> Api<Lease> {
        self.leases_in(&self.namespace)
    }

    pub(crate) fn leases_in(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Reads one object.
pub(crate) async fn get<K: Object>(api: &Api<K>, name: &str) -> Result<Option<K>> {
    bounded(async {
        match api.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => none_if_gone(classify(error)),
        }
    })
    .await
}

/// Reads all that a selector selects.
pub(crate) async fn list<K: Object>(api: &Api<K>, selector: Option<&str>) -> Result<Vec<K>> {
    let mut parameters = ListParams::default().limit(500);
    parameters.label_selector = selector.map(str::to_owned);
    let mut items = Vec::new();
    loop {
        let page = bounded(async { api.list(&parameters).await.map_err(classify) }).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(items),
        }
    }
}

/// Makes an object.
pub(crate) async fn create<K: Object>(api: &Api<K>, object: &K) -> Result<Written<K>> {
    bounded(async { written(api.create(&parameters(), object).await) }).await
}

/// Replaces an object, where it still is as it was read.
pub(crate) async fn replace<K: Object>(api: &Api<K>, object: &K) -> Result<Written<K>> {
    let name = object.meta().name.clone().unwrap_or_default();
    bounded(async { written(api.replace(&name, &parameters(), object).await) }).await
}

/// Replaces an object's status, where the object still is as it was read.
pub(crate) async fn replace_status<K: Object>(api: &Api<K>, object: &K) -> Result<Written<K>> {
    let name = object.meta().name.clone().unwrap_or_default();
    bounded(async { written(api.replace_status(&name, &parameters(), object).await) }).await
}

/// Deletes an object: just this one, and where a version is given, only as it was read.
pub(crate) async fn delete<K: Object>(api: &Api<K>, name: &str, guard: Preconditions) -> Result<Written<()>> {
    bounded(async { written(api.delete(name, &DeleteParams::default().preconditions(guard)).await.map(drop)) }).await
}

/// Deletes all that a selector selects.
pub(crate) async fn delete_all<K: Object>(api: &Api<K>, selector: &str) -> Result<()> {
    let selected = ListParams::default().labels(selector);
    bounded(async { api.delete_collection(&DeleteParams::default(), &selected).await.map(drop).map_err(classify) })
        .await
}

/// What can be read and written by these calls.
pub(crate) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
{
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn written<T>(outcome: kube::Result<T>) -> Result<Written<T>> {
    match outcome {
        Ok(done) => Ok(Written::Done(done)),
        Err(error) if is_conflict(&error) || is_already_exists(&error) => Ok(Written::Conflict),
        Err(error) => none_if_gone(classify(error)).map(|none| none.unwrap_or(Written::Gone)),
    }
}

/// Nothing, where that is what the failure says.
fn none_if_gone<T>(error: Error) -> Result<Option<T>> {
    if matches!(error, Error::NotFound(_)) { Ok(None) } else { Err(error) }
}

async fn bounded<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| {
        let what = format!("the cluster's API server did not answer within {} s", CALL.as_secs());
        Err(Error::Unavailable { what, cause: None })
    })
}
