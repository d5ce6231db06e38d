//! The logins with which the platform of the apps pulls images.

use std::fmt;

use async_trait::async_trait;
use rollhook_core::{Result, app::Namespace, image::ImageRef};

use crate::Logins;

/// Returns the logins with which the platform of the apps pulls images, such as those of a cluster's pull secrets.
#[async_trait]
pub trait PlatformLogins: fmt::Debug + Send + Sync {
    /// Returns the logins with which an environment's apps may pull an image, those of the apps that run an image of the same
    /// repository first; empty if there are none, or the platform shows none.
    ///
    /// # Errors
    /// If the platform cannot be asked.
    async fn logins(&self, environment: &Namespace, image: &ImageRef) -> Result<Vec<Logins>>;
}
