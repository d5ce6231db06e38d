//! Has the driver drop the images of old versions, for rollout drivers that store images.
//!
//! An image may be another app's too, such as one that it was promoted to, so that all apps are read before one is dropped. One
//! such pass is under way at a time: apps that become due meanwhile wait, and share the next one.

use std::{
    collections::{BTreeSet, HashSet},
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, TryStreamExt, lock};

use crate::{
    app::{App, AppUid},
    deploy::Deploy,
    error::Result,
    image::{Digest, ImageRef},
    ledger::{AppState, retention},
    ports::{AppPage, AppRef, Page, StoredImages},
    service::Deployer,
};

/// The newest deploys of an app that are looked at.
const PAGE: usize = 200;

/// The apps that may have images of old versions, and the turn of the pass that drops them.
#[derive(Default)]
pub(crate) struct DueDiscards {
    apps: Mutex<BTreeSet<AppUid>>,
    turn: lock::Mutex<()>,
}

impl DueDiscards {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<AppUid>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deployer {
    /// Has the driver drop the images of these apps that no rollback needs any more, in one pass with those of other apps
    /// that are due; a failure is logged, and an app's next success makes up for it.
    pub(crate) async fn discard_images(&self, apps: impl IntoIterator<Item = AppUid>) {
        let Some((stored, versions)) = self.stored_images() else { return };
        self.due_discards.lock().extend(apps);
        let _turn = self.due_discards.turn.lock().await;
        let due = mem::take(&mut *self.due_discards.lock());
        // The pass that began last may have been theirs too.
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.discard_surplus(due, stored, versions).await {
            tracing::warn!(error = %error.chain(), "removing images of old versions failed");
        }
    }

    /// Has the driver drop the images that no rollback of any app needs any more, in place of waiting for each app's next
    /// success: for a disk with little space left.
    pub async fn discard_all_images(&self) {
        if self.stored_images().is_none() {
            return;
        }
        let mut pages = pin!(self.listed(AppPage::first(0)));
        while let Some(apps) = pages.next().await {
            match apps {
                Ok(apps) => self.discard_images(apps.into_iter().flatten().map(|state| state.app.uid)).await,
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "removing images of old versions failed");
                    return;
                }
            }
        }
    }

    /// Returns the driver's images, and how many versions of each app it keeps; `None` if it drops none.
    fn stored_images(&self) -> Option<(&dyn StoredImages, usize)> {
        let stored = self.ports.rollouts.stored_images()?;
        Some((stored, stored.stored_versions()?))
    }

    async fn discard_surplus(&self, due: BTreeSet<AppUid>, stored: &dyn StoredImages, versions: usize) -> Result<()> {
        let mut surplus = Vec::new();
        for app in due {
            surplus.extend(self.surplus_of(app, versions).await?);
        }
        if surplus.is_empty() {
            return Ok(());
        }
        let mut needed: HashSet<Digest> = HashSet::new();
        let mut pages = pin!(self.listed(AppPage::first(0)));
        while let Some(apps) = pages.try_next().await? {
            for listed in apps {
                // An app that cannot be read may need any image.
                let Ok(state) = listed else { return Ok(()) };
                let archived = self.newest(&state).await?;
                needed.extend(retention::needed_digests(&state, &archived, versions));
            }
        }
        for (app, mut images) in surplus {
            images.retain(|image| image.digest().is_some_and(|digest| !needed.contains(digest)));
            if images.is_empty() {
                continue;
            }
            if let Err(error) = stored.discard(&app, &images).await {
                tracing::warn!(app = %app.id, error = %error.chain(), "removing images of old versions failed");
            }
        }
        Ok(())
    }

    /// Returns the app and its images that it needs no more itself; `None` if it needs all, or is no more.
    async fn surplus_of(&self, app: AppUid, versions: usize) -> Result<Option<(Arc<App>, Vec<ImageRef>)>> {
        let Some(loaded) = self.ports.history.load(AppRef::Uid(app), None).await? else { return Ok(None) };
        let state = loaded.state;
        // The image that an unfinished deploy fetches may be old, and is not known by its digest yet.
        if !state.unfinished.is_empty() {
            return Ok(None);
        }
        let archived = self.newest(&state).await?;
        let images = retention::surplus_images(&archived, &retention::needed_digests(&state, &archived, versions));
        Ok((!images.is_empty()).then_some((state.app, images)))
    }

    /// Returns the newest of an app's archived deploys.
    async fn newest(&self, state: &AppState) -> Result<Vec<Deploy>> {
        let page = Page { before: None, succeeded: false, limit: PAGE };
        self.ports.history.page(state.app.uid, page).await
    }
}
