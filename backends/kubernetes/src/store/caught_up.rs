//! Has what was seen catch up with what is stored.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use rollhook_core::{Result, app::AppUid};

use super::{
    KubernetesStore,
    calls::{REPLICA_SELECTOR, list},
    crd::{AppObject, DeployObject},
    version::version,
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

impl KubernetesStore {
    /// Returns once the watches have brought all that was written before the call, by whomever; for those who cannot
    /// ask again a moment later, such as tests.
    ///
    /// # Errors
    /// `Unavailable` and `Denied` as any read.
    pub async fn caught_up(&self) -> Result<()> {
        self.ready().await?;
        loop {
            let apps = list(&self.calls.all_apps(), None).await?;
            let deploys = list(&self.calls.all_deploys(), None).await?;
            let leases = list(&self.calls.leases(), Some(REPLICA_SELECTOR)).await?;
            let stored: BTreeSet<AppUid> = apps.iter().filter_map(|app| app.spec.uid.parse().ok()).collect();
            if self.mirror.apps().iter().all(|(uid, _)| stored.contains(uid))
                && self.mirror.leases().len() <= leases.len()
                && apps.iter().filter(|app| app.is_original()).all(|app| self.has_seen_app(app))
                && deploys.iter().filter(|entry| entry.is_original()).all(|entry| self.has_seen_entry(entry))
                && leases.iter().all(|lease| self.has_seen_lease(lease))
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn has_seen_app(&self, app: &AppObject) -> bool {
        let seen = app.spec.uid.parse().ok().and_then(|uid| self.mirror.app(uid));
        seen.is_some_and(|seen| version(&seen.metadata) >= version(&app.metadata))
    }

    fn has_seen_entry(&self, entry: &DeployObject) -> bool {
        let seen = entry.spec.app_uid.parse().ok().and_then(|uid| self.mirror.entry(uid, entry.spec.revision));
        seen.is_some_and(|seen| seen.version >= version(&entry.metadata))
    }

    fn has_seen_lease(&self, lease: &Lease) -> bool {
        let seen = self.mirror.lease(&lease.name_any());
        seen.is_some_and(|seen| version(&seen.lease.metadata) >= version(&lease.metadata))
    }
}
