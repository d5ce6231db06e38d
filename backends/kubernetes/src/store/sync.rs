//! Waits until what was seen has caught up with what is stored.

use std::time::Duration;

use rollhook_core::Result;

use super::{
    KubernetesStore,
    api::list,
    app_record::{is_copy, version},
    crd::AppObject,
};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);

impl KubernetesStore {
    /// Returns once everything is seen that was written before the call, by any process; for callers that cannot ask
    /// again a moment later, such as tests.
    ///
    /// # Errors
    /// `Unavailable` and `Denied` as any read.
    pub async fn sync(&self) -> Result<()> {
        self.ready().await?;
        self.list_leases().await?;
        let apps = loop {
            let mut stored: Vec<AppObject> = list(&self.api.all(), None).await?;
            stored.retain(|app| !is_copy(app));
            let is_seen = |app: &AppObject| self.cache.version(&app.metadata) >= version(&app.metadata).ok();
            let (seen, damaged) = self.cache.pick(|_| true);
            if stored.iter().all(is_seen) && seen.len() + damaged.len() <= stored.len() {
                break seen;
            }
            tokio::time::sleep(LOOK).await;
        };
        for record in apps {
            self.archive.complete(&record).await?;
        }
        #[cfg(feature = "management")]
        self.sync_records().await?;
        Ok(())
    }

    #[cfg(feature = "management")]
    async fn sync_records(&self) -> Result<()> {
        let seen = self.records.seen();
        seen.listed().await;
        loop {
            let stored: Vec<super::crd::RecordObject> = list(&self.api.own(), None).await?;
            let is_seen =
                |record: &super::crd::RecordObject| seen.version(&record.metadata) >= version(&record.metadata).ok();
            if stored.iter().all(is_seen) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
