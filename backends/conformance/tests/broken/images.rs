//! A driver that discards the image of what runs, or names what it has not stored.

use async_trait::async_trait;
use rollhook_core::{Result, app::App, disk::DiskSpace, image::ImageRef, ports::StoredImages};

use crate::driver::{Broken, Promise};

#[async_trait]
impl StoredImages for Broken {
    fn stored_versions(&self) -> Option<usize> {
        None
    }

    async fn has(&self, image: &ImageRef) -> Result<bool> {
        let is_missing = image.tag().is_some_and(|tag| tag.contains("missing"));
        Ok(!is_missing || self.promise == Promise::StoredIsThere)
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        if self.promise == Promise::DiscardedRuns
            && self.cluster.running(&app.id, &app.target).iter().any(|pod| images.contains(&pod.image))
        {
            self.cluster.scale(&app.id, &app.target, 0);
        }
        Ok(())
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        Ok(None)
    }
}
