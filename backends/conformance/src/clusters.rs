//! The harness of the rollout suite.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::RolloutDriver,
};

use crate::report::{Can, Lack};

/// The images that the suite rolls out, by what their instances do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Get ready, and stay so.
    Good,
    /// The same, of another image.
    Another,
    /// There are none: the image cannot be fetched.
    Missing,
    /// End again and again without getting ready, and log a line each time.
    Crashing,
    /// Start, and never get ready.
    Hanging,
    /// Get ready, and end a few seconds later; then they are started again.
    Dying,
    /// Fail for a few seconds, as by ending again and again, and then get ready and stay so.
    Healing,
}

/// An instance that a platform runs, as the platform itself knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Another text for each instance that was ever started: the uid of a pod, the id of a container, the start time
    /// and id of a process. It must not be made of a deploy id.
    pub id: String,
    /// The image that it was started with.
    pub image: ImageRef,
    /// The digest of the bits that it runs; `None` if the platform does not know.
    pub digest: Option<Digest>,
}

/// The variables of an instance by their names.
pub type Environment = BTreeMap<String, String>;

/// A cluster, or whatever else a driver deploys to, and what a test must be able to do to it.
///
/// A [`Lack`](crate::Lack) says what it cannot show: the cases that need it are reported, and do not pass silently.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// A driver of the cluster; always the same one.
    fn rollouts(&self) -> Arc<dyn RolloutDriver>;

    /// Another driver of the same cluster, as another process opens it: it shares nothing with earlier ones but what is
    /// kept in the cluster.
    async fn another(&self) -> Can<Arc<dyn RolloutDriver>>;

    /// A driver of a cluster that cannot be reached.
    async fn away(&self) -> Can<Arc<dyn RolloutDriver>>;

    /// An app of this name; each case asks for names of its own, and nothing of that name is in the cluster.
    fn app(&self, name: &str) -> AppId;

    /// An image, named by a tag and without a digest; all of one repository, but for [`Sample::Missing`].
    fn image(&self, sample: Sample) -> Can<ImageRef>;

    /// The settings as a person gives them to register the app; they say how its target is created.
    fn settings(&self, app: &AppId) -> Settings;

    /// Settings of which one is not valid, and the name of that one.
    fn invalid_settings(&self) -> Can<(Settings, &'static str)>;

    /// Makes the target that [`settings`](Self::settings) name, as it may exist before its app is registered: without a
    /// deploy id, with instances of [`Sample::Good`]. Returns when they are ready.
    async fn prepare(&self, app: &AppId) -> Can;

    /// Makes a tag, which may be new, mean the bits of a sample, as a push to its registry does. What runs keeps its
    /// bits. The image is of the repository of [`image`](Self::image), with the name of an app as its tag.
    async fn push(&self, image: &ImageRef, sample: Sample) -> Can;

    /// Changes the target's image and nothing else, as another controller does.
    async fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> Can;

    /// Removes the target, as another controller does.
    async fn remove(&self, app: &AppId, target: &Target) -> Can;

    /// A text that differs whenever a driver changed the target, and says so where it does not exist.
    async fn fingerprint(&self, app: &AppId, target: &Target) -> String;

    /// Returns the configuration of the target that no deploy may change, as a text: all but image and deploy id.
    async fn configuration(&self, app: &AppId, target: &Target) -> Can<String>;

    /// Returns the environment of each instance that runs now, as the platform or the instance itself knows it: the
    /// variables that were set, whoever set them. Only for drivers that set variables.
    async fn environments(&self, app: &AppId, target: &Target) -> Can<Vec<Environment>> {
        let _ = (app, target);
        Err(Lack::NotApplicable("the harness reads no environments"))
    }

    /// Sets a variable in the target's environment and changes nothing else, as another controller does.
    async fn set_variable(&self, app: &AppId, target: &Target, name: &str, value: &str) -> Can {
        let _ = (app, target, name, value);
        Err(Lack::NotApplicable("the harness sets no variables"))
    }

    /// Returns two settings that instances can be made with, each another value of the same one; `None` if the driver takes none.
    fn made_with_settings(&self) -> Option<[Settings; 2]> {
        None
    }

    /// Returns what the instances that run now are made with, as far as those settings are about it. Only for drivers that take
    /// some.
    async fn made_with(&self, app: &AppId, target: &Target) -> Can<Vec<String>> {
        let _ = (app, target);
        Err(Lack::NotApplicable("the harness does not read what instances are made with"))
    }

    /// All instances of whatever deploy that run now, ready or not, or are started again and again; without those that
    /// were told to end.
    async fn instances(&self, app: &AppId, target: &Target) -> Can<Vec<Instance>>;

    /// The digest of what instances of the image run that are started now.
    async fn digest(&self, image: &ImageRef) -> Can<Digest>;

    /// A line that an instance of [`Sample::Crashing`], which is rolled out, has logged.
    async fn logged(&self, app: &AppId, target: &Target) -> Can<String>;

    /// Returns the container that the driver names, in which [`Sample::Missing`] and [`Sample::Crashing`] fail; `None`
    /// if its instances have no parts.
    fn container(&self) -> Option<&'static str>;

    /// Lets a quarter of a second pass for the cluster, and for calls of its drivers that wait for it.
    async fn pause(&self);
}
