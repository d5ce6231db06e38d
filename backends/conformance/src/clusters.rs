//! What the rollout suite needs of a backend.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    app::{AppId, Template, Workload},
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

    /// How a workload is made where there is none.
    fn template(&self) -> Template;

    /// Makes a workload of the app's name, with one container and without a stamp, that runs [`Sample::Good`], and
    /// returns when it does.
    async fn prepare(&self, app: &AppId) -> Workload;

    /// A text that differs whenever the workload's specification was changed.
    async fn fingerprint(&self, app: &AppId, workload: &Workload) -> String;

    /// Lets a quarter of a second pass for the cluster.
    async fn pause(&self);
}
