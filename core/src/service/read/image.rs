//! A look at what a registry has of an image.

use std::time::Duration;

use super::nearest_tags::nearest;
use crate::{
    action::Action,
    app::{AppId, Namespace},
    error::{Entity, Error, Result},
    image::{ImageRef, Tag},
    ports::{Page, Registry, Resolved},
    request::{Field, Refusal},
    service::{
        Authorized, Deployer, Outcome,
        in_time::in_time,
        tags::{self, ReadTags, TagBounds},
    },
};

/// The longest time in which a registry names an image.
const RESOLVE_TIME: Duration = Duration::from_secs(20);
/// The longest time in which it lists its tags: they are a comfort, which the answer does not wait long for.
const TAGS_TIME: Duration = Duration::from_secs(5);
/// The tags that are compared with a missing one; registries choose how long a page is.
const COMPARED: TagBounds = TagBounds { tags: 1_000, pages: 4 };
/// The number of entries of a history among which an image is looked for.
const ENTRIES: usize = 50;

/// An image at its registry, at the time of the look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedUpImage {
    /// The reference that was looked up; with neither a tag nor a digest given, that of `latest`.
    pub image: ImageRef,
    /// The image that it means.
    pub resolved: Resolved,
}

impl Deployer {
    /// Returns what the registry has of an image, read with the login that the app's environment may use. Nothing is
    /// recorded, and no deploy depends on it.
    ///
    /// # Errors
    /// [`Refusal::ImageNotFound`], with the nearest tags of a missing one; [`Refusal::RegistryDenied`];
    /// [`Refusal::RegistryUnavailable`]; [`Refusal::InvalidField`] if the image cannot be read at its registry;
    /// [`Refusal::NoRegistry`] if this process reads none.
    pub async fn look_up_image(&self, access: &Authorized, image: &ImageRef) -> Outcome<LookedUpImage> {
        access.check(Action::Deploy)?;
        let image = image.clone().or_latest();
        let resolved = self.read_image(&access.id, &image, RESOLVE_TIME).await?;
        Ok(LookedUpImage { image, resolved })
    }

    /// Returns what the registry has of an image for an app, if it answers within this time.
    pub(crate) async fn read_image(&self, app: &AppId, image: &ImageRef, time: Duration) -> Outcome<Resolved> {
        let registry = self.ports.registry.as_deref().ok_or(Refusal::NoRegistry)?;
        let environment = &app.namespace;
        let error = match self.answered(time, registry.resolve(environment, image)).await {
            Ok(resolved) => return Ok(resolved),
            Err(error) => error,
        };
        tracing::debug!(%app, %image, error = %error.chain(), "reading an image at its registry failed");
        let tag = image.tag().filter(|_| image.digest().is_none());
        let nearest = match (&error, tag) {
            (Error::NotFound(entity), Some(tag)) if *entity != Entity::Repository => {
                // Without them, the answer is still that the image is missing.
                let tags = self.answered(TAGS_TIME, some_tags(registry, environment, image)).await;
                nearest(tag, tags.unwrap_or_default())
            }
            _ => Vec::new(),
        };
        Err(unread(image.clone(), nearest, error))
    }

    /// Returns the image of the app's newest deploy that has one: what is looked up where no image is named.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] if no deploy of late has one; as [`Deployer::history`].
    pub async fn newest_image(&self, access: &Authorized) -> Outcome<ImageRef> {
        let (_, deploys) = self.history(access, Page::newest(ENTRIES)).await?;
        let image = deploys.into_iter().find_map(|deploy| deploy.image);
        image.ok_or_else(|| {
            Refusal::InvalidField(Field::Image, "no deploy of this app has an image yet; name one.".to_owned())
        })
    }

    /// Returns a registry's answer, if it comes in time.
    async fn answered<T>(&self, time: Duration, answer: impl Future<Output = Result<T>>) -> Result<T> {
        in_time(&*self.ports.clock, time, answer).await.unwrap_or_else(|| {
            Err(Error::Unavailable { what: "the registry has not answered in time".to_owned(), cause: None })
        })
    }
}

/// Returns the first tags of an image's repository.
async fn some_tags(registry: &dyn Registry, environment: &Namespace, image: &ImageRef) -> Result<Vec<Tag>> {
    let ReadTags { mut tags, are_all } = tags::read(registry, environment, image, COMPARED).await;
    tags.truncate(COMPARED.tags);
    match are_all {
        Err(error) if tags.is_empty() => Err(error),
        // What was read before is worth having.
        Ok(_) | Err(_) => Ok(tags),
    }
}

/// Returns the refusal for an image that its registry does not show.
pub(super) fn unread(image: ImageRef, nearest: Vec<Tag>, error: Error) -> Refusal {
    let host = image.registry();
    match error {
        Error::NotFound(entity) => {
            Refusal::ImageNotFound { image, repository_missing: entity == Entity::Repository, nearest }
        }
        Error::Denied { .. } => Refusal::RegistryDenied(host),
        Error::Invalid { what, .. } => Refusal::InvalidField(Field::Image, format!("{what}.")),
        Error::Unavailable { ref what, .. } | Error::Corrupt { ref what, .. } => {
            Refusal::RegistryUnavailable { host, why: what.clone(), retry_after: error.retry_after() }
        }
        Error::Conflict(_) => {
            Refusal::RegistryUnavailable { host, why: "it changed meanwhile".to_owned(), retry_after: None }
        }
    }
}
