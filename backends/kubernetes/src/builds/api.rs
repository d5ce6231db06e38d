//! The API server as builds use it: few calls, each classified; no call repeats itself.

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Event, Node, Secret},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use rollhook_core::{Error, Result, ports::DeployId};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    names::{self, SLOTS},
    outcome::{Outcome, StoredFailure},
    slots::Slots,
};
use crate::{
    client::{Cluster, Namespaced, post_parameters},
    error::{classify, is_already_exists, is_conflict, is_not_found, refusal, shortened},
    rules::object::{MANAGED_BY, MANAGER},
};

/// The namespace of builds.
#[derive(Clone)]
pub(super) struct Namespace {
    pub(super) cluster: Cluster,
    pub(super) name: String,
}

/// Whether an object was changed as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Yes,
    /// The object has changed meanwhile, or is gone: read it again.
    No,
}

impl Namespace {
    fn api<K: Namespaced>(&self) -> Api<K> {
        self.cluster.api(&self.name)
    }

    /// The Job of a build. Returns `None` if it does not exist.
    pub(super) async fn job(&self, build: DeployId) -> Result<Option<Job>> {
        self.api().get_opt(&names::job(build)).await.map_err(classify)
    }

    /// The objects that a selector selects, as they are now.
    pub(super) async fn list<K: Namespaced>(&self, selector: &str) -> Result<Vec<K>> {
        Ok(self.api().list(&ListParams::default().labels(selector)).await.map_err(classify)?.items)
    }

    /// The cluster's nodes; none if we may not list them.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>> {
        let nodes = Api::<Node>::all(self.cluster.clone().into_client()).list(&ListParams::default()).await;
        match nodes.map_err(classify) {
            Ok(nodes) => Ok(nodes.items),
            Err(Error::Denied { what, .. }) => {
                tracing::warn!(
                    error = what,
                    "listing nodes was denied, so that user namespaces are unknown: builds run without root"
                );
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates an object, which `title` names in errors. Returns `None` if one of its name exists.
    ///
    /// # Errors
    /// `Invalid` with the cluster's sentence if it refuses the object.
    pub(super) async fn create<K: Namespaced>(&self, object: &K, title: &str) -> Result<Option<K>> {
        match self.api().create(&post_parameters(), object).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_already_exists(&error) => Ok(None),
            Err(error) if is_not_found(&error) => Err(Error::invalid(format!(
                "the cluster has no namespace {} for builds: rollhook-server manifests --build-namespace {0} prints what it needs",
                self.name
            ))),
            Err(error) => match refusal(&error) {
                Some(sentence) => Err(Error::Invalid {
                    what: format!("the cluster refuses the {title}: {sentence}"),
                    cause: Some(error.into()),
                }),
                None => Err(denied(classify(error))),
            },
        }
    }

    /// Deletes a build's Secret, if it exists.
    pub(super) async fn delete_secret(&self, name: &str) -> Result<()> {
        changed(self.api::<Secret>().delete(name, &DeleteParams::background()).await).map(drop)
    }

    /// Records the outcome on the Job as it was read.
    pub(super) async fn record(&self, job: &Job, outcome: &Outcome) -> Result<Changed> {
        let metadata = json!({"labels": {names::ENDED: "true"}, "annotations": {names::OUTCOME: text(outcome)?}});
        self.patch(job, json!({ "metadata": metadata })).await
    }

    /// Ends the Job as it was read with a failure that we have decided: its pods go, no others come, and as a finished
    /// Job it is cleaned up like all others.
    pub(super) async fn stop(&self, job: &Job, failure: &StoredFailure) -> Result<Changed> {
        let patch = json!({
            "metadata": {"annotations": {names::STOPPED: text(failure)?}},
            "spec": {"suspend": false, "parallelism": 0, "activeDeadlineSeconds": 1},
        });
        self.patch(job, patch).await
    }

    /// Patches the Job as it was read.
    pub(super) async fn patch(&self, job: &Job, patch: Value) -> Result<Changed> {
        changed(self.cluster.patch_job(&self.name, job, patch).await)
    }

    /// Deletes the Job, and its pods with it; with `as_read`, only in the version that was read.
    pub(super) async fn delete(&self, job: &Job, as_read: bool) -> Result<Changed> {
        let metadata = &job.metadata;
        let resource_version = metadata.resource_version.clone().filter(|_| as_read);
        let guard = Preconditions { uid: metadata.uid.clone(), resource_version };
        let name = metadata.name.as_deref().unwrap_or_default();
        changed(self.api::<Job>().delete(name, &DeleteParams::background().preconditions(guard)).await)
    }

    /// The slots, and the object that holds them, if it exists.
    pub(super) async fn slots(&self) -> Result<(Slots, Option<ConfigMap>)> {
        let found: Option<ConfigMap> = self.api().get_opt(SLOTS).await.map_err(classify)?;
        Ok((Slots::of(found.as_ref().and_then(|found| found.data.clone()).unwrap_or_default()), found))
    }

    /// Writes the slots, if the object still is as it was read.
    pub(super) async fn write_slots(&self, slots: Slots, read: Option<ConfigMap>) -> Result<Changed> {
        match read {
            Some(object) => {
                let object = ConfigMap { data: Some(slots.into_data()), ..object };
                changed(self.api().replace(SLOTS, &post_parameters(), &object).await)
            }
            None => {
                let labels = Some([(MANAGED_BY.to_owned(), MANAGER.to_owned())].into());
                let metadata = ObjectMeta { name: Some(SLOTS.to_owned()), labels, ..ObjectMeta::default() };
                let object = ConfigMap { metadata, data: Some(slots.into_data()), ..ConfigMap::default() };
                changed(self.api().create(&post_parameters(), &object).await)
            }
        }
    }

    /// The events of a Job; none if they cannot be read.
    pub(super) async fn events(&self, job: &Job) -> Vec<Event> {
        self.cluster.events(&self.name, job.metadata.uid.as_deref().unwrap_or_default()).await
    }
}

fn text<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::corrupt("a build's outcome cannot be written", error))
}

fn changed<T>(outcome: kube::Result<T>) -> Result<Changed> {
    match outcome {
        Ok(_) => Ok(Changed::Yes),
        Err(error) if is_conflict(&error) || is_already_exists(&error) || is_not_found(&error) => Ok(Changed::No),
        Err(error) => Err(denied(classify(error))),
    }
}

/// Adds to a denial how to get the permission.
fn denied(error: Error) -> Error {
    let Error::Denied { what, cause } = error else { return error };
    let what = format!(
        "{}; rollhook-server manifests --build-namespace NAMESPACE prints the permissions that builds need",
        shortened(&what)
    );
    Error::Denied { what, cause }
}
