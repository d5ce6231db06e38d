//! Events that are known by their members: those of Docker Hub ("Webhooks"), Harbor ("Configure Webhook
//! Notifications"), Quay ("Repository Notifications") and Azure's registry.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    ACR, DOCKER_HUB, HARBOR, IMAGES_MAX, QUAY, RegistryEvent, given, notifications::Notification, posted_image,
};
use crate::{bounded::Bounded, field::PostedText, object};

/// The members by which the events differ from each other and from a call of CI.
#[derive(Deserialize)]
struct Members {
    image: Option<IgnoredAny>,
    commit: Option<IgnoredAny>,
    push_data: Option<IgnoredAny>,
    #[serde(rename = "type")]
    kind: Option<IgnoredAny>,
    event_data: Option<IgnoredAny>,
    docker_url: Option<IgnoredAny>,
    repository: Option<IgnoredAny>,
    action: Option<IgnoredAny>,
    id: Option<IgnoredAny>,
    timestamp: Option<IgnoredAny>,
}

/// An event of Docker Hub: always a push. Its `callback_url` is never called.
#[derive(Deserialize)]
struct DockerHub {
    push_data: PushData,
    repository: DockerHubRepository,
}

#[derive(Deserialize)]
struct PushData {
    #[serde(default)]
    tag: PostedText,
}

#[derive(Deserialize)]
struct DockerHubRepository {
    #[serde(default)]
    repo_name: PostedText,
}

/// An event of Harbor. As a CloudEvent, it has its data under another name, and its types have others.
#[derive(Deserialize)]
struct Harbor {
    #[serde(default, rename = "type")]
    kind: PostedText,
    #[serde(alias = "data")]
    event_data: Option<HarborData>,
}

#[derive(Deserialize)]
struct HarborData {
    #[serde(default = "Bounded::none")]
    resources: Bounded<HarborResource, IMAGES_MAX>,
    repository: Option<HarborRepository>,
}

#[derive(Deserialize)]
struct HarborResource {
    /// The digest, if the artifact has no tag.
    #[serde(default)]
    tag: PostedText,
}

#[derive(Deserialize)]
struct HarborRepository {
    #[serde(default)]
    repo_full_name: PostedText,
}

/// An event of Quay. That of a push is the one with tags.
#[derive(Deserialize)]
struct Quay {
    #[serde(default)]
    repository: PostedText,
    #[serde(default)]
    updated_tags: Tags,
}

/// The names of tags. Quay sends a list; older versions of it an object of tags with their images.
#[derive(Default)]
struct Tags(Vec<PostedText>);

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TagNames)
    }
}

struct TagNames;

impl<'de> Visitor<'de> for TagNames {
    type Value = Tags;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tags, or an object of them")
    }

    fn visit_unit<E>(self) -> Result<Tags, E> {
        Ok(Tags::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tags, A::Error> {
        let mut tags = Vec::new();
        while let Some(tag) = list.next_element()? {
            if tags.len() < IMAGES_MAX {
                tags.push(tag);
            }
        }
        Ok(Tags(tags))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Tags, A::Error> {
        let mut tags = Vec::new();
        while let Some((tag, IgnoredAny)) = object.next_entry()? {
            if tags.len() < IMAGES_MAX {
                tags.push(PostedText::Text(tag));
            }
        }
        Ok(Tags(tags))
    }
}

/// Returns the event, if the members are those of one and its parts can be read.
pub(super) fn event(body: &[u8]) -> Option<RegistryEvent> {
    let has: Members = object(body).ok()?;
    if has.image.is_some() || has.commit.is_some() {
        return None;
    }
    if has.push_data.is_some() && has.repository.is_some() {
        return docker_hub(body);
    }
    if has.event_data.is_some() && has.kind.is_some() {
        return harbor(body);
    }
    if has.docker_url.is_some() && has.repository.is_some() {
        return quay(body);
    }
    let is_notification = has.action.is_some() && has.id.is_some() && has.timestamp.is_some();
    if is_notification { notification(body) } else { None }
}

/// Returns the event, if it is one of Harbor.
pub(super) fn cloud_event(body: &[u8]) -> Option<RegistryEvent> {
    let sent: Harbor = read(body)?;
    given(&sent.kind)?.starts_with("harbor.").then(|| sent.event())
}

fn docker_hub(body: &[u8]) -> Option<RegistryEvent> {
    let DockerHub { push_data, repository } = read(body)?;
    Some(RegistryEvent::new(DOCKER_HUB, [posted_image(&repository.repo_name, &push_data.tag)]))
}

fn harbor(body: &[u8]) -> Option<RegistryEvent> {
    read(body).map(|sent: Harbor| sent.event())
}

impl Harbor {
    fn event(&self) -> RegistryEvent {
        let is_push = matches!(given(&self.kind), Some("PUSH_ARTIFACT" | "harbor.artifact.pushed"));
        let data = self.event_data.as_ref().filter(|_| is_push);
        let images = data.and_then(|data| Some((data.repository.as_ref()?, &data.resources))).into_iter().flat_map(
            |(repository, resources)| {
                let tags = resources.elements.iter().map(|resource| &resource.tag);
                tags.map(|tag| posted_image(&repository.repo_full_name, tag))
            },
        );
        RegistryEvent::new(HARBOR, images)
    }
}

fn quay(body: &[u8]) -> Option<RegistryEvent> {
    let Quay { repository, updated_tags } = read(body)?;
    Some(RegistryEvent::new(QUAY, updated_tags.0.iter().map(|tag| posted_image(&repository, tag))))
}

/// Returns the event of Azure's registry.
fn notification(body: &[u8]) -> Option<RegistryEvent> {
    let sent: Notification = read(body)?;
    Some(RegistryEvent::new(ACR, [sent.image()]))
}

/// Returns the parts of an event; `None` if the call is something else after all.
fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    object(body).ok()
}
