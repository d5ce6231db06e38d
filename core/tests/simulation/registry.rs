//! The registry of images that all replicas ask, and a replica's way to it.

use std::sync::Mutex;

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::Namespace,
    error::Entity,
    image::ImageRef,
    ports::{Registry, Resolved, TagPage, TagQuery},
};

use crate::{broken::Promise, recording_ports::RecordingPorts};

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
    pub(crate) fn set(&self, reading: Reading) {
        *self.0.lock().unwrap() = reading;
    }
}

#[async_trait]
impl Registry for RecordingPorts {
    async fn resolve(&self, _: &Namespace, image: &ImageRef) -> Result<Resolved> {
        let reading = *self.environment.registry.0.lock().unwrap();
        let answer = match reading {
            Reading::Away => Err(Error::unavailable("the registry", "no answer")),
            Reading::Denied => Err(Error::Denied { what: "the registry lets nobody read".to_owned(), cause: None }),
            Reading::Well if image.tag() == Some("missing") => Err(Error::NotFound(Entity::Image)),
            Reading::Well => {
                let digest = self.environment.cluster.digest(image);
                self.environment.rules.lock().unwrap().names(image, &digest);
                Ok(Resolved::new(digest, "application/vnd.oci.image.index.v1+json"))
            }
        };
        self.log_answer(&format!("resolve {image}"), &answer);
        answer
    }

    async fn tags(&self, environment: &Namespace, repository: &ImageRef, _: &TagQuery) -> Result<TagPage> {
        let reading = *self.environment.registry.0.lock().unwrap();
        let moment = self.environment.moment().own;
        let rules = self.environment.rules.lock().unwrap();
        rules.reads_tags(&self.life, environment, moment, &self.environment.journal);
        let answer = match reading {
            Reading::Away => Err(Error::unavailable("the registry", "no answer")),
            Reading::Denied => Err(Error::Denied { what: "the registry lets nobody read".to_owned(), cause: None }),
            Reading::Well => {
                let mut tags = rules.published.tags();
                if self.environment.promise == Some(Promise::NewestByNumber) {
                    tags = tags.into_iter().max().into_iter().collect();
                }
                Ok(TagPage { tags, next: None })
            }
        };
        drop(rules);
        self.log_answer(&format!("tags of {repository}"), &answer);
        answer
    }
}
