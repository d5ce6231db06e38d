//! The port that builds a commit; no host wires one yet, so that git apps are refused at registration.

use async_trait::async_trait;

use crate::{
    app::GitSource,
    deploy::{Commit, Reason},
    error::Result,
    image::ImageRef,
    ports::Stamp,
};

/// What is to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildOrder {
    /// Registration and revision: a build is named by it, and started once.
    pub stamp: Stamp,
    /// From where.
    pub source: GitSource,
    /// Which commit; the builder resolves a short one.
    pub commit: Commit,
}

/// How far a build is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildState {
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
    Failed {
        /// The code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
    },
    /// It is not known: never started, or forgotten after it ended.
    Unknown,
}

/// Builds commits. Safety: what it reports built is exactly the order's commit.
///
/// - Starting is idempotent by stamp; a cancelled stamp does not start again.
/// - The end is reported until it is forgotten, so that a lost answer or a restart loses nothing.
#[async_trait]
pub trait Builds: Send + Sync {
    /// Starts the build, if it is not started.
    async fn start(&self, order: &BuildOrder) -> Result<()>;

    /// How far it is.
    async fn observe(&self, stamp: Stamp) -> Result<BuildState>;

    /// Ends it; the lane is free when [`Builds::observe`] says that it ended.
    async fn cancel(&self, stamp: Stamp) -> Result<()>;
}
