//! A driver that discards the image of what runs.

use async_trait::async_trait;
use rollhook_core::{Result, app::App, disk::DiskSpace, image::ImageRef, ports::StoredImages};

use crate::driver::{Broken, Promise};

#[async_trait]
impl StoredImages for Broken {
    fn stored_versions(&self) -> Option<usize> {
        None
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
