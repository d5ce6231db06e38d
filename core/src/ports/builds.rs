//! The port that builds a commit.

use async_trait::async_trait;

use crate::{
    app::{AppId, AppUid},
    deploy::{Commit, Reason, Revision},
    error::Result,
    image::ImageRef,
    ports::DeployId,
    source::GitSource,
    text::with_fields,
};

/// The specification of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildSpec {
    /// The app's name.
    pub app: AppId,
    /// The deploy id: it names the build, which is started once.
    pub id: DeployId,
    /// The source to build from.
    pub source: GitSource,
    /// The commit, in full or as a prefix of 7 or more digits; the builder resolves it at the source.
    pub commit: Commit,
}

with_fields!(BuildSpec);

impl BuildSpec {
    /// Returns the specification of a build of this commit.
    pub const fn new(app: AppId, id: DeployId, source: GitSource, commit: Commit) -> Self {
        Self { app, id, source, commit }
    }
}

/// The answer to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The build is known, from this call or an earlier one; an observation tells whether it runs or has ended.
    Known,
    /// Another build of the app has not ended; nothing was started.
    Busy(Revision),
}

/// The failure of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFailure {
    /// The code of the failure.
    pub reason: Reason,
    /// A sentence that a person can act on.
    pub message: String,
    /// The commit in full, where it was resolved.
    pub commit: Option<Commit>,
    /// The last lines of the build's log, oldest first; at most 50 of at most 500 characters.
    pub log: Vec<String>,
}

/// The state of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildState {
    /// The build waits for a build slot; its deadline waits as well.
    Waiting,
    /// The build runs.
    Running,
    /// The build succeeded.
    Built {
        /// The image, by digest.
        image: ImageRef,
        /// The commit in full, as it was checked out.
        commit: Commit,
    },
    /// The build failed, or was cancelled.
    Failed(BuildFailure),
    /// The build is unknown: never started, forgotten after its end, or lost with the machine that it ran on.
    Unknown,
}

impl BuildState {
    /// Returns whether the build was started and has not ended.
    pub const fn is_under_way(&self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// Builds commits, one at a time per app. Safety: a build that is reported as built is exactly the specified commit,
/// and two builds of one app never run at once, whatever the callers believe.
///
/// - `start_then_observe_built`: a sound commit ends `Built`, with an image by digest in the source's repository, and
///   the commit in full.
/// - `start_is_idempotent`: repeated with the same specification, also after its end: `Known`, and nothing is built
///   again.
/// - `start_while_another_runs_is_busy`: `Busy` names the other one, and nothing is started.
/// - `start_resolves_a_short_commit`: to the one commit with this prefix.
/// - `unknown_commit_fails`, `ambiguous_commit_fails`: [`Reason::COMMIT_NOT_FOUND`], [`Reason::COMMIT_AMBIGUOUS`].
/// - `failed_build_keeps_its_log`: [`Reason::BUILD_FAILED`], with the last lines of the build's log.
/// - `cancel_ends_and_frees`: observed ended within a bounded time, and then another build may start; a cancelled build
///   does not start again. Cancelling an ended or unknown build changes nothing and is no error.
/// - `observe_unknown_is_unknown`: a build that was never started is [`BuildState::Unknown`].
/// - `running_is_what_has_not_ended`: the one build of the app that has not ended, until its end can be observed.
/// - `end_outlives_a_restart`: another handle on the same builder, opened once the first is gone, reports it.
/// - `log_is_read_in_parts`: from any offset, complete in the end; `None` if there is no log.
/// - `forgets_a_deleted_app`: its builds are unknown and have no logs, once the last one has ended; those of other apps
///   stay.
#[async_trait]
pub trait BuildTrigger: Send + Sync {
    /// Starts the build, unless it is known or another one of the app has not ended.
    async fn start(&self, spec: &BuildSpec) -> Result<Started>;

    /// Returns the revision of the app's build that has not ended.
    async fn running(&self, app: AppUid) -> Result<Option<Revision>>;

    /// Returns the state of a build; its end is reported until it is forgotten, long after later builds have ended.
    async fn observe(&self, build: DeployId) -> Result<BuildState>;

    /// Returns when an observation may have changed. It may return early, or never: callers poll as well.
    async fn changed(&self, build: DeployId);

    /// Cancels a build; the next one can start when [`BuildTrigger::observe`] reports its end.
    async fn cancel(&self, build: DeployId) -> Result<()>;

    /// Returns a part of the build's log from byte `from` on; empty if there is no more yet, `None` if the build is
    /// unknown.
    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>>;

    /// Forgets the builds of an app that was deleted, with their logs; one that has not ended yet, once it has. A builder
    /// whose builds go by themselves need not write this.
    async fn forget(&self, _app: AppUid) -> Result<()> {
        Ok(())
    }
}
