//! The API server as the store uses it: each call has a deadline, and its failure is classified; no call repeats
//! itself.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, Preconditions},
};
use rollhook_core::{Error, Result};

use super::error::classify;
use crate::{
    bounded_by,
    client::{Namespaced, post_parameters},
    error::{is_already_exists, is_conflict},
};

/// The deadline of one call.
const CALL: Duration = Duration::from_secs(5);

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Written<T> {
    /// The object was written.
    Done(T),
    /// The name is taken, or the object has changed since it was read.
    Conflict,
    /// The object does not exist.
    Gone,
}

/// A connection, and the namespace of our own objects.
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: Client,
    namespace: String,
}

impl ApiServer {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    /// The namespace of our own objects.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The objects of a kind in the whole cluster.
    pub(crate) fn all<K: Namespaced>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// The objects of a kind in a namespace.
    pub(crate) fn within<K: Namespaced>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The objects of a kind in our own namespace.
    pub(crate) fn own<K: Namespaced>(&self) -> Api<K> {
        self.within(&self.namespace)
    }
}

/// Reads one object. Returns `None` if it does not exist.
pub(crate) async fn get<K: Namespaced>(api: &Api<K>, name: &str) -> Result<Option<K>> {
    bounded_by(CALL, async { api.get(name).await.map(Some).or_else(|error| none_if_gone(classify(error))) }).await
}

/// Reads the metadata of one object. Returns `None` if it does not exist.
pub(crate) async fn get_metadata<K: Namespaced>(api: &Api<K>, name: &str) -> Result<Option<ObjectMeta>> {
    let read = async { api.get_metadata(name).await.map(Some).or_else(|error| none_if_gone(classify(error))) };
    Ok(bounded_by(CALL, read).await?.map(|object| object.metadata))
}

/// Reads all objects that a selector selects.
pub(crate) async fn list<K: Namespaced>(api: &Api<K>, selector: Option<&str>) -> Result<Vec<K>> {
    let mut items = Vec::new();
    let keep = |page| {
        items.extend::<Vec<K>>(page);
        Ok(())
    };
    list_in_pages(api, selector, 500, keep).await?;
    Ok(items)
}

/// Hands over the objects that a selector selects, so many at a time, until the first failure.
pub(crate) async fn list_in_pages<K: Namespaced>(
    api: &Api<K>,
    selector: Option<&str>,
    limit: u32,
    mut keep: impl FnMut(Vec<K>) -> Result<()> + Send,
) -> Result<()> {
    let mut parameters = ListParams::default().limit(limit);
    parameters.label_selector = selector.map(str::to_owned);
    loop {
        let page = bounded_by(CALL, async { api.list(&parameters).await.map_err(classify) }).await?;
        keep(page.items)?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Reads all objects that a selector selects, by one call. Returns `None` if there are more than this.
#[cfg(feature = "management")]
pub(crate) async fn list_at_most<K: Namespaced>(api: &Api<K>, selector: &str, most: u32) -> Result<Option<Vec<K>>> {
    let parameters = ListParams::default().labels(selector).limit(most);
    let page = bounded_by(CALL, async { api.list(&parameters).await.map_err(classify) }).await?;
    Ok(page.metadata.continue_.is_none_or(|token| token.is_empty()).then_some(page.items))
}

/// Fails if objects of this kind cannot be read, for example because the cluster does not know the kind.
pub(crate) async fn check_served<K: Namespaced>(api: &Api<K>) -> Result<()> {
    let one = ListParams::default().limit(1);
    bounded_by(CALL, async { api.list_metadata(&one).await.map(drop).map_err(classify) }).await
}

/// Creates an object.
pub(crate) async fn create<K: Namespaced>(api: &Api<K>, object: &K) -> Result<Written<K>> {
    bounded_by(CALL, async { written(api.create(&post_parameters(), object).await) }).await
}

/// Replaces an object, if it still is as it was read.
pub(crate) async fn replace<K: Namespaced>(api: &Api<K>, object: &K) -> Result<Written<K>> {
    let name = object.meta().name.clone().unwrap_or_default();
    bounded_by(CALL, async { written(api.replace(&name, &post_parameters(), object).await) }).await
}

/// Deletes an object, if its uid and version are those of this metadata, as far as it has them.
pub(crate) async fn delete<K: Namespaced>(api: &Api<K>, metadata: &ObjectMeta) -> Result<Written<()>> {
    let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
    let guard = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    let name = metadata.name.as_deref().unwrap_or_default();
    bounded_by(CALL, async { written(api.delete(name, &guard).await.map(drop)) }).await
}

/// Deletes all objects that a selector selects.
pub(crate) async fn delete_all<K: Namespaced>(api: &Api<K>, selector: &str) -> Result<()> {
    let selected = ListParams::default().labels(selector);
    bounded_by(CALL, async {
        api.delete_collection(&DeleteParams::default(), &selected).await.map(drop).map_err(classify)
    })
    .await
}

fn written<T>(outcome: kube::Result<T>) -> Result<Written<T>> {
    match outcome {
        Ok(done) => Ok(Written::Done(done)),
        Err(error) if is_conflict(&error) || is_already_exists(&error) => Ok(Written::Conflict),
        Err(error) => none_if_gone(classify(error)).map(|none| none.unwrap_or(Written::Gone)),
    }
}

/// Turns `NotFound` into `None`.
fn none_if_gone<T>(error: Error) -> Result<Option<T>> {
    if matches!(error, Error::NotFound(_)) { Ok(None) } else { Err(error) }
}
