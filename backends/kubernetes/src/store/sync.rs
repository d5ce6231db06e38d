//! Waits until what was seen has caught up with what is stored.

use std::time::Duration;

use kube::core::PartialObjectMeta;
use rollhook_core::Result;

use super::{
    KubernetesStore,
    api::list,
    app_record::{is_copy, version},
    crd::{AppObject, DeployObject},
};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);

impl KubernetesStore {
    /// Returns once the watches have brought everything that was written before the call, by any process; for callers that
    /// cannot ask again a moment later, such as tests.
    ///
    /// # Errors
    /// `Unavailable` and `Denied` as any read.
    pub async fn sync(&self) -> Result<()> {
        self.ready().await?;
        self.list_leases().await?;
        loop {
            let mut apps: Vec<AppObject> = list(&self.api.all(), None).await?;
            apps.retain(|app| !is_copy(app));
            let deploys: Vec<PartialObjectMeta<DeployObject>> = list(&self.api.all(), None).await?;
            let apps_seen = apps.iter().all(|app| self.mirror.app_version(&app.metadata) >= version(&app.metadata).ok());
            let deploys_seen = deploys.iter().all(|deploy| self.mirror.has_seen(&deploy.metadata));
            if apps_seen && deploys_seen && self.mirror.len() <= apps.len() {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
