//! Forgets archived deploys that nothing depends on any more, and the images of old versions.

use std::{pin::pin, sync::Arc};

use futures_util::{StreamExt, TryStreamExt};

use crate::{
    app::App,
    deploy::Deploy,
    error::Result,
    ledger::{AppState, retention},
    ports::{Page, StoredImages},
    service::{Deployer, journal::Decision},
};

/// Deploys per page while the archive is read.
const PAGE: usize = 200;
/// The most deploys that one commit forgets.
const AT_ONCE: usize = 100;

impl Deployer {
    /// Runs retention if enough deploys were archived; a failure is logged, and the next run makes up for it.
    pub(crate) async fn retain(&self, state: &Arc<AppState>) {
        if !retention::is_due(state) {
            return;
        }
        if let Err(error) = self.forget_surplus(&state.app).await {
            tracing::warn!(app = %state.app.id, error = %error.chain(), "forgetting old deploys failed");
        }
    }

    async fn forget_surplus(&self, app: &Arc<App>) -> Result<()> {
        let mut archived: Vec<Deploy> = Vec::new();
        loop {
            let before = archived.last().map(|deploy| deploy.revision);
            let page = Page { before, succeeded: false, limit: PAGE };
            let older = self.ports.history.page(app.uid, page).await?;
            let last = older.len() < PAGE;
            archived.extend(older);
            if last {
                break;
            }
        }
        let forgotten = self.journal.update(app.uid, None, move |change, _, now| {
            let mut surplus = retention::surplus(&change.state, &archived, now);
            surplus.reverse();
            surplus.truncate(AT_ONCE);
            change.forget(surplus, now);
            Decision::Commit(())
        });
        forgotten.await.map(drop)
    }

    /// Has the driver drop the images that no rollback needs any more; a failure is logged, and the next success makes up
    /// for it.
    pub(crate) async fn discard_images(&self, state: &AppState) {
        let Some((stored, versions)) = self.stored_images() else { return };
        if let Err(error) = self.discard_surplus(state, stored, versions).await {
            tracing::warn!(app = %state.app.id, error = %error.chain(), "removing images of old versions failed");
        }
    }

    /// Has the driver drop the images that no rollback of any app needs any more, in place of waiting for each app's next
    /// success: for a disk with little space left.
    pub async fn discard_all_images(&self) {
        if self.stored_images().is_none() {
            return;
        }
        let mut pages = pin!(self.listed(None));
        while let Some(apps) = pages.next().await {
            let apps = match apps {
                Ok(apps) => apps,
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "removing images of old versions failed");
                    return;
                }
            };
            // The image that an unfinished deploy fetches may be old, and is not known by its digest yet.
            for state in apps.into_iter().flatten().filter(|state| state.unfinished.is_empty()) {
                self.discard_images(&state).await;
            }
        }
    }

    /// Returns the driver's images, and how many versions of each app it keeps; `None` if it drops none.
    fn stored_images(&self) -> Option<(&dyn StoredImages, usize)> {
        let stored = self.ports.rollouts.stored_images()?;
        Some((stored, stored.stored_versions()?))
    }

    async fn discard_surplus(&self, state: &AppState, stored: &dyn StoredImages, versions: usize) -> Result<()> {
        let archived = self.newest(state).await?;
        let mut needed = retention::needed_digests(state, &archived, versions);
        if retention::surplus_images(&archived, &needed).is_empty() {
            return Ok(());
        }
        // An image may be another app's too, such as one that it was promoted to.
        let mut pages = pin!(self.listed(None));
        while let Some(apps) = pages.try_next().await? {
            for listed in apps {
                // An app that cannot be read may need any image.
                let Ok(other) = listed else { return Ok(()) };
                let archived = self.newest(&other).await?;
                needed.extend(retention::needed_digests(&other, &archived, versions));
            }
        }
        let surplus = retention::surplus_images(&archived, &needed);
        if surplus.is_empty() { Ok(()) } else { stored.discard(&state.app, &surplus).await }
    }

    /// Returns the newest of an app's archived deploys.
    async fn newest(&self, state: &AppState) -> Result<Vec<Deploy>> {
        let page = Page { before: None, succeeded: false, limit: PAGE };
        self.ports.history.page(state.app.uid, page).await
    }
}
