//! The Secrets with an app's configuration: made before what refers to them, and removed once nothing does.
//!
//! Of a Secret that exists the metadata alone are read, but for one that a deploy asks for and its workload does not know yet:
//! others may have made it.

use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PartialObjectMeta, Patch},
    core::{NamespaceResourceScope, Request, Resource},
};
use rollhook_core::{Error, Result, app::AppUid, configuration::Configuration, ports::DeployId};
use serde_json::value::RawValue;

use crate::{
    client::{Cluster, patch_parameters, post_parameters},
    error::{classify, contended, is_already_exists, is_conflict, is_not_found, refusal},
    pages::Extent,
    rules::{
        configuration::{self, Owner},
        quoted::{error_without_values, without_values},
    },
};

/// The number of attempts on a Secret that others change at the same time.
const ATTEMPTS: usize = 4;
/// The most Secrets of an app that are looked at for removal.
const LISTED: u32 = 500;
/// The longest time in which a new version has old ones removed.
const CLEANUP: Duration = Duration::from_secs(3);
/// The answer that has no values.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// What has become of the Secret of a version.
#[derive(Debug)]
pub(crate) enum Provided {
    /// It was made.
    Made(Box<ObjectMeta>),
    /// It was there already.
    Found(Box<ObjectMeta>),
    /// The cluster refuses it, or another party's has its name: a sentence without its end.
    Refused(String),
}

impl Provided {
    /// The uid of the Secret.
    pub(crate) fn uid(&self) -> Option<&str> {
        match self {
            Self::Made(metadata) | Self::Found(metadata) => metadata.uid.as_deref(),
            Self::Refused(_) => None,
        }
    }
}

type Secrets = Api<PartialObjectMeta<Secret>>;

/// Provides the Secret of the configuration for its owner. One with other content takes its place, unless it has the uid that is
/// known.
///
/// # Errors
/// `NotFound` if there is no such namespace; those of the cluster.
pub(crate) async fn provide(
    cluster: &Cluster,
    owner: &Owner<'_>,
    wanted: &Configuration,
    known: Option<&str>,
) -> Result<Provided> {
    let (namespace, name) = (owner.app.namespace.as_str(), configuration::name(owner.app, wanted.id));
    let secrets: Secrets = cluster.api(namespace);
    for _ in 0..ATTEMPTS {
        let Some(found) = secrets.get_opt(&name).await.map_err(classify)?.map(|found| found.metadata) else {
            match create(cluster, &configuration::secret(owner, wanted), namespace).await {
                Ok(metadata) => return Ok(Provided::Made(Box::new(metadata))),
                Err(failure) if is_already_exists(&failure) => continue,
                Err(failure) => {
                    let whole = format!("{failure} {failure:?}");
                    let refused = refusal(&failure);
                    let why = refused.ok_or_else(|| error_without_values(classify(failure), &whole, wanted))?;
                    let why = without_values(why, &whole, wanted);
                    return Ok(Provided::Refused(format!("the cluster refuses the Secret {name}: {why}")));
                }
            }
        };
        if !configuration::is_of(&found, owner, wanted.id) {
            return Ok(Provided::Refused(format!(
                "the Secret {name} in the namespace {namespace} has not the labels of the app's configuration: rename or delete it"
            )));
        }
        if found.deletion_timestamp.is_some() {
            continue;
        }
        let is_known = known.is_some() && found.uid.as_deref() == known;
        if !is_known && !is_as_made(cluster, namespace, &found, wanted).await? {
            tracing::warn!(
                namespace,
                secret = name,
                "replacing a Secret of an app's configuration that another party made"
            );
            cluster.delete::<Secret>(namespace, &found).await?;
            continue;
        }
        let adoption = configuration::adoption(&found, owner, is_known);
        let Some(patch) = adoption else { return Ok(Provided::Found(Box::new(found))) };
        match secrets.patch(&name, &patch_parameters(), &Patch::Strategic(patch)).await {
            Ok(_) => return Ok(Provided::Found(Box::new(found))),
            Err(failure) if is_conflict(&failure) || is_not_found(&failure) => {}
            Err(failure) => return Err(classify(failure)),
        }
    }
    Err(contended())
}

/// Whether the Secret of this metadata is as this service makes it. One that is gone meanwhile is, and is missed later.
async fn is_as_made(cluster: &Cluster, namespace: &str, found: &ObjectMeta, wanted: &Configuration) -> Result<bool> {
    let name = found.name.as_deref().unwrap_or_default();
    let secret = cluster.api::<Secret>(namespace).get_opt(name).await.map_err(classify)?;
    let secret = secret.filter(|secret| secret.metadata.uid == found.uid);
    Ok(secret.is_none_or(|secret| configuration::has_content(&secret, wanted)))
}

/// The metadata of a Secret; `None` if there is none of this name.
pub(crate) async fn metadata(cluster: &Cluster, namespace: &str, name: &str) -> Result<Option<ObjectMeta>> {
    let secrets: Secrets = cluster.api(namespace);
    Ok(secrets.get_opt(name).await.map_err(classify)?.map(|found| found.metadata))
}

async fn create(cluster: &Cluster, secret: &Secret, namespace: &str) -> kube::Result<ObjectMeta> {
    let secrets: Secrets = cluster.api(namespace);
    let body = serde_json::to_vec(secret).map_err(kube::Error::SerdeError)?;
    let request = Request::new(secrets.resource_url()).create(&post_parameters(), body);
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
    let made: PartialObjectMeta<Secret> = cluster.clone().into_client().request(request).await?;
    Ok(made.metadata)
}

/// Removes a Secret that was made for what the cluster has refused, as it was made: one that another call has found since stays,
/// be it for the same deploy or run in another replica. A failure leaves it to a later removal of old ones.
pub(crate) async fn take_back(cluster: &Cluster, namespace: &str, provided: Option<&Provided>) {
    let Some(Provided::Made(metadata)) = provided else { return };
    if let Err(error) = cluster.delete_as_read::<Secret>(namespace, metadata).await {
        tracing::debug!(namespace, error = %error.chain(), "removing the Secret of a refused configuration failed");
    }
}

/// Removes the app's Secrets beyond those that are kept which nothing in the namespace names, as far as that succeeds in a
/// short time. Called once the deploy's own is made, as only then there is one more.
pub(crate) async fn remove_old(cluster: &Cluster, namespace: &str, deploy: DeployId) {
    match tokio::time::timeout(CLEANUP, removed(cluster, namespace, deploy)).await {
        Ok(Ok(0)) => {}
        Ok(Ok(number)) => {
            tracing::debug!(namespace, app = %deploy.app, number, "removed Secrets of old configurations")
        }
        Ok(Err(error)) => {
            tracing::debug!(namespace, app = %deploy.app, error = %error.chain(), "removing Secrets of old configurations failed");
        }
        Err(_) => tracing::debug!(namespace, app = %deploy.app, "removing Secrets of old configurations took too long"),
    }
}

async fn removed(cluster: &Cluster, namespace: &str, deploy: DeployId) -> Result<usize> {
    let mut old = configuration::superfluous(of_app(cluster, namespace, deploy.app).await?, deploy);
    // Whatever names a Secret may need it: a workload, the versions that one could return to, a Job, and a pod whose
    // container may be started again.
    retain_unnamed::<Deployment>(cluster, namespace, &mut old).await?;
    retain_unnamed::<StatefulSet>(cluster, namespace, &mut old).await?;
    retain_unnamed::<DaemonSet>(cluster, namespace, &mut old).await?;
    retain_unnamed::<CronJob>(cluster, namespace, &mut old).await?;
    retain_unnamed::<ReplicaSet>(cluster, namespace, &mut old).await?;
    retain_unnamed::<ControllerRevision>(cluster, namespace, &mut old).await?;
    retain_unnamed::<Job>(cluster, namespace, &mut old).await?;
    retain_unnamed::<Pod>(cluster, namespace, &mut old).await?;
    for metadata in &old {
        // Of this resource version: one that a deploy has asked for since stays.
        match cluster.delete_as_read::<Secret>(namespace, metadata).await {
            Ok(()) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(old.len())
}

async fn of_app(cluster: &Cluster, namespace: &str, app: AppUid) -> Result<Vec<ObjectMeta>> {
    let secrets: Secrets = Api::namespaced(cluster.lists().clone(), namespace);
    let selected = ListParams::default().labels(&configuration::selector(app)).limit(LISTED);
    let listed = secrets.list(&selected).await.map_err(classify)?;
    Ok(listed.items.into_iter().map(|secret| secret.metadata).collect())
}

/// Leaves out the Secrets that an object of a kind names; all of them if there are more objects than can be read.
async fn retain_unnamed<K>(cluster: &Cluster, namespace: &str, secrets: &mut Vec<ObjectMeta>) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    if secrets.is_empty() {
        return Ok(());
    }
    let unnamed = |page: Vec<Box<RawValue>>| {
        secrets.retain(|secret| !page.iter().any(|object| configuration::is_named(secret, object.get())));
    };
    if cluster.list::<K, _>(namespace, ListParams::default(), unnamed).await? == Extent::Part {
        secrets.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
