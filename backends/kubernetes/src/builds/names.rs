//! The names, labels and annotations of a build's objects.
//!
//! A build is one Job, `build-{app uid}-{revision}`. Its spec is written on it when it is made, and its outcome when
//! that is first observed, so that any replica can go on with it and reports the same.

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

use crate::rules::object::{MANAGED_BY, MANAGER};

/// The label with the app's uid: on Jobs, and on their pods.
pub(super) const APP: &str = "rollhook.dev/build-app";
/// The label with the revision.
pub(super) const REVISION: &str = "rollhook.dev/build-revision";
/// The label of Jobs whose outcome was recorded: there are many of them, and waiting builds need none.
pub(super) const ENDED: &str = "rollhook.dev/build-ended";
/// The labels that are common to all builds and their pods.
pub(crate) const BUILDS_LABELS: [(&str, &str); 2] = [(MANAGED_BY, MANAGER), ("app.kubernetes.io/component", "build")];
/// The annotation with the [`StoredSpec`].
pub(super) const SPEC: &str = "rollhook.dev/build-spec";
/// The annotation of a build that this service has stopped, with the failure.
pub(super) const STOPPED: &str = "rollhook.dev/build-stopped";
/// The annotation with the outcome of the build.
pub(super) const OUTCOME: &str = "rollhook.dev/build-outcome";
/// The ConfigMap with the build slots.
pub(crate) const SLOTS: &str = "rollhook-build-slots";

/// The spec of a build, as it is written on its Job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredSpec {
    pub(super) app: AppId,
    pub(super) source: GitSource,
    pub(super) commit: Commit,
    /// The number of build slots when the Job was made.
    pub(super) slots: u16,
}

/// The selector of all builds.
pub(super) fn all() -> String {
    BUILDS_LABELS.map(|(name, value)| format!("{name}={value}")).join(",")
}

/// The selector of all builds without a recorded outcome.
pub(super) fn unended() -> String {
    format!("{},!{ENDED}", all())
}

/// The selector of an app's builds without a recorded outcome.
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

/// The build that an object belongs to. Returns `None` if it belongs to none.
pub(super) fn deploy_id(meta: &ObjectMeta) -> Option<DeployId> {
    let labels = meta.labels.as_ref()?;
    Some(DeployId { app: labels.get(APP)?.parse().ok()?, revision: labels.get(REVISION)?.parse().ok()? })
}

impl StoredSpec {
    pub(super) fn of(spec: &BuildSpec, slots: u16) -> Self {
        Self { app: spec.app.clone(), source: spec.source.clone(), commit: spec.commit.clone(), slots }
    }

    /// The spec that is written on the Job.
    pub(super) fn read(job: &Job) -> Result<Self> {
        annotation(job, SPEC)?.ok_or_else(|| Error::Corrupt {
            what: format!(
                "the Job {} does not say what it builds ({SPEC})",
                job.metadata.name.as_deref().unwrap_or("")
            ),
            cause: None,
        })
    }

    /// The line before the builder's own log. It never changes, so that positions in the log stay valid.
    pub(super) fn preamble(&self) -> String {
        let Self { app, source, commit, slots } = self;
        format!(
            "[rollhook: {commit} of {} for {app}; it begins once one of the cluster's {slots} build slots is free]\n",
            source.url
        )
    }
}

/// The value of an annotation. Returns `None` if there is no such annotation.
pub(super) fn annotation<T: DeserializeOwned>(job: &Job, name: &str) -> Result<Option<T>> {
    let Some(text) = job.metadata.annotations.as_ref().and_then(|all| all.get(name)) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|error| {
        let job = job.metadata.name.as_deref().unwrap_or_default();
        Error::corrupt(format!("the annotation {name} of the Job {job} cannot be read"), error)
    })
}
