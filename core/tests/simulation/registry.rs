//! The registry of images that all replicas ask, and a replica's way to it.

use std::sync::{Mutex, atomic::Ordering};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::Namespace,
    error::Entity,
    image::ImageRef,
    ports::{Registry, Resolved, TagPage, TagQuery},
};

use crate::{broken::Promise, polling::RecordedReads, recording_ports::RecordingPorts};

/// How the registry answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// With the bits that the cluster would run.
    #[default]
    Well,
    /// That its login is refused.
    Denied,
    /// Not at all.
    Away,
}

/// The registry.
#[derive(Default)]
pub(crate) struct SharedRegistry(Mutex<Reading>);

impl SharedRegistry {
    /// Returns `Ok` if it answers with what it has.
    pub(crate) fn answers(&self) -> Result<()> {
        match *self.0.lock().unwrap() {
            Reading::Well => Ok(()),
            Reading::Denied => Err(Error::Denied { what: "the registry lets nobody read".to_owned(), cause: None }),
            Reading::Away => Err(Error::unavailable("the registry", "no answer")),
        }
    }

    pub(crate) fn set(&self, reading: Reading) {
        *self.0.lock().unwrap() = reading;
    }
}

#[async_trait]
impl Registry for RecordingPorts {
    async fn resolve(&self, _: &Namespace, image: &ImageRef) -> Result<Resolved> {
        let answer = self.environment.registry.answers().and_then(|()| {
            if image.tag() == Some("missing") {
                return Err(Error::NotFound(Entity::Image));
            }
            let digest = self.environment.cluster.digest(image);
            self.environment.rules.lock().unwrap().names(image, &digest);
            Ok(Resolved::new(digest, "application/vnd.oci.image.index.v1+json"))
        });
        self.log_answer(&format!("resolve {image}"), &answer);
        answer
    }

    async fn tags(&self, _: &Namespace, repository: &ImageRef, _: &TagQuery) -> Result<TagPage> {
        let mut tags = self.environment.rules.lock().unwrap().published.tags();
        if self.environment.promise == Some(Promise::NewestByAlphabet) {
            tags = tags.into_iter().max().into_iter().collect();
        }
        let answer = self.environment.registry.answers().map(|()| TagPage { tags, next: None });
        self.log_answer(&format!("tags of {repository}"), &answer);
        answer
    }
}

#[async_trait]
impl Registry for RecordedReads {
    async fn resolve(&self, environment: &Namespace, image: &ImageRef) -> Result<Resolved> {
        let answer = self.inner.resolve(environment, image).await;
        self.is_missing.fetch_or(matches!(answer, Err(Error::NotFound(_))), Ordering::Relaxed);
        answer
    }

    async fn tags(&self, environment: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
        let RecordingPorts { environment: all, life, .. } = &*self.recording_ports;
        let moment = all.moment().own;
        if self.is_missing.swap(false, Ordering::Relaxed) {
            return self.inner.tags(environment, repository, query).await;
        }
        all.rules.lock().unwrap().reads_tags(life, environment, moment, &all.journal);
        self.inner.tags(environment, repository, query).await
    }
}
