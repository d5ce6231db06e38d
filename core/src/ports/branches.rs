//! The port that reads the head of a source's branch.

use async_trait::async_trait;

use crate::{
    app::AppId,
    deploy::Commit,
    error::Result,
    source::{BranchLog, GitSource},
};

/// The newest commits of a branch that a reader has to know at least, along each line of its history.
pub const LOGGED_MIN: usize = 100;

/// Reads branches at their source; without effects.
///
/// - `head_is_the_branchs`: the full commit that the configured branch, and no other, points to now, for every caller.
/// - `head_follows_a_push`: also one that went back (`push --force`).
/// - `head_of_no_branch_is_none`: the source can be read, and has no such branch.
/// - `head_of_a_silent_source_is_unavailable`: within a bounded time.
/// - `head_of_a_closed_source_is_denied`: the credentials are missing or wrong.
/// - `log_is_the_branchs`: the newest commits of the branch, each with its parents, the head first; those of no other branch.
/// - `log_follows_a_push`: also one that went back, after which the commits that it left are in it no more.
/// - `log_of_no_branch_is_empty`: the source can be read, and has no such branch.
/// - `log_of_a_silent_source_is_unavailable`: within a bounded time.
/// - `log_of_a_closed_source_is_denied`: the credentials are missing or wrong.
#[async_trait]
pub trait BranchReader: Send + Sync {
    /// Returns the commit that the branch of this app's source points to; `None` if there is no such branch. The answer is
    /// the source's alone: the app says who asks, so that a reader can share its capacity between environments.
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>>;

    /// Returns the same for a poll, which no caller waits for: it may be answered after the calls of [`Self::head`].
    /// `Conflict(Capacity)` means that too many sources are being read, and implies nothing about this one.
    ///
    /// A decorator forwards this call as it is, so that the inner reader can tell the two apart.
    async fn look(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.head(app, source).await
    }

    /// Returns the newest commits of the branch of this app's source, [`LOGGED_MIN`] of them or more if it has as many.
    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog>;
}
