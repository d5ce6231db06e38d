//! The notifications of CNCF Distribution, which others send in its form: Azure's registry one at a time, GitLab's as
//! they are.
//!
//! "Work with notifications" in Distribution's documentation; "Azure Container Registry webhook reference".

use rollhook_core::follow::PushedImage;
use serde::Deserialize;

use super::{DISTRIBUTION, IMAGES_MAX, RegistryEvent, given, posted_image};
use crate::{Error, bounded::Bounded, field::PostedText, object};

/// The begin of the body's type. The registry sends `…events.v1+json`; its documentation names version 2 as well.
pub(super) const TYPE: &str = "application/vnd.docker.distribution.events.";

/// The begins of the types of manifests and their lists. Layers and configurations are notified as well.
const MANIFESTS: [&str; 3] = [
    "application/vnd.docker.distribution.manifest.",
    "application/vnd.oci.image.manifest.",
    "application/vnd.oci.image.index.",
];

#[derive(Deserialize)]
struct Envelope {
    #[serde(default = "Bounded::none")]
    events: Bounded<Notification, IMAGES_MAX>,
}

/// One notification.
#[derive(Deserialize)]
pub(super) struct Notification {
    /// Such as `push`, `pull`, `mount` and `delete`; `ping`, where Azure's webhooks are tested.
    #[serde(default)]
    action: PostedText,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    /// Missing where something was deleted.
    #[serde(default, rename = "mediaType")]
    media_type: PostedText,
    #[serde(default)]
    repository: PostedText,
    /// Missing where a manifest was pushed by its digest.
    #[serde(default)]
    tag: PostedText,
}

impl Notification {
    /// Returns the image, if a manifest was pushed.
    pub(super) fn image(&self) -> Option<PushedImage> {
        let target = self.target.as_ref().filter(|_| given(&self.action) == Some("push"))?;
        let media_type = given(&target.media_type)?;
        let is_manifest = MANIFESTS.iter().any(|manifest| media_type.starts_with(manifest));
        is_manifest.then(|| posted_image(&target.repository, &target.tag)).flatten()
    }
}

/// Returns the event of an envelope.
pub(super) fn events(body: &[u8]) -> Result<RegistryEvent, Error> {
    let Envelope { events } = object(body)?;
    Ok(RegistryEvent::new(DISTRIBUTION, events.elements.iter().map(Notification::image)))
}
