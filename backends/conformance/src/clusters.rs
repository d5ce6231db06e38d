//! What the rollout suite needs of a backend.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::ImageRef,
    ports::RolloutDriver,
};

use crate::report::Can;

/// The images that the suite rolls out, by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Runs and stays ready.
    Good,
    /// Another one that runs and stays ready.
    Another,
    /// Cannot be pulled.
    Missing,
    /// Exits again and again.
    Crashing,
}

/// A cluster, and what a test must be able to do to it.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// A driver of the cluster.
    fn rollouts(&self) -> Arc<dyn RolloutDriver>;

    /// A driver of a cluster that is away.
    fn away(&self) -> Can<Arc<dyn RolloutDriver>>;

    /// An app of this name in a namespace that is there; each case asks for a name of its own, and nothing of that name
    /// is there.
    fn app(&self, name: &str) -> AppId;

    /// An image.
    fn image(&self, sample: Sample) -> ImageRef;

    /// Settings as a person gives them to register the app.
    fn settings(&self, app: &AppId) -> Settings;

    /// Makes the target that the settings name, without a deploy id, running [`Sample::Good`], and returns when it does.
    async fn prepare(&self, app: &AppId);

    /// A text that differs whenever the target was changed.
    async fn fingerprint(&self, app: &AppId, target: &Target) -> String;

    /// Lets a quarter of a second pass for the cluster.
    async fn pause(&self);
}
