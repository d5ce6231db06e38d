//! The harness of the suite of signatures.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    image::ImageRef,
    ports::ImageVerifier,
    requirement::{Signer, TextPattern},
};

use crate::{registries::RegistryAnswer, report::Can};

/// A signature that a case makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedSample {
    /// A signature of the image.
    Signature,
    /// Provenance of SLSA that names the harness's builder.
    Provenance,
    /// A statement of another kind.
    OtherStatement,
    /// Something that looks like a signature and cannot be read.
    Unreadable,
}

/// A verifier, and signers of the test's with a registry.
#[async_trait]
pub trait Signings: Send + Sync {
    /// The verifier.
    fn verifier(&self) -> Arc<dyn ImageVerifier>;

    /// The environment that asks.
    fn environment(&self) -> Namespace {
        crate::samples::app("shop", "test", "api").id.namespace
    }

    /// The signers: each with one of its kind that signs nothing.
    fn signers(&self) -> Vec<(Signer, Signer)>;

    /// The builder that provenance names, and one that none names.
    fn builders(&self) -> (TextPattern, TextPattern);

    /// Pushes an image that is another one than all before, to this repository, and returns it with its digest.
    async fn push(&self, repository: &str) -> ImageRef;

    /// Has one of the signers sign an image, whatever the registry answers to the verifier.
    async fn sign(&self, signer: &Signer, image: &ImageRef, sample: SignedSample) -> Can;

    /// Has the signatures of an image lie beside another one of its repository as well.
    async fn copy(&self, from: &ImageRef, to: &ImageRef) -> Can;

    /// Has the registry answer so.
    async fn answer(&self, answer: RegistryAnswer) -> Can;

    /// Waits for this long, by the verifier's clock.
    async fn sleep(&self, time: Duration);
}
