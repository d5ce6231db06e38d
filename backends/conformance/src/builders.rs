//! The harness of the build suite.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{deploy::Commit, ports::BuildTrigger, source::GitSource};

use crate::report::Can;

/// The commits that the suite builds, by what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Is built.
    Good,
    /// Another one that is built.
    Another,
    /// The first digits of one that is built, which no other commit has.
    Short,
    /// Is none of the source's.
    Missing,
    /// The first digits of several.
    Ambiguous,
    /// Fails, and logs the word `broken` before it does.
    Failing,
    /// Is not built before it is told to end.
    Hanging,
}

/// A builder, and what a test must be able to do to it.
#[async_trait]
pub trait Builders: Send + Sync {
    /// The builder.
    fn builds(&self) -> Arc<dyn BuildTrigger>;

    /// The builder as another process opens it, after the one before is gone.
    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>>;

    /// What is built from.
    fn source(&self) -> GitSource;

    /// A commit of the source.
    fn commit(&self, made: Made) -> Can<Commit>;

    /// Lets a tenth of a second pass for the builder.
    async fn pause(&self);
}
