//! The port that brings a cluster to a revision.

use std::{fmt, str::FromStr};

use async_trait::async_trait;

use crate::{
    app::{AppId, AppUid, Workload, WorkloadKind},
    deploy::{Evidence, Reason, Revision},
    error::Result,
    image::{Digest, ImageRef},
};

/// `{app uid}/{revision}`: what the workload and its pods carry, and what every effect is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeployId {
    /// The registration.
    pub app: AppUid,
    /// Its revision.
    pub revision: Revision,
}

impl fmt::Display for DeployId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.revision)
    }
}

impl FromStr for DeployId {
    type Err = crate::app::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (app, revision) = text.split_once('/').unwrap_or((text, ""));
        Ok(Self { app: app.parse()?, revision: revision.parse()? })
    }
}

/// What is to run, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutSpec {
    /// The app's name; its namespace is the cluster's.
    pub app: AppId,
    /// Registration and revision.
    pub stamp: DeployId,
    /// The workload.
    pub workload: Workload,
    /// The image for the workload's containers.
    pub image: ImageRef,
    /// Whether the revision is what ran when the app was registered: nothing is patched, and what runs is observed as
    /// it is.
    pub adopted: bool,
    /// Why, in a line, such as "rollback to revision 3 by alice".
    pub cause: String,
}

/// How an order ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The workload was brought to the order, now or before; what another made of it since, an observation says.
    Done,
    /// It carries a newer revision of the same app; nothing was changed.
    Newer(Revision),
    /// It cannot be; nothing was changed.
    Refused {
        /// The code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
    },
}

/// How far the cluster is with an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not there yet.
    Progressing,
    /// The cluster runs this revision and nothing else of the workload, by kubectl's own rules.
    Complete {
        /// The digest that its pods run, where it is known and one.
        digest: Option<Digest>,
        /// A remark for the history, such as "0 replicas: no pod runs".
        note: Option<String>,
    },
}

/// What kind of trouble pods of the new revision are in; each kind is given its own grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RolloutFailureKind {
    /// The image cannot be pulled.
    Image,
    /// A container exits again and again.
    Crash,
    /// A container cannot be made from its configuration.
    Config,
    /// No node takes the pod.
    Unschedulable,
    /// No grace: the cluster itself gave up, or refuses, or another has changed the workload.
    Final,
}

/// Trouble that the cluster reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutFailure {
    /// Its kind.
    pub kind: RolloutFailureKind,
    /// The code, such as `ImagePullBackOff`.
    pub reason: Reason,
    /// The container.
    pub container: Option<String>,
    /// A sentence that a person can act on, naming the container.
    pub message: String,
}

/// What is seen of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The workload's stamp; a newer one of the same app ends the watching.
    pub stamp: Option<DeployId>,
    /// How far it is.
    pub phase: Phase,
    /// Any text that differs whenever the rollout has moved: counts of updated, ready and old pods.
    pub progress: String,
    /// Where it stands, in a line for people: "2 of 4 new pods are available".
    pub message: String,
    /// Restarts of the new pods' containers, all together.
    pub restarts: u32,
    /// What is wrong.
    pub trouble: Option<RolloutFailure>,
}

/// A container of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its name.
    pub name: String,
    /// Its image as the cluster has it, which may name neither tag nor digest.
    pub image: String,
}

/// A workload that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadInfo {
    /// Its containers, without init and sidecar ones.
    pub containers: Vec<ContainerInfo>,
    /// The stamp that it carries.
    pub stamp: Option<DeployId>,
    /// Why it cannot be rolled out at all, such as an `OnDelete` strategy.
    pub unsupported: Option<String>,
}

/// Brings a cluster to a revision and says what it sees. Safety: it never takes a workload backwards, whatever its
/// caller believes.
///
/// - `apply_then_observe_complete`: a sound image ends `Complete`.
/// - `apply_is_idempotent`: repeated with the same order: `Done`, and nothing rolls again.
/// - `apply_older_is_refused`: an order below the workload's stamp of the same app is `Newer`, nothing changed.
/// - `apply_foreign_stamp_is_refused`: `Refused` with [`Reason::FOREIGN_STAMP`], unless the order's workload says
///   `take_over` of just that uid.
/// - `apply_same_image_rolls_again`: a new revision of the same image is a rollout of its own.
/// - `apply_missing_is_created_or_refused`: made from the template, or [`Reason::WORKLOAD_MISSING`].
/// - `observe_old_is_not_new`: while the new revision does not run, never `Complete`, though the old one be healthy.
/// - `observe_failing_image_is_trouble`, `observe_crash_is_trouble`: kind and container are named.
/// - `adopt_changes_nothing`: an adopted order leaves the workload as it is.
/// - `inspect_unknown_is_none`.
/// - `away_is_unavailable`: a cluster that cannot be reached is `Unavailable`, from every call, within a bounded time
///   (10 s).
#[async_trait]
pub trait RolloutDriver: Send + Sync {
    /// The workload as it is, for registration.
    async fn inspect(&self, app: &AppId, kind: WorkloadKind, name: &str) -> Result<Option<WorkloadInfo>>;

    /// Brings the workload to the order, unless it is at a newer one.
    async fn apply(&self, order: &RolloutSpec) -> Result<Applied>;

    /// What is to be seen of the order now.
    async fn observe(&self, order: &RolloutSpec) -> Result<Observation>;

    /// Returns when an observation may have changed; may return early, and may return never: callers poll as well.
    async fn changed(&self, order: &RolloutSpec);

    /// What can be collected of the order's failing pods; as much as there is within a few seconds.
    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence>;
}
