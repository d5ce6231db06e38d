//! Reads of apps: never from memory, except for lists and the search for work.

use std::{sync::Arc, time::Duration};

use kube::api::ObjectMeta;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ledger::KeyUse,
    ports::{AppChange, AppPage, AppRef, ListedApp, Loaded, UnreadableApp, Version},
    replica::ReplicaId,
    request::IdempotencyKey,
};

use super::{
    KubernetesStore,
    api::{get, list},
    app_record::{AppRecord, key_hash},
    cache::Claim,
    crd::{AppObject, DeployObject, UID_LABEL},
    hand_made,
};

/// How long the first call of a process waits until it has seen the store.
const FIRST_LOOK: Duration = Duration::from_secs(8);
/// The label selector of a list that is asked for its error alone.
const NOTHING: &str = "rollhook.dev/none";

impl KubernetesStore {
    pub(crate) async fn read(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let record = match app {
            AppRef::Name(id) => self.read_named(id).await?,
            AppRef::Uid(uid) => self.read_uid(uid).await?,
        };
        let Some(record) = record else { return Ok(None) };
        let key = match key {
            Some(key) => self.key_use(&record, key).await?,
            None => None,
        };
        Ok(Some(Loaded { state: record.state.clone(), version: record.version, key, now: self.clock.now() }))
    }

    /// The newest use of an idempotency key by a deploy of the app as it was read.
    pub(crate) async fn key_use(&self, record: &AppRecord, key: &IdempotencyKey) -> Result<Option<KeyUse>> {
        self.ready().await?;
        self.archive.complete(record).await?;
        let archived = self.cache.key_use(record, key_hash(key.header, &key.key));
        Ok(record.key_use(key).into_iter().chain(archived).max_by_key(|used| used.revision))
    }

    /// The app of this name.
    pub(crate) async fn read_named(&self, id: &AppId) -> Result<Option<Arc<AppRecord>>> {
        let (found, known) = self.get_named(id).await?;
        let Some(object) = found else { return Ok(None) };
        let record = self.noted(object).await?;
        if known.is_some_and(|known| record.version < known) {
            self.cache.went_back(&record);
            self.cache.note_record(&record);
        }
        Ok(Some(record))
    }

    /// The `RollhookApp` of this name, and the version in which it was known before it was read.
    pub(crate) async fn get_named(&self, id: &AppId) -> Result<(Option<AppObject>, Option<Version>)> {
        let (namespace, name) = (Some(id.namespace.to_string()), Some(id.name.to_string()));
        let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
        // What is noted while the call is under way is newer than its answer may be.
        let known = self.cache.version(&metadata);
        let found: Option<AppObject> = get(&self.api.within(id.namespace.as_str()), id.name.as_str()).await?;
        let found = found.filter(is_there);
        if let (None, Some(known)) = (&found, known) {
            self.forget(&metadata, known);
        }
        Ok((found, known))
    }

    /// The app that holds this uid.
    pub(crate) async fn read_uid(&self, uid: AppUid) -> Result<Option<Arc<AppRecord>>> {
        if let Some(id) = self.cache.holder(uid) {
            return Ok(self.read_named(&id).await?.filter(|record| record.state.app.uid == uid));
        }
        let Some(object) = self.oldest(uid).await? else { return Ok(None) };
        let record = Arc::new(AppRecord::read(object)?);
        match self.cache.note_record(&record) {
            None => Ok(Some(record)),
            Some(why) => Err(Error::invalid(why)),
        }
    }

    /// The oldest of the objects that claim a uid.
    async fn oldest(&self, uid: AppUid) -> Result<Option<AppObject>> {
        let mut found: Vec<AppObject> = list(&self.api.all(), Some(&format!("{UID_LABEL}={uid}"))).await?;
        found.retain(|object| is_there(object) && hand_made::uid(object) == Some(uid));
        Ok(found.into_iter().reduce(|one, other| {
            let is_older = Claim::of(&other.metadata).is_before(&Claim::of(&one.metadata));
            if is_older { other } else { one }
        }))
    }

    /// The app as a commit was made on it.
    pub(crate) async fn read_at(&self, uid: AppUid, at: Version) -> Result<Arc<AppRecord>> {
        if let Some(seen) = self.cache.app(uid).filter(|seen| seen.version == at) {
            return Ok(seen);
        }
        let record = self.read_uid(uid).await?.ok_or(Error::NotFound(Entity::App))?;
        if record.version == at { Ok(record) } else { Err(Error::Conflict(Entity::Version)) }
    }

    /// Notes an app that was read.
    ///
    /// # Errors
    /// `Invalid` if it is no app, for example because another object holds its uid.
    pub(crate) async fn noted(&self, object: AppObject) -> Result<Arc<AppRecord>> {
        let record = Arc::new(AppRecord::read(object)?);
        let uid = record.state.app.uid;
        if self.cache.holder(uid).is_none()
            && let Some(oldest) = self.oldest(uid).await?
        {
            let (oldest, claim) = (Claim::of(&oldest.metadata), Claim::of(&record.metadata));
            if oldest.name != claim.name {
                return Err(Error::invalid(oldest.why_denied(&claim)));
            }
        }
        match self.cache.note_record(&record) {
            None => Ok(record),
            Some(why) => Err(Error::invalid(why)),
        }
    }

    /// A part of the list of apps as the API server has it now, whatever the watches have seen.
    pub(crate) async fn list_anew(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let api = page.namespace.as_ref().map_or_else(|| self.api.all(), |of| self.api.within(of.as_str()));
        let mut found: Vec<AppObject> = list(&api, None).await?;
        found.retain(is_there);
        // An object whose name is no app's is none.
        let named = found.into_iter().filter_map(|object| {
            let namespace = object.metadata.namespace.as_deref()?.parse().ok()?;
            Some((AppId { namespace, name: object.metadata.name.as_deref()?.parse().ok()? }, object))
        });
        let mut named: Vec<(AppId, AppObject)> =
            named.filter(|(id, _)| page.after.as_ref().is_none_or(|after| id > after)).collect();
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        named.truncate(page.limit);
        let read = |(id, object)| match AppRecord::read(object) {
            Ok(record) => Ok(record.state),
            Err(error) => Err(UnreadableApp { id, error }),
        };
        Ok(named.into_iter().map(read).collect())
    }

    /// The apps with work that no living replica drives, longest waiting first. An app that cannot be read comes last:
    /// its driver will say so.
    pub(crate) async fn waiting(&self, alive: &[ReplicaId], limit: usize) -> Vec<AppUid> {
        let is_driven = |record: &AppRecord| record.state.lease.as_ref().is_some_and(|lease| alive.contains(lease));
        let (mut waiting, damaged) = self.cache.pick(|record| record.state.queued_at.is_some() && !is_driven(record));
        waiting.sort_by_key(|record| (record.state.queued_at, record.state.app.uid));
        let (mut work, mut reads) = (Vec::new(), 0);
        for record in waiting {
            if work.len() == limit {
                break;
            }
            if !self.foreign_owner_lives(&record, &mut reads).await {
                work.push(record.state.app.uid);
            }
        }
        work.extend(damaged);
        work.truncate(limit);
        work
    }

    /// Waits until the watches have seen the store once, and returns the reason if they cannot.
    pub(crate) async fn ready(&self) -> Result<()> {
        if tokio::time::timeout(FIRST_LOOK, self.cache.all_listed()).await.is_ok() {
            return Ok(());
        }
        list::<AppObject>(&self.api.all(), Some(NOTHING)).await?;
        list::<DeployObject>(&self.api.all(), Some(NOTHING)).await?;
        Err(Error::Unavailable { what: "the cluster's apps have not been read yet".to_owned(), cause: None })
    }

    /// Forgets an app that is gone, unless it is known in a newer version than this, and tells those who watch.
    pub(crate) fn forget(&self, metadata: &ObjectMeta, known: Version) {
        if let Some(uid) = self.cache.forget_app(metadata, known) {
            self.changes.send(AppChange::App(uid, Version::REMOVED));
        }
    }
}

/// Whether the app exists and is not being deleted.
fn is_there(object: &AppObject) -> bool {
    object.metadata.deletion_timestamp.is_none()
}
