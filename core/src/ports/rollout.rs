//! The port that brings a cluster to a revision.

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;

use crate::{
    app::{App, AppId, AppUid, Settings, Target},
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
    /// The app's name.
    pub app: AppId,
    /// Registration and revision.
    pub stamp: DeployId,
    /// What is changed: settings that [`RolloutDriver::validate`] returned.
    pub target: Target,
    /// The image to run.
    pub image: ImageRef,
    /// Whether the revision is what ran when the app was registered: nothing is changed, and what runs is observed as
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

/// A target to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRequest {
    /// The app's name.
    pub app: AppId,
    /// The settings as a person gave them.
    pub settings: Settings,
    /// The image to create the target with, if one was given.
    pub image: Option<ImageRef>,
    /// Whether the app's images are still to be built, so that creating the target needs none now.
    pub built: bool,
    /// Whether the deploy id of another registration may be overwritten.
    pub take_over: bool,
}

/// The answer to a [`TargetRequest`]. Settings are complete: all defaults are filled in, as they will be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validated {
    /// The target exists, and will be left as it is until the first deploy.
    Adopt {
        /// The settings.
        settings: Settings,
        /// The image that runs.
        image: ImageRef,
        /// The registration whose deploy id the target carries; only if the request allows taking it over.
        take_over: Option<AppUid>,
    },
    /// The target does not exist; the first deploy will create it.
    Create {
        /// The settings.
        settings: Settings,
    },
    /// The target cannot be registered so.
    Invalid(InvalidTarget),
}

/// Why a target cannot be registered. The texts are shown to the person who registers the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTarget {
    /// A setting is missing, unknown or not valid.
    Setting {
        /// The name of the setting, as the person gave it, such as `workload.name`.
        name: String,
        /// The rule that it breaks, in a sentence.
        rule: String,
    },
    /// The target cannot be deployed to as it is, or cannot be created: what is wrong and what to do, in a sentence.
    Unusable(String),
    /// The target carries the deploy id of another registration, and the request does not allow taking it over: which,
    /// in a sentence.
    Taken(String),
}

/// How long a call may take. Callers drop a call that takes much longer, and take it for one that failed.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Brings a cluster to a revision and says what it sees. Safety: it never takes a workload backwards, whatever its
/// caller believes.
///
/// - `apply_then_observe_complete`: a sound image ends `Complete`.
/// - `apply_is_idempotent`: repeated with the same order: `Done`, and nothing rolls again.
/// - `apply_older_is_refused`: an order below the workload's stamp of the same app is `Newer`, nothing changed.
/// - `apply_foreign_stamp_is_refused`: `Refused` with [`Reason::FOREIGN_STAMP`], unless the order's workload says
///   `take_over` of just that uid.
/// - `apply_same_image_rolls_again`: a new revision of the same image is a rollout of its own.
/// - `apply_missing_is_created_or_refused`: made from the template, or [`Reason::TARGET_MISSING`].
/// - `observe_old_is_not_new`: while the new revision does not run, never `Complete`, though the old one be healthy.
/// - `observe_failing_image_is_trouble`, `observe_crash_is_trouble`: kind and container are named.
/// - `adopt_changes_nothing`: an adopted order leaves the workload as it is.
/// - `validate_changes_nothing`.
/// - `away_is_unavailable`: a cluster that cannot be reached is `Unavailable`, from every call, within a bounded time
///   (10 s).
#[async_trait]
pub trait RolloutDriver: Send + Sync {
    /// Returns the settings with all defaults filled in, and what runs already; or what is wrong. Changes nothing.
    async fn validate(&self, request: &TargetRequest) -> Result<Validated>;

    /// Brings the workload to the order, unless it is at a newer one.
    async fn apply(&self, order: &RolloutSpec) -> Result<Applied>;

    /// What is to be seen of the order now.
    async fn observe(&self, order: &RolloutSpec) -> Result<Observation>;

    /// Returns when an observation may have changed; may return early, and may return never: callers poll as well.
    async fn changed(&self, order: &RolloutSpec);

    /// What can be collected of the order's failing pods; as much as there is within a few seconds.
    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence>;

    /// Tells which images a rollback or a restore of the app may still deploy.
    async fn keep(&self, _app: &App, _images: &[ImageRef]) -> Result<()> {
        Ok(())
    }

    /// Tells that the app was deleted.
    async fn forget(&self, _app: &App) -> Result<()> {
        Ok(())
    }
}
