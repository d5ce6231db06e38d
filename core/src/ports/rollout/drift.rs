//! Drift: what others changed on a target since a deploy.

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::RolloutSpec;
use crate::{app::AppUid, error::Result, image::ImageRef};

/// The difference between a target and the deploy that it was brought to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The image that the target is set to instead; `None` if that is the deploy's, or unknown, or the target is gone.
    pub image: Option<ImageRef>,
    /// The change, and its author where known, in a sentence that a person can act on.
    pub message: String,
}

/// Compares targets at rest with their deploys: the part of a [`RolloutDriver`](super::RolloutDriver) whose platform
/// can tell what others change.
///
/// - `drift_is_told_until_the_next_deploy`: after another party changed a target's image, `drift` returns the image, and
///   changes nothing; a further deploy of the image from before is applied, and ends it. A hint comes with the change.
#[async_trait]
pub trait DriftReader: Send + Sync {
    /// Returns what others changed on the target since it was brought to this deploy, the newest, which has succeeded or
    /// ended by just that change; `None`: nothing.
    ///
    /// Called when an app is shown, and for each app once and after each hint of
    /// [`drift_changes`](Self::drift_changes), so that a driver answers from memory where it can. Has no effect.
    async fn drift(&self, spec: &RolloutSpec) -> Result<Option<Drift>>;

    /// Returns hints of apps whose [`drift`](Self::drift) may be another than it was when it was asked last.
    ///
    /// Called once; a second call may get no hints. A hint may be superfluous; one that is missing lets a change be
    /// noticed late.
    fn drift_changes(&self) -> BoxStream<'static, AppUid>;
}
