//! The API server as builds use it: few calls, each classified, none repeated by itself.

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Event, Node, Pod, Secret},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use rollhook_core::{Error, Result};
use serde_json::{Value, json};

use super::{
    names::{self, PLACES},
    places::Held,
};
use crate::{
    client::Cluster,
    error::{classify, is_already_exists, is_conflict, is_not_found, refusal, shortened},
    rules::object::MANAGER,
};

/// The namespace of builds.
#[derive(Clone)]
pub(super) struct Namespace {
    pub(super) cluster: Cluster,
    pub(super) name: String,
}

/// Whether a change was made to the object as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Yes,
    /// It is another one by now, or gone: read it again.
    No,
}

impl Namespace {
    fn jobs(&self) -> Api<Job> {
        self.cluster.api(&self.name)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        self.cluster.api(&self.name)
    }

    fn places(&self) -> Api<ConfigMap> {
        self.cluster.api(&self.name)
    }

    pub(super) async fn job(&self, name: &str) -> Result<Option<Job>> {
        self.jobs().get_opt(name).await.map_err(classify)
    }

    /// The Jobs of a selector, as they are now.
    pub(super) async fn jobs_of(&self, selector: &str) -> Result<Vec<Job>> {
        Ok(self.jobs().list(&ListParams::default().labels(selector)).await.map_err(classify)?.items)
    }

    /// The pods of a selector, as they are now.
    pub(super) async fn pods_of(&self, selector: &str) -> Result<Vec<Pod>> {
        Ok(self.pods().list(&ListParams::default().labels(selector)).await.map_err(classify)?.items)
    }

    /// The cluster's nodes; none where we may not know them.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>> {
        let nodes = Api::<Node>::all(self.cluster.clone().into_client()).list(&ListParams::default()).await;
        match nodes.map_err(classify) {
            Ok(nodes) => Ok(nodes.items),
            Err(Error::Denied { what, .. }) => {
                tracing::warn!(what, "whether nodes have user namespaces cannot be known: builds run without root");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a Job; none where there is one of that name.
    ///
    /// # Errors
    /// `Invalid` with the cluster's sentence where it will not have it.
    pub(super) async fn create_job(&self, job: &Job) -> Result<Option<Job>> {
        match self.jobs().create(&parameters(), job).await {
            Ok(job) => Ok(Some(job)),
            Err(error) if is_already_exists(&error) => Ok(None),
            Err(error) if is_not_found(&error) => Err(Error::invalid(format!(
                "the cluster has no namespace {} for builds: rollhook-server manifests --build-namespace {0} prints what it needs",
                self.name
            ))),
            Err(error) => match refusal(&error) {
                Some(sentence) => Err(Error::Invalid {
                    what: format!("the cluster refuses the build: {sentence}"),
                    cause: Some(error.into()),
                }),
                None => Err(denied(classify(error))),
            },
        }
    }

    /// Makes a build's Secret. One of its name that is there already belongs to the same Job.
    ///
    /// # Errors
    /// `Invalid` with the cluster's sentence where it will not have it.
    pub(super) async fn create_secret(&self, secret: &Secret) -> Result<()> {
        match self.cluster.api::<Secret>(&self.name).create(&parameters(), secret).await {
            Ok(_) => Ok(()),
            Err(error) if is_already_exists(&error) => Ok(()),
            Err(error) => match refusal(&error) {
                Some(sentence) => Err(Error::Invalid {
                    what: format!("the cluster refuses the Secret with the build's credentials: {sentence}"),
                    cause: Some(error.into()),
                }),
                None => Err(denied(classify(error))),
            },
        }
    }

    /// Removes a build's Secret; one that is not there is as good.
    pub(super) async fn delete_secret(&self, name: &str) -> Result<()> {
        changed(self.cluster.api::<Secret>(&self.name).delete(name, &DeleteParams::background()).await).map(drop)
    }

    /// Patches just this Job as it was read.
    pub(super) async fn patch(&self, job: &Job, mut patch: Value) -> Result<Changed> {
        let (name, version) = read_as(&job.metadata);
        patch["metadata"]["resourceVersion"] = version.into();
        patch["metadata"]["uid"] = job.metadata.uid.clone().into();
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        changed(self.jobs().patch(name, &parameters, &Patch::Merge(patch)).await)
    }

    /// Deletes just this Job, and its pods with it. With `as_read`, only as it was read.
    pub(super) async fn delete(&self, job: &Job, as_read: bool) -> Result<Changed> {
        let (name, version) = read_as(&job.metadata);
        let resource_version = as_read.then(|| version.to_owned());
        let guard = Preconditions { uid: job.metadata.uid.clone(), resource_version };
        changed(self.jobs().delete(name, &DeleteParams::background().preconditions(guard)).await)
    }

    /// Who has a place, and the object that says so, where there is one.
    pub(super) async fn held(&self) -> Result<(Held, Option<ConfigMap>)> {
        let found = self.places().get_opt(PLACES).await.map_err(classify)?;
        Ok((found.as_ref().and_then(|found| found.data.clone()).unwrap_or_default(), found))
    }

    /// Has others hold the places, where the object is as it was read.
    pub(super) async fn hold(&self, held: Held, read: Option<ConfigMap>) -> Result<Changed> {
        match read {
            Some(object) => {
                let object = ConfigMap { data: Some(held), ..object };
                changed(self.places().replace(PLACES, &parameters(), &object).await)
            }
            None => {
                let labels = [(names::MANAGED.to_owned(), MANAGER.to_owned())];
                let metadata =
                    ObjectMeta { name: Some(PLACES.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() };
                let object = ConfigMap { metadata, data: Some(held), ..ConfigMap::default() };
                changed(self.places().create(&parameters(), &object).await)
            }
        }
    }

    /// What the cluster has to say about a Job lately; nothing where it cannot be had.
    pub(super) async fn events(&self, job: &Job) -> Vec<Event> {
        let about = format!("involvedObject.uid={}", job.metadata.uid.as_deref().unwrap_or_default());
        match self.cluster.api::<Event>(&self.name).list(&ListParams::default().fields(&about)).await {
            Ok(events) => events.items,
            Err(error) => {
                tracing::debug!(error = %error, "no events of a build's Job");
                Vec::new()
            }
        }
    }
}

/// Ends a Job with a verdict of ours: its pods go, no others come, and as a finished Job it is cleaned up as all are.
pub(super) fn end_with(verdict: &str) -> Value {
    json!({
        "metadata": {"annotations": {names::VERDICT: verdict}},
        "spec": {"suspend": false, "parallelism": 0, "activeDeadlineSeconds": 1},
    })
}

fn read_as(meta: &ObjectMeta) -> (&str, &str) {
    (meta.name.as_deref().unwrap_or_default(), meta.resource_version.as_deref().unwrap_or_default())
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn changed<T>(outcome: kube::Result<T>) -> Result<Changed> {
    match outcome {
        Ok(_) => Ok(Changed::Yes),
        Err(error) if is_conflict(&error) || is_already_exists(&error) || is_not_found(&error) => Ok(Changed::No),
        Err(error) => Err(denied(classify(error))),
    }
}

/// A denial, with what helps.
fn denied(error: Error) -> Error {
    match error {
        Error::Denied { what, cause } => {
            let what = format!(
                "{}; rollhook-server manifests --build-namespace NAMESPACE prints the permissions that builds need",
                shortened(&what)
            );
            Error::Denied { what, cause }
        }
        other @ (Error::NotFound(_)
        | Error::Conflict(_)
        | Error::Invalid { .. }
        | Error::Unavailable { .. }
        | Error::Corrupt { .. }) => other,
    }
}
