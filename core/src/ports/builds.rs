//! The port that builds a commit.

use async_trait::async_trait;

use crate::{
    app::{AppId, AppUid},
    deploy::{Commit, Reason, Revision},
    error::Result,
    image::ImageRef,
    ports::DeployId,
    source::GitSource,
};

/// What is to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildSpec {
    /// The app's name.
    pub app: AppId,
    /// Registration and revision: a build is named by it, and started once.
    pub stamp: DeployId,
    /// From where.
    pub source: GitSource,
    /// Which commit, in full or as a prefix of 7 or more digits; the builder resolves it at the source.
    pub commit: Commit,
}

/// How an order to build was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The build is known, from this order or from one before: whether it runs or has ended, an observation says.
    Known,
    /// Another build of the app has not ended; nothing was started.
    Busy(Revision),
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFailure {
    /// The code.
    pub reason: Reason,
    /// A sentence that a person can act on.
    pub message: String,
    /// The commit in full, where it was resolved.
    pub commit: Option<Commit>,
    /// The last lines of the build's log, oldest first; at most 50 of at most 500 characters.
    pub log: Vec<String>,
}

/// How far a build is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildState {
    /// It was started, and waits until the builder has room for it; its deadline waits as well.
    Waiting,
    /// It runs.
    Running,
    /// It ended well.
    Built {
        /// The image, by digest.
        image: ImageRef,
        /// The commit in full, as it was checked out.
        commit: Commit,
    },
    /// It ended badly, or was cancelled.
    Failed(BuildFailure),
    /// It is not known: never started, forgotten after it ended, or lost with the machine that it ran on.
    Unknown,
}

impl BuildState {
    /// Whether it was started and has not ended.
    pub const fn is_under_way(&self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// Builds commits, one at a time for each app. Safety: what it reports built is exactly the order's commit, and never two
/// builds of one app run at once, whatever its callers believe.
///
/// - `start_then_observe_built`: a sound commit ends `Built`, with an image by digest in the source's repository, and the
///   commit in full.
/// - `start_is_idempotent`: repeated with the same order, also after it has ended: `Known`, and nothing is built again.
/// - `start_while_another_runs_is_busy`: `Busy` names it, and nothing is started.
/// - `start_resolves_a_short_commit`: to the one commit that begins so.
/// - `unknown_commit_fails`, `ambiguous_commit_fails`: [`Reason::COMMIT_NOT_FOUND`], [`Reason::COMMIT_AMBIGUOUS`].
/// - `failed_build_keeps_its_log`: [`Reason::BUILD_FAILED`], with the last lines that the build wrote.
/// - `cancel_ends_and_frees`: observed ended within a bounded time, and then another build may start; a cancelled build
///   does not start again. Cancelling what has ended, or is not known, changes nothing and is no error.
/// - `observe_unknown_is_unknown`.
/// - `running_is_what_has_not_ended`: the one build of the app, of whichever order, until its end can be observed.
/// - `end_outlives_a_restart`: another handle on the same builder, opened once the first is gone, reports it.
/// - `log_is_read_in_parts`: from any place on, whole in the end; none where there is none.
#[async_trait]
pub trait BuildTrigger: Send + Sync {
    /// Starts the build, unless it is known or another one of the app has not ended.
    async fn start(&self, order: &BuildSpec) -> Result<Started>;

    /// The app's build that has not ended.
    async fn running(&self, app: AppUid) -> Result<Option<Revision>>;

    /// How far a build is; its end is reported until it is forgotten, which is not before others have long followed.
    async fn observe(&self, build: DeployId) -> Result<BuildState>;

    /// Returns when an observation may have changed; may return early, and may return never: callers poll as well.
    async fn changed(&self, build: DeployId);

    /// Has it end; the lane is free when [`BuildTrigger::observe`] says that it has.
    async fn cancel(&self, build: DeployId) -> Result<()>;

    /// The build's log from this byte on, as much as is at hand and fits into one part; empty where there is nothing
    /// more yet, none where nothing is known of the build.
    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>>;
}
