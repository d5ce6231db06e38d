//! Reads of the history: an app as decisions need it, and pages.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision, Status},
    ports::{Page, View},
};

use super::{
    KubernetesStore,
    calls::list,
    codec,
    crd::{DeployObject, UID_LABEL},
    load::{Depth, Loaded, as_it_ended},
};

/// Entries that are read at the same time.
const AT_ONCE: usize = 8;
/// More entries than this are read by one list.
const ONE_BY_ONE: usize = 40;

impl KubernetesStore {
    pub(crate) async fn read_view(&self, uid: AppUid) -> Result<View> {
        let loaded = self.load(uid, Depth::All).await?;
        let head = &loaded.head;
        let mut unfinished = Vec::with_capacity(head.open.len());
        for revision in head.open.keys() {
            unfinished.push(self.entry(&loaded, *revision).await?);
        }
        let current = self.maybe(&loaded, head.current).await?;
        let on_cluster = match head.on_cluster() {
            same if same == head.current => current.clone(),
            other => self.maybe(&loaded, other).await?,
        };
        let mut app = codec::app(&loaded.app)?;
        (app.holds, app.guard) = (head.holds.clone(), head.guard);
        let now = head.time(self.clock.now());
        Ok(View { now, app, last: loaded.last(), unfinished, current, on_cluster, last_restore: head.last_restore })
    }

    async fn maybe(&self, loaded: &Loaded, revision: Option<Revision>) -> Result<Option<Deploy>> {
        match revision {
            Some(revision) => self.entry(loaded, revision).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn read_page(&self, uid: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let loaded = match self.load(uid, Depth::All).await {
            Err(Error::NotFound(_)) => return Ok(Vec::new()),
            loaded => loaded?,
        };
        let wanted = self.candidates(&loaded, page);
        let mut found: Vec<Deploy> = if wanted.len().min(page.limit) > ONE_BY_ONE {
            self.listed(&loaded, &wanted).await?
        } else {
            let reads: Vec<BoxFuture<'_, Result<Option<Deploy>>>> =
                wanted.iter().map(|revision| self.find_entry(&loaded, *revision).boxed()).collect();
            let mut entries = stream::iter(reads).buffered(AT_ONCE);
            let mut found = Vec::new();
            while let Some(entry) = entries.next().await {
                found.extend(entry?.filter(|entry| fits(entry, page)));
                if found.len() == page.limit {
                    break;
                }
            }
            found
        };
        found.retain(|entry| fits(entry, page));
        found.truncate(page.limit);
        Ok(found)
    }

    /// The revisions that may be of the page, newest first: those that are known to have ended otherwise are left out.
    fn candidates(&self, loaded: &Loaded, page: Page) -> Vec<Revision> {
        let below = page.before.map_or(u64::MAX, Revision::get);
        let ended_otherwise = |status: &str| {
            codec::value::<Status>(&status.into(), String::new)
                .is_ok_and(|status| status.is_terminal() && status != Status::Succeeded)
        };
        self.mirror.entries(loaded.uid, |(revision, known)| {
            let fits = *revision <= loaded.head.folded && *revision < below;
            let skipped = page.succeeded && ended_otherwise(&known.status);
            Revision::new(*revision).filter(|_| fits && !skipped)
        })
    }

    /// The entries of these revisions, newest first, read at once.
    async fn listed(&self, loaded: &Loaded, wanted: &[Revision]) -> Result<Vec<Deploy>> {
        let selector = format!("{UID_LABEL}={}", loaded.uid);
        let objects: Vec<DeployObject> = list(&self.calls.deploys(&loaded.namespace()), Some(&selector)).await?;
        let wanted: BTreeSet<Revision> = wanted.iter().copied().collect();
        let mut entries = BTreeMap::new();
        for object in objects {
            let Some(revision) = Revision::new(object.spec.revision).filter(|revision| wanted.contains(revision))
            else {
                continue;
            };
            let entry = match loaded.head.state(revision) {
                Some(state) => codec::accepted(&object)?.with(state),
                None => as_it_ended(&object)?,
            };
            entries.insert(revision, entry);
        }
        Ok(entries.into_values().rev().collect())
    }
}

fn fits(entry: &Deploy, page: Page) -> bool {
    !page.succeeded || entry.status() == Status::Succeeded
}
