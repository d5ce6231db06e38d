//! Drift: what others changed on a target since a deploy.

use crate::image::ImageRef;

/// The difference between a target and the deploy that it was brought to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The image that the target is set to instead; `None` if that is the deploy's, or unknown, or the target is gone.
    pub image: Option<ImageRef>,
    /// The change, and its author where known, in a sentence that a person can act on.
    pub message: String,
}
