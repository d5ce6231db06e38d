//! The harness of the branch suite.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{deploy::Commit, ports::BranchReader, source::GitSource};

use crate::report::Can;

/// A reader of branches, and a source whose branches a test can move.
#[async_trait]
pub trait Branches: Send + Sync {
    /// The reader.
    fn reader(&self) -> Arc<dyn BranchReader>;

    /// A source that it may read; its branch is `main`.
    fn source(&self) -> GitSource;

    /// Pushes a commit that was never there before to the source's branch, which is made where there is none.
    async fn push(&self, source: &GitSource) -> Commit;

    /// Takes the source's branch back to a commit that was pushed to it.
    async fn push_back(&self, source: &GitSource, to: &Commit);

    /// A source that never answers.
    async fn silent(&self) -> Can<GitSource>;

    /// A source that does not let the reader in.
    async fn closed(&self) -> Can<GitSource>;
}
