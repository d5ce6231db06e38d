//! The events by which registries report that an image was pushed.
//!
//! An event is a hint that the registry is worth a look, and decides nothing: the registry is read all the same, and
//! what it then says counts. So an event is read with little trust, and what makes no sense in it is left out.
//!
//! GitHub, Gitea and Forgejo name the event in a header; CNCF Distribution, and Harbor in its second form, name it by
//! the body's type. The others send plain JSON, and are known by its members. A call of CI names an image or a commit
//! at the top, which no registry does: it is never taken for an event.
//!
//! GitLab's webhooks have no event for images. The registry of a GitLab of one's own sends the notifications of CNCF
//! Distribution, if its administrator names an endpoint (`registry['notifications']`); `registry.gitlab.com` sends
//! none.

mod json;
mod notifications;
mod package;
#[cfg(test)]
mod tests;

use http::{HeaderMap, header::CONTENT_TYPE};
use rollhook_core::{
    follow::PushedImage,
    image::{ImageRef, PATH_MAX},
};

use crate::{EVENTS, Error, Host, event, field::PostedText, payload};

/// The most images of one event.
pub(crate) const IMAGES_MAX: usize = 100;

/// The registries that can neither sign an event nor send a header with it.
const UNSIGNED: [&str; 2] = [DOCKER_HUB, QUAY];

const ACR: &str = "Azure Container Registry";
const DISTRIBUTION: &str = "CNCF Distribution";
const DOCKER_HUB: &str = "Docker Hub";
const FORGEJO: &str = "Forgejo";
const GHCR: &str = "GHCR";
const GITEA: &str = "Gitea";
const HARBOR: &str = "Harbor";
const QUAY: &str = "Quay";

/// An event of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEvent {
    /// The kind of the registry, by the name that people know it by.
    pub registry: &'static str,
    /// The images that were pushed, at most 100; none if the event is another one.
    pub images: Vec<PushedImage>,
}

impl RegistryEvent {
    /// Returns the event of these images. Those that no registry can have are left out.
    fn new(registry: &'static str, images: impl IntoIterator<Item = Option<PushedImage>>) -> Self {
        Self { registry, images: images.into_iter().flatten().take(IMAGES_MAX).collect() }
    }

    /// Returns whether the registry can neither sign an event nor send a header with it, so that its events come
    /// without a credential.
    pub fn is_unsigned(&self) -> bool {
        UNSIGNED.contains(&self.registry)
    }
}

/// Returns the image of this repository; `None` if the text is no repository's path. A text that is no tag is left out:
/// some registries write the digest in its place.
fn image(repository: &str, tag: Option<&str>) -> Option<PushedImage> {
    if repository.len() > PATH_MAX {
        return None;
    }
    let image: ImageRef = format!("registry.invalid/{repository}").parse().ok()?;
    let is_path = image.tag().is_none() && image.digest().is_none();
    let tag = tag.and_then(|tag| tag.parse().ok());
    is_path.then(|| PushedImage { repository: repository.to_owned(), tag })
}

/// Returns the image of these two fields of an event.
fn posted_image(repository: &PostedText, tag: &PostedText) -> Option<PushedImage> {
    image(given(repository)?, given(tag))
}

/// Returns the text of a field, unless it is empty.
fn given(posted: &PostedText) -> Option<&str> {
    match posted {
        PostedText::Text(text) if !text.is_empty() => Some(text),
        PostedText::Text(_) | PostedText::Absent | PostedText::Other => None,
    }
}

/// Returns the event of a registry, or `None` if the call is something else.
///
/// # Errors
/// [`Error`], if the call is an event's by its header or type, and cannot be read.
pub fn registry_event(headers: &HeaderMap, body: &[u8]) -> Result<Option<RegistryEvent>, Error> {
    if let Some((name, host)) = EVENTS.into_iter().find(|(name, _)| headers.contains_key(*name)) {
        let registry = match (host, event(headers, name)?) {
            (Host::Github, "package" | "registry_package") => GHCR,
            (Host::Gitea, "package") => GITEA,
            (Host::Forgejo, "package") => FORGEJO,
            _ => return Ok(None),
        };
        return package::event(registry, &payload(headers, body)?).map(Some);
    }
    match body_type(headers).as_deref() {
        Some("application/json") => Ok(json::event(body)),
        Some("application/cloudevents+json") => Ok(json::cloud_event(body)),
        Some(kind) if kind.starts_with(notifications::TYPE) => notifications::events(body).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Returns the type of the body without its parameters, in lower case; `None` if there are several.
fn body_type(headers: &HeaderMap) -> Option<String> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let given = types.next()?.to_str().ok()?;
    let essence = given.split(';').next().unwrap_or_default().trim();
    types.next().is_none().then(|| essence.to_ascii_lowercase())
}
