//! The port that reads where a source's branch is.

use async_trait::async_trait;

use crate::{deploy::Commit, error::Result, source::GitSource};

/// Reads branches at their source; changes nothing anywhere.
///
/// - `head_is_the_branchs`: the commit in full that the configured branch, and no other, points to now, whoever asks.
/// - `head_follows_a_push`: also one that went back (`push --force`).
/// - `head_of_no_branch_is_none`: the source can be read, and has no such branch.
/// - `head_of_a_silent_source_is_unavailable`: within a bounded time.
/// - `head_of_a_closed_source_is_denied`: the credentials are missing or wrong.
#[async_trait]
pub trait BranchReader: Send + Sync {
    /// The commit that the source's branch points to; none where there is no such branch.
    async fn head(&self, source: &GitSource) -> Result<Option<Commit>>;

    /// The same, where nobody waits for the answer: it may come later than those that are waited for. `Conflict(Capacity)`:
    /// too many sources are being read, which says nothing of this one.
    ///
    /// A decorator hands it on, so that its inner reader can tell the two apart.
    async fn look(&self, source: &GitSource) -> Result<Option<Commit>> {
        self.head(source).await
    }
}
