//! The care of stored images, and of the disk that they are stored on.

use async_trait::async_trait;

use crate::{app::App, disk::DiskSpace, error::Result, image::ImageRef};

/// The images that a [`RolloutDriver`](super::RolloutDriver) has stored, such as those of a machine's container engine.
///
/// - `has_says_what_is_stored`: an image that was rolled out is, by its digest, and one that cannot be fetched is not.
/// - `discard_changes_nothing_that_runs`: no target, instance or deploy id is touched.
#[async_trait]
pub trait StoredImages: Send + Sync {
    /// Returns how many versions of each app the driver is to store images of, so that rollbacks need no registry;
    /// `None`: it drops none.
    fn stored_versions(&self) -> Option<usize>;

    /// Returns whether this image is run as it is stored, without a look at its registry: it was made on the machine, or is named by
    /// its digest.
    async fn has(&self, image: &ImageRef) -> Result<bool>;

    /// Names images of the app's deploys, by digest, that no app runs and no app's rollback needs within
    /// [`stored_versions`](Self::stored_versions), so that the driver can drop them.
    ///
    /// Called after a deploy has succeeded, often with images that were named before. An image that something else uses,
    /// or that came here in another way, stays. A failure is logged.
    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()>;

    /// Returns the space of the disk that images are stored on, which operators are told of before it runs out; `None`:
    /// the disk is not the driver's own to care for.
    ///
    /// Called about twice a minute. A failure is logged, once.
    async fn disk_space(&self) -> Result<Option<DiskSpace>>;
}
