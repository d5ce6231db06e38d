//! The archive: one `AppDeploy` per revision.
//!
//! An `AppDeploy` is created soon after the accept, and shows how the deploy stands: a copy for people. The end is written
//! for certain: an ended deploy stays in the `App` until its `AppDeploy` tells its end. Each replica brings the
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
    ledger::KeyUse,
    ports::Page,
    request::IdempotencyKey,
};
use tokio::{
    sync::{Mutex as Turn, MutexGuard, Notify},
    time::Instant,
};

pub(crate) use self::task::OTHERS;
use super::{
    api::{ApiServer, Written, create, delete, delete_all, get, list, replace},
    app_record::{AppRecord, key_hash},
    crd::{DeployObject, UID_LABEL, deploy_name},
    error::contended,
    mirror::Mirror,
};

/// The most `AppDeploy`s that are read or written at the same time for one app.
const AT_ONCE: usize = 8;
/// The most `AppDeploy`s that are read one by one; more are read by one list.
const ONE_BY_ONE: usize = 40;
/// The number of locks that all apps share.
const TURNS: usize = 64;
/// The number of attempts to write an `AppDeploy` that others write at the same time.
const ATTEMPTS: usize = 5;

/// Reads and writes `AppDeploy`s.
pub(crate) struct Archive {
    api: ApiServer,
    mirror: Arc<Mirror>,
    /// The apps that are to be looked at, and when.
    due: Mutex<BTreeMap<AppUid, Instant>>,
    scheduled: Notify,
    /// The apps whose `AppDeploy`s are being written: a write that began before must not bring back what is removed.
    turns: [Turn<()>; TURNS],
}

impl Archive {
    pub(crate) fn new(api: ApiServer, mirror: Arc<Mirror>) -> Self {
        let turns = std::array::from_fn(|_| Turn::default());
        Self { api, mirror, due: Mutex::default(), scheduled: Notify::new(), turns }
    }

    /// Writes each of the app's deploys whose `AppDeploy` does not tell its status yet, as the app is known now.
    pub(crate) async fn settle(&self, app: AppUid) -> Result<()> {
        let _turn = self.turn(app).await;
        let Some(record) = self.mirror.app(app) else { return Ok(()) };
        let record = &record;
        let behind = record.deploys().filter(|deploy| !self.mirror.shows(record, deploy));
        let writes: Vec<BoxFuture<'_, Result<()>>> = behind.map(|deploy| self.write(record, deploy).boxed()).collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn write(&self, record: &AppRecord, deploy: &Deploy) -> Result<()> {
        let api = self.api.within::<DeployObject>(record.namespace());
        let known = self.mirror.deploy(record, deploy.revision);
        let mut stored = known.and_then(|known| known.metadata).map(|metadata| *metadata);
        for _ in 0..ATTEMPTS {
            let written = match stored.take() {
                None => create(&api, &object::of(record, deploy, ObjectMeta::default())?).await?,
                Some(metadata) => replace(&api, &object::of(record, deploy, metadata)?).await?,
            };
            if let Written::Done(written) = written {
                self.mirror.note_deploy(written.metadata, false);
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
            self.mirror.note_deploy(found.metadata.clone(), false);
            if self.mirror.shows(record, deploy) {
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
                    Ok(_) => self.mirror.forget_deploy(record.namespace(), record.state.app.uid, *revision),
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

    /// The newest use of an idempotency key by a deploy of the app as it was read.
    pub(crate) async fn key_use(&self, record: &AppRecord, key: &IdempotencyKey) -> Result<Option<KeyUse>> {
        self.complete(record).await?;
        let archived = self.mirror.key_use(record, key_hash(key.header, &key.key));
        Ok(record.key_use(key).into_iter().chain(archived).max_by_key(|used| used.revision))
    }

    /// A part of the archive of an app as it was read.
    pub(crate) async fn page(&self, record: &AppRecord, page: Page) -> Result<Vec<Deploy>> {
        self.complete(record).await?;
        let wanted = |revision: Revision, status: Status| {
            page.before.is_none_or(|before| revision < before) && (!page.succeeded || status == Status::Succeeded)
        };
        let archiving = record.kept.archiving.iter().filter(|deploy| wanted(deploy.revision, deploy.status()));
        let mut found: BTreeMap<Revision, Deploy> =
            archiving.map(|deploy| (deploy.revision, Deploy::clone(deploy))).collect();
        let archived = self.mirror.archived(record).into_iter().filter(|(revision, status)| wanted(*revision, *status));
        let mut archived = archived.map(|(revision, _)| revision);
        // An `AppDeploy` that was removed a moment ago leaves room for an older one.
        loop {
            let read: BTreeSet<Revision> = archived.by_ref().take(page.limit).collect();
            if read.is_empty() {
                break;
            }
            found.extend(self.read(record, &read).await?);
            if found.len() >= page.limit {
                break;
            }
        }
        Ok(found.into_values().rev().take(page.limit).collect())
    }

    /// The archived deploys of these revisions; those that were removed are left out.
    async fn read(&self, record: &AppRecord, revisions: &BTreeSet<Revision>) -> Result<BTreeMap<Revision, Deploy>> {
        let mut deploys = BTreeMap::new();
        for object in self.objects(record, revisions, ONE_BY_ONE).await? {
            let deploy = object::read(record, object)?;
            deploys.insert(deploy.revision, deploy);
        }
        deploys.retain(|revision, _| revisions.contains(revision));
        Ok(deploys)
    }

    /// Sees each deploy that the app had archived when it was read: the watch may be behind.
    async fn complete(&self, record: &AppRecord) -> Result<()> {
        let missing: BTreeSet<Revision> = self.mirror.missing(record).into_iter().collect();
        for object in self.objects(record, &missing, AT_ONCE).await? {
            self.mirror.note_deploy(object.metadata, false);
        }
        self.mirror.note_complete(record);
        Ok(())
    }

    /// The app's `AppDeploy`s of these revisions, and others if there are more of them than are read one by one.
    async fn objects(
        &self,
        record: &AppRecord,
        revisions: &BTreeSet<Revision>,
        one_by_one: usize,
    ) -> Result<Vec<DeployObject>> {
        let api = self.api.within::<DeployObject>(record.namespace());
        let objects: Vec<DeployObject> = if revisions.len() > one_by_one {
            list(&api, Some(&format!("{UID_LABEL}={}", record.state.app.uid))).await?
        } else {
            let names = revisions.iter().map(|revision| deploy_name(record.id().name.as_str(), revision.get()));
            let reads = names.map(|name| {
                let api = &api;
                async move { get(api, &name).await }.boxed()
            });
            let reads: Vec<BoxFuture<'_, Result<Option<DeployObject>>>> = reads.collect();
            let found: Vec<Option<DeployObject>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
            found.into_iter().flatten().collect()
        };
        Ok(objects.into_iter().filter(|object| object::is_of(record, &object.metadata)).collect())
    }
}

/// The error of an archived deploy that cannot be read.
fn unreadable(record: &AppRecord, name: Option<&str>, why: &str) -> Error {
    let what = format!("the AppDeploy {} of the app {} cannot be read: {why}", name.unwrap_or_default(), record.id());
    Error::Corrupt { what, cause: None }
}
