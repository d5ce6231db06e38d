//! An image at its registry.

use rollhook_core::service::LookedUpImage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ImageLabels;

/// What a registry has of an image at the time of the look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// The reference that was looked up.
    pub image: String,
    /// The digest that it means: of an image for several platforms that of its index.
    pub digest: String,
    /// The media type of what has the digest; absent if the registry names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The platforms that the image is for, such as `linux/amd64`; empty if it names none.
    pub platforms: Vec<String>,
    /// The labels of the image.
    #[serde(flatten)]
    pub labels: ImageLabels,
}

impl Image {
    /// Returns the answer for an image that was found.
    pub fn of(found: LookedUpImage) -> Self {
        let resolved = found.resolved;
        Self {
            image: found.image.to_string(),
            digest: resolved.digest.to_string(),
            media_type: Some(resolved.media_type).filter(|media_type| !media_type.is_empty()),
            platforms: resolved.platforms.iter().map(ToString::to_string).collect(),
            labels: resolved.labels.into(),
        }
    }
}
