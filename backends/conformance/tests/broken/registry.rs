//! A registry's reader that breaks one promise each, and the case that notices.

use std::{
    collections::BTreeMap,
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, ImageSample, Registries, RegistryAnswer, block_on, registry};
use rollhook_core::{
    Error, Result,
    app::Namespace,
    error::Entity,
    image::{Digest, ImageLabels, ImageRef, Platform, Tag},
    ports::{Registry, Resolved, TagPage, TagQuery},
};

use crate::{assert_panics, simulated_registry::SimulatedImages};

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegistryPromise {
    /// All of them are kept.
    Kept,
    /// What is not what it says is no image: here it is taken for the last one.
    Verified,
    /// A missing image is not found: here the registry counts as away.
    MissingIsMissing,
    /// A missing repository is reported as one: here as a missing image.
    RepositoryIsMissing,
    /// Too many calls may pass: here the image counts as missing.
    BusyPasses,
    /// A registry that is busy names its time: here it is lost.
    BusyNamesItsTime,
    /// A list has all of its pages: here the first one is the last.
    ListIsWhole,
    /// A list ends: here its last page leads to the first one.
    ListEnds,
    /// A tag is read anew: here it is kept.
    TagIsReadAnew,
    /// The digest is the image: here the tag beside it is.
    DigestBeatsTag,
    /// An attestation is no platform: here it is one.
    PlatformsAreImages,
    /// Annotations and labels are read: here they are not.
    LabelsAreRead,
    /// A denial is one: here the repository counts as missing.
    DenialIsDenial,
    /// A call ends: here it waits as long as the registry is silent.
    CallsEnd,
}

struct Broken {
    promise: RegistryPromise,
    inner: Arc<dyn Registry>,
    last: Mutex<BTreeMap<String, Resolved>>,
}

impl Broken {
    fn error(&self, error: Error) -> Error {
        match (self.promise, error) {
            (RegistryPromise::MissingIsMissing, Error::NotFound(_)) => {
                Error::Unavailable { what: "404".to_owned(), cause: None }
            }
            (RegistryPromise::RepositoryIsMissing, Error::NotFound(_)) => Error::NotFound(Entity::Image),
            (RegistryPromise::BusyPasses, Error::Unavailable { .. }) => Error::NotFound(Entity::Image),
            (RegistryPromise::BusyNamesItsTime, Error::Unavailable { what, .. }) => {
                Error::Unavailable { what, cause: None }
            }
            (RegistryPromise::DenialIsDenial, Error::Denied { .. }) => Error::NotFound(Entity::Repository),
            (_, error) => error,
        }
    }
}

#[async_trait]
impl Registry for Broken {
    async fn resolve(&self, environment: &Namespace, image: &ImageRef) -> Result<Resolved> {
        let last = self.last.lock().unwrap().get(&image.to_string()).cloned();
        if let (RegistryPromise::TagIsReadAnew, Some(last)) = (self.promise, &last) {
            return Ok(last.clone());
        }
        let unpinned = image.clone().unpinned();
        let asked = if self.promise == RegistryPromise::DigestBeatsTag { &unpinned } else { image };
        let resolved = match self.inner.resolve(environment, asked).await {
            Err(Error::Corrupt { .. }) if self.promise == RegistryPromise::Verified => {
                let digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
                Resolved::new(digest, "application/vnd.oci.image.manifest.v1+json")
            }
            Err(error) if error.is_unavailable() && self.promise == RegistryPromise::CallsEnd => {
                future::pending().await
            }
            answer => answer.map_err(|error| self.error(error))?,
        };
        let resolved = resolved.with(|resolved| match self.promise {
            RegistryPromise::PlatformsAreImages => {
                resolved.platforms.extend(Platform::new("unknown", "unknown", None));
            }
            RegistryPromise::LabelsAreRead => resolved.labels = ImageLabels::default(),
            _ => {}
        });
        self.last.lock().unwrap().insert(image.to_string(), resolved.clone());
        Ok(resolved)
    }

    async fn tags(&self, environment: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
        let page = self.inner.tags(environment, repository, query).await.map_err(|error| self.error(error))?;
        Ok(match self.promise {
            RegistryPromise::ListIsWhole => TagPage { next: None, ..page },
            RegistryPromise::ListEnds => {
                let begin = rollhook_core::ports::TagCursor(String::new());
                TagPage { next: page.next.or(Some(begin)), ..page }
            }
            _ => page,
        })
    }
}

struct BrokenImages {
    promise: RegistryPromise,
    simulated: SimulatedImages,
    registry: Arc<Broken>,
}

impl BrokenImages {
    fn new(promise: RegistryPromise) -> Self {
        let simulated = SimulatedImages::fresh().unwrap();
        let registry = Broken { promise, inner: simulated.registry(), last: Mutex::default() };
        Self { promise, simulated, registry: Arc::new(registry) }
    }
}

#[async_trait]
impl Registries for BrokenImages {
    fn registry(&self) -> Arc<dyn Registry> {
        self.registry.clone()
    }

    fn repository(&self) -> ImageRef {
        self.simulated.repository()
    }

    async fn push(&self, repository: &ImageRef, tag: &Tag, sample: &ImageSample) -> Can<(Digest, String)> {
        self.simulated.push(repository, tag, sample).await
    }

    async fn answer(&self, answer: RegistryAnswer) -> Can {
        self.simulated.answer(answer).await
    }

    async fn sleep(&self, time: Duration) {
        self.simulated.sleep(time).await;
    }
}

/// Runs a case on a reader that breaks a promise, which must fail with these words, and on one that keeps them all.
fn registry_notices(promise: RegistryPromise, case: impl AsyncFn(&dyn Registries) -> Can, words: &str) {
    let kept = BrokenImages::new(RegistryPromise::Kept);
    assert_eq!(block_on(case(&kept)), Ok(()), "the reader itself keeps its promises");
    let broken = BrokenImages::new(promise);
    assert_panics(|| block_on(case(&broken)), &format!("{:?}", broken.promise), words);
}

#[test]
fn wrong_digest_that_is_accepted_is_noticed() {
    registry_notices(RegistryPromise::Verified, registry::wrong_answer_is_no_image, "is no image");
}

#[test]
fn missing_image_that_counts_as_away_is_noticed() {
    let promise = RegistryPromise::MissingIsMissing;
    registry_notices(promise, registry::missing_tag_is_not_found, "is missing");
    registry_notices(promise, registry::missing_repository_is_not_found, "the repository is missing");
}

#[test]
fn missing_repository_that_counts_as_an_image_is_noticed() {
    let promise = RegistryPromise::RepositoryIsMissing;
    registry_notices(promise, registry::missing_repository_is_not_found, "the repository is missing");
    registry_notices(promise, registry::tags_are_all_there, "there is no repository");
}

#[test]
fn too_many_calls_that_count_as_missing_are_noticed() {
    let case = registry::busy_is_unavailable_with_its_time;
    registry_notices(RegistryPromise::BusyPasses, case, "too many calls may pass");
    registry_notices(RegistryPromise::BusyNamesItsTime, case, "the time that the registry asks for");
}

#[test]
fn list_of_one_page_is_noticed() {
    registry_notices(RegistryPromise::ListIsWhole, registry::tags_are_all_there, "all tags are there once");
}

#[test]
fn list_without_an_end_is_noticed() {
    registry_notices(RegistryPromise::ListEnds, registry::tags_are_all_there, "the list ends");
}

#[test]
fn tag_that_is_kept_is_noticed() {
    registry_notices(RegistryPromise::TagIsReadAnew, registry::resolve_follows_a_moved_tag, "the tag was moved");
}

#[test]
fn tag_that_beats_its_digest_is_noticed() {
    let case = registry::resolve_by_digest_is_that_image;
    registry_notices(RegistryPromise::DigestBeatsTag, case, "the digest is the image");
}

#[test]
fn attestation_that_counts_as_a_platform_is_noticed() {
    registry_notices(RegistryPromise::PlatformsAreImages, registry::resolve_names_the_platforms, "the platforms of");
}

#[test]
fn labels_that_are_not_read_are_noticed() {
    registry_notices(RegistryPromise::LabelsAreRead, registry::resolve_reads_the_labels, "the labels of");
}

#[test]
fn denial_that_counts_as_missing_is_noticed() {
    registry_notices(RegistryPromise::DenialIsDenial, registry::closed_repository_is_denied, "is a denial");
}

#[test]
fn call_without_an_end_is_noticed() {
    registry_notices(RegistryPromise::CallsEnd, registry::away_is_unavailable, "a call ends in time");
}
