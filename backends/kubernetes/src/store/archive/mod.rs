//! The archive: one `AppDeploy` per revision.
//!
//! An `AppDeploy` is created soon after the accept, and shows how the deploy stands: a copy for people. The end is
//! written for certain: an ended deploy stays in the `RollhookApp` until its `AppDeploy` tells its end. Each replica brings the
//! `AppDeploy`s of an app up to date after its own commits, and a while after those of others, which may have died.

mod object;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use kube::api::ObjectMeta;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision, Status},
    ports::Page,
};
use tokio::{
    sync::{Mutex as Turn, MutexGuard, Notify},
    time::Instant,
};

#[cfg(test)]
pub(crate) use self::object::of as object_of;
pub(crate) use self::task::OTHERS;
use super::{
    api::{ApiServer, Written, create, delete, delete_all, get, list_in_pages, replace},
    app_record::AppRecord,
    cache::Cache,
    crd::{DeployObject, UID_LABEL, deploy_name},
};
use crate::error::contended;

/// The most `AppDeploy`s that are read or written at the same time for one app.
const AT_ONCE: usize = 8;
/// The most `AppDeploy`s that are read one by one; more are read by one list.
const ONE_BY_ONE: usize = 40;
/// The most `AppDeploy`s that are held at once where a list is read: each may have some 100 KiB of evidence.
const LISTED: u32 = 50;
/// The number of locks that all apps share.
const TURNS: usize = 64;
/// The number of attempts to write an `AppDeploy` that others write at the same time.
const ATTEMPTS: usize = 5;

/// Reads and writes `AppDeploy`s.
pub(crate) struct Archive {
    api: ApiServer,
    cache: Arc<Cache>,
    /// The apps that are to be looked at, and when.
    due: Mutex<BTreeMap<AppUid, Instant>>,
    scheduled: Notify,
    /// The apps whose `AppDeploy`s are being written: a write that began before must not bring back what is removed.
    turns: [Turn<()>; TURNS],
}

impl Archive {
    pub(crate) fn new(api: ApiServer, cache: Arc<Cache>) -> Self {
        let turns = std::array::from_fn(|_| Turn::default());
        Self { api, cache, due: Mutex::default(), scheduled: Notify::new(), turns }
    }

    /// Writes each of the app's deploys whose `AppDeploy` does not tell its status yet, as the app is known now.
    pub(crate) async fn settle(&self, app: AppUid) -> Result<()> {
        let _turn = self.turn(app).await;
        let Some(record) = self.cache.app(app) else { return Ok(()) };
        let record = &record;
        let behind = record.deploys().filter(|deploy| !self.cache.shows(record.state.app.uid, deploy));
        let writes: Vec<BoxFuture<'_, Result<()>>> = behind.map(|deploy| self.write(record, deploy).boxed()).collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn write(&self, record: &AppRecord, deploy: &Deploy) -> Result<()> {
        let api = self.api.within::<DeployObject>(record.namespace());
        let mut stored = self.cache.unfinished(record.state.app.uid, deploy.revision);
        for _ in 0..ATTEMPTS {
            let written = match stored.take() {
                None => create(&api, &object::of(record, deploy, ObjectMeta::default())?).await?,
                Some(metadata) => replace(&api, &object::of(record, deploy, metadata)?).await?,
            };
            if let Written::Done(written) = written {
                self.cache.note_deploy(written.metadata, false);
                return Ok(());
            }
            let Some(found) = get(&api, &deploy_name(record.id().name.as_str(), deploy.revision.get())).await? else {
                continue;
            };
            if !object::is_of(record, &found.metadata) {
                // Left behind by an earlier app of this name.
                delete(&api, &found.metadata).await?;
                continue;
            }
            self.cache.note_deploy(found.metadata.clone(), false);
            if self.cache.shows(record.state.app.uid, deploy) {
                return Ok(());
            }
            stored = Some(found.metadata);
        }
        Err(contended())
    }

    /// Removes archived deploys. What is left after a failure is found again by the next look of retention.
    pub(crate) async fn forget(&self, record: &AppRecord, revisions: &[Revision]) {
        if revisions.is_empty() {
            return;
        }
        let _turn = self.turn(record.state.app.uid).await;
        let api = self.api.within::<DeployObject>(record.namespace());
        let name = |revision: Revision| Some(deploy_name(record.id().name.as_str(), revision.get()));
        let removals = revisions.iter().map(|revision| {
            let metadata = ObjectMeta { name: name(*revision), ..ObjectMeta::default() };
            let api = &api;
            async move {
                match delete(api, &metadata).await {
                    Ok(_) => self.cache.forget_deploy(record.state.app.uid, *revision),
                    Err(error) => {
                        tracing::debug!(app = %record.id(), %revision, error = %error.chain(), "removing a deploy failed");
                    }
                }
            }
            .boxed()
        });
        let removals: Vec<BoxFuture<'_, ()>> = removals.collect();
        stream::iter(removals).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Removes all of an app that was removed.
    pub(crate) async fn remove(&self, record: &AppRecord) -> Result<()> {
        let uid = record.state.app.uid;
        let _turn = self.turn(uid).await;
        delete_all(&self.api.within::<DeployObject>(record.namespace()), &format!("{UID_LABEL}={uid}")).await
    }

    async fn turn(&self, app: AppUid) -> MutexGuard<'_, ()> {
        self.turns[app.as_bits() as usize % TURNS].lock().await
    }

    /// Returns a part of the archive of an app as it was read, without logs.
    pub(crate) async fn page(&self, record: &AppRecord, page: Page) -> Result<Vec<Deploy>> {
        self.complete(record).await?;
        let archiving = &record.kept.archiving;
        let ended = archiving.iter().map(|deploy| (deploy.revision, deploy.status()));
        let is_wanted = |(revision, status): &(Revision, Status)| {
            page.before.is_none_or(|before| *revision < before) && (!page.succeeded || *status == Status::Succeeded)
        };
        let all = self.cache.archived(record).into_iter().chain(ended).filter(is_wanted);
        let mut left: Vec<Revision> = all.map(|(revision, _)| revision).collect();
        left.sort_unstable();
        let mut found = BTreeMap::new();
        // A deploy that was removed a moment ago leaves room for an older one.
        while found.len() < page.limit && !left.is_empty() {
            let newest = left.split_off(left.len().saturating_sub(page.limit - found.len()));
            let held = archiving.iter().filter(|deploy| newest.contains(&deploy.revision));
            found.extend(held.map(|deploy| (deploy.revision, deploy.without_logs())));
            let stored: Vec<Revision> = newest.into_iter().filter(|revision| !found.contains_key(revision)).collect();
            let read = |object| Ok(object::read(record, object)?.without_logs());
            let read = self.each_of(record, &stored, ONE_BY_ONE, read).await?;
            found.extend(read.into_iter().map(|deploy| (deploy.revision, deploy)));
        }
        Ok(found.into_values().rev().collect())
    }

    /// Returns one archived deploy of an app as it was read, with its evidence.
    pub(crate) async fn one(&self, record: &AppRecord, revision: Revision) -> Result<Option<Deploy>> {
        if let Some(held) = record.kept.archiving.iter().find(|deploy| deploy.revision == revision) {
            return Ok(Some(Deploy::clone(held)));
        }
        if record.is_open(revision) || Some(revision) > record.state.latest {
            return Ok(None);
        }
        let api = self.api.within::<DeployObject>(record.namespace());
        let object = get(&api, &deploy_name(record.id().name.as_str(), revision.get())).await?;
        object
            .filter(|object| object::is_of(record, &object.metadata))
            .map(|object| object::read(record, object))
            .transpose()
    }

    /// Sees each deploy that the app had archived when it was read: the watch may be behind.
    pub(crate) async fn complete(&self, record: &AppRecord) -> Result<()> {
        let missing = self.cache.missing(record);
        for metadata in self.each_of(record, &missing, AT_ONCE, |object| Ok(object.metadata)).await? {
            self.cache.note_deploy(metadata, false);
        }
        self.cache.note_complete(record);
        Ok(())
    }

    /// Returns what is kept of each of the app's `AppDeploy`s of these revisions; those that were removed are left out. Each is
    /// reduced as soon as it is read, since its evidence is long.
    async fn each_of<T: Send>(
        &self,
        record: &AppRecord,
        revisions: &[Revision],
        one_by_one: usize,
        keep: impl Fn(DeployObject) -> Result<T> + Send + Sync,
    ) -> Result<Vec<T>> {
        let api = &self.api.within::<DeployObject>(record.namespace());
        let name = |revision: &Revision| deploy_name(record.id().name.as_str(), revision.get());
        let names: BTreeSet<String> = revisions.iter().map(name).collect();
        let is_wanted = |object: &DeployObject| {
            let is_named = object.metadata.name.as_ref().is_some_and(|name| names.contains(name));
            is_named && object::is_of(record, &object.metadata)
        };
        if names.len() > one_by_one {
            let mut kept = Vec::new();
            let selector = format!("{UID_LABEL}={}", record.state.app.uid);
            let keep_page = |page: Vec<DeployObject>| {
                page.into_iter().filter(is_wanted).try_for_each(|object| keep(object).map(|one| kept.push(one)))
            };
            list_in_pages(api, Some(&selector), LISTED, keep_page).await?;
            return Ok(kept);
        }
        let read = async |name: &String| get(api, name).await?.filter(is_wanted).map(&keep).transpose();
        let reads: Vec<BoxFuture<'_, Result<Option<T>>>> = names.iter().map(|name| read(name).boxed()).collect();
        let found: Vec<Option<T>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// The error of an archived deploy that cannot be read.
fn unreadable(record: &AppRecord, name: Option<&str>, why: &str) -> Error {
    let what = format!("the AppDeploy {} of the app {} cannot be read: {why}", name.unwrap_or_default(), record.id());
    Error::Corrupt { what, cause: None }
}
