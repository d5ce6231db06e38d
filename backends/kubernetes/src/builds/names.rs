//! What a build's objects are called, and what stands on them.
//!
//! A build is one Job, `build-{app uid}-{revision}`. What it is about is written on it when it is made, what has become
//! of it when that is first seen, so that any replica can go on with it, and reports the same.

use std::collections::BTreeMap;

use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::Commit,
    ports::{BuildSpec, DeployId},
    source::GitSource,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::rules::object::MANAGER;

/// Whose build it is: on Jobs, and on their pods.
pub(super) const APP: &str = "rollhook.dev/build-app";
/// Of which revision.
pub(super) const REVISION: &str = "rollhook.dev/build-revision";
/// Who made it, and what it is.
pub(super) const MANAGED: &str = "app.kubernetes.io/managed-by";
const COMPONENT: &str = "app.kubernetes.io/component";
const BUILD: &str = "build";
/// The label of Jobs whose end was noted: there are many of them, and they are of no matter to those that wait.
pub(super) const ENDED: &str = "rollhook.dev/build-ended";
/// The labels that are common to all builds and their pods.
pub(crate) const BUILDS_LABELS: [(&str, &str); 2] = [(MANAGED, MANAGER), (COMPONENT, BUILD)];
/// The annotation with [`About`].
pub(super) const ABOUT: &str = "rollhook.dev/build-order";
/// The annotation with why we have ended a build ourselves.
pub(super) const VERDICT: &str = "rollhook.dev/build-verdict";
/// The annotation with how the build ended.
pub(super) const END: &str = "rollhook.dev/build-end";
/// The ConfigMap with the builds that may run.
pub(crate) const PLACES: &str = "rollhook-build-places";

/// What a build is about, as it is written on its Job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) app: AppId,
    pub(super) source: GitSource,
    pub(super) commit: Commit,
    /// How many builds ran at once when it was made.
    pub(super) places: u16,
}

/// The selector of all builds.
pub(super) fn all() -> String {
    BUILDS_LABELS.map(|(name, value)| format!("{name}={value}")).join(",")
}

/// The selector of all builds whose end was not noted.
pub(super) fn unended() -> String {
    format!("{},!{ENDED}", all())
}

/// The selector of an app's builds whose end was not noted.
pub(super) fn unended_of_app(app: AppUid) -> String {
    format!("{},!{ENDED}", of_app(app))
}

/// The selector of an app's builds.
pub(super) fn of_app(app: AppUid) -> String {
    format!("{APP}={app}")
}

/// The selector of one build.
pub(super) fn of_build(build: DeployId) -> String {
    format!("{APP}={},{REVISION}={}", build.app, build.revision)
}

/// The name of a build's Job.
pub(super) fn job(build: DeployId) -> String {
    format!("build-{}-{}", build.app, build.revision)
}

/// The labels of a build's objects.
pub(super) fn labels(build: DeployId) -> BTreeMap<String, String> {
    let common = BUILDS_LABELS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let own = [(APP, build.app.to_string()), (REVISION, build.revision.to_string())];
    common.into_iter().chain(own.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// Whose build an object belongs to; none where it is no build's.
pub(super) fn stamp(meta: &ObjectMeta) -> Option<DeployId> {
    let labels = meta.labels.as_ref()?;
    Some(DeployId { app: labels.get(APP)?.parse().ok()?, revision: labels.get(REVISION)?.parse().ok()? })
}

impl About {
    pub(super) fn of(order: &BuildSpec, places: u16) -> Self {
        Self { app: order.app.clone(), source: order.source.clone(), commit: order.commit.clone(), places }
    }

    /// What the Job says that it is about.
    pub(super) fn read(job: &Job) -> Result<Self> {
        annotation(job, ABOUT)?.ok_or_else(|| Error::Corrupt {
            what: format!(
                "the Job {} does not say what it builds ({ABOUT})",
                job.metadata.name.as_deref().unwrap_or("")
            ),
            cause: None,
        })
    }

    /// What stands before the builder's own log. It never changes, so that places in the log stay what they are.
    pub(super) fn preamble(&self) -> String {
        let Self { app, source, commit, places } = self;
        format!(
            "[rollhook: {commit} of {} for {app}; it begins once one of the cluster's {places} places for builds is \
             free]\n",
            source.url
        )
    }
}

/// An annotation's content; none where there is none.
pub(super) fn annotation<T: DeserializeOwned>(job: &Job, name: &str) -> Result<Option<T>> {
    let Some(text) = job.metadata.annotations.as_ref().and_then(|all| all.get(name)) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|error| {
        let job = job.metadata.name.as_deref().unwrap_or_default();
        Error::corrupt(format!("the annotation {name} of the Job {job} cannot be read"), error)
    })
}
