//! The harness of the registry suite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    image::{Digest, ImageLabels, ImageRef, Platform, Tag},
    ports::Registry,
};

use crate::report::Can;

/// An image that a case pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSample {
    /// Makes images of one description different ones.
    pub number: u32,
    /// The platforms: of a single image one, else those of an index.
    pub platforms: Vec<Platform>,
    /// Whether an attestation stands beside the images of an index.
    pub is_attested: bool,
    /// The annotations of the index, or of the single image.
    pub annotations: ImageLabels,
    /// The labels of the first image's configuration.
    pub labels: ImageLabels,
}

/// What a registry answers from now on, to calls of its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryAnswer {
    /// What it has.
    Usual,
    /// That a login is missing, is wrong or has expired.
    Closed,
    /// That it has no such repository, to those without a login, as a denial.
    Hidden,
    /// Nothing: nobody can connect to it.
    Gone,
    /// Nothing, as long as one waits.
    Silence,
    /// That it has failed.
    Failure,
    /// That there were too many calls, and the time to be left alone for, if it names one.
    Busy(Option<Duration>),
    /// Documents that have other digests than they should.
    OtherDigest,
    /// Documents that end early.
    CutOff,
    /// Documents without an end.
    Endless,
}

/// A reader of registries, and a registry of the test's that it reads.
#[async_trait]
pub trait Registries: Send + Sync {
    /// The reader.
    fn registry(&self) -> Arc<dyn Registry>;

    /// The environment that asks.
    fn environment(&self) -> Namespace {
        crate::samples::app("shop", "test", "api").id.namespace
    }

    /// A repository that is not there until something is pushed to it, without a tag.
    fn repository(&self) -> ImageRef;

    /// Pushes an image, to which the tag points from now on, whatever the registry answers to its reader. Returns its digest
    /// and its media type.
    async fn push(&self, repository: &ImageRef, tag: &Tag, sample: &ImageSample) -> Can<(Digest, String)>;

    /// Has the registry answer so.
    async fn answer(&self, answer: RegistryAnswer) -> Can;

    /// Waits for this long, by the reader's clock.
    async fn sleep(&self, time: Duration);
}
