//! The harness of the build suite.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{deploy::Commit, ports::BuildTrigger, source::GitSource};

use crate::report::Can;

/// The commits that the suite builds, by the outcome of their builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// A commit that is built.
    Good,
    /// Another one that is built.
    Another,
    /// The first digits of one that is built, which no other commit has.
    Short,
    /// A commit that the source does not have.
    Missing,
    /// The first digits of several commits.
    Ambiguous,
    /// A commit whose build logs the word `broken` and fails.
    Failing,
    /// A commit whose build runs until it is cancelled.
    Hanging,
}

/// A builder, and what a test must be able to do to it.
#[async_trait]
pub trait Builders: Send + Sync {
    /// The builder.
    fn builds(&self) -> Arc<dyn BuildTrigger>;

    /// The builder as another process opens it, after the one before is gone.
    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>>;

    /// The source of the builds.
    fn source(&self) -> GitSource;

    /// A commit of the source.
    fn commit(&self, made: Made) -> Can<Commit>;

    /// Returns whether the builder forgets the builds of a deleted app when it is called.
    fn forgets(&self) -> Can {
        Ok(())
    }

    /// Lets a tenth of a second pass for the builder.
    async fn pause(&self);
}
