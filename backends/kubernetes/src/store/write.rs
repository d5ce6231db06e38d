//! Commits: one replacement of the `RollhookApp` each, valid only for the version that was read.

use std::{collections::BTreeSet, sync::Arc};

use kube::api::ObjectMeta;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision},
    error::Entity,
    ledger::{Change, KeyWrite},
    ports::{AppChange, AppCommit, Committed, Version},
};

use super::{
    KubernetesStore,
    api::{Written, create, delete, get, replace},
    app_record::{AppRecord, Kept, StoredKey},
    crd::{AppObject, UID_LABEL},
    secrets::Registered,
};

/// The most ended deploys that a commit carries on in the `RollhookApp`: with all of their evidence they fit into one object.
/// More are archived before the commit.
const CARRIED_MAX: usize = 20;

impl KubernetesStore {
    pub(crate) async fn write(&self, commit: AppCommit) -> Result<Committed> {
        let version = match commit {
            AppCommit::Register(change) => self.register(*change).await?,
            AppCommit::Update(version, change) => self.put(change.state.app.uid, version, *change).await?,
            AppCommit::Remove(app, version) => self.remove(app, version).await?,
        };
        Ok(Committed { version, now: self.clock.now() })
    }

    async fn put(&self, app: AppUid, version: Version, change: Change) -> Result<Version> {
        let record = self.read_at(app, version).await?;
        if *record.id() != change.state.app.id {
            return Err(Error::NotFound(Entity::App));
        }
        self.check_keys(&record, &change.keys).await?;
        let forgotten = change.forgotten.clone();
        let next = self.next(&record, change).await?;
        match replace(&self.api.within::<AppObject>(record.namespace()), &next.object()?).await? {
            Written::Done(written) => {
                let committed = self.committed(next.written(written.metadata)?);
                self.archive.forget(&record, &forgotten).await;
                Ok(committed)
            }
            Written::Conflict | Written::Gone => Err(self.outdated(app).await),
        }
    }

    /// Refuses keys that are in use. The version of the `RollhookApp` guards the answer: keys change with it alone.
    async fn check_keys(&self, record: &AppRecord, keys: &[KeyWrite]) -> Result<()> {
        for write in keys.iter().filter(|write| !write.replaces) {
            if self.key_use(record, &write.key).await?.is_some() {
                return Err(Error::Conflict(Entity::IdempotencyKey));
            }
        }
        Ok(())
    }

    /// The next record of an app.
    async fn next(&self, record: &AppRecord, change: Change) -> Result<AppRecord> {
        let app = record.state.app.uid;
        let carried = || -> Vec<Arc<Deploy>> {
            let archiving = record.kept.archiving.iter().filter(|deploy| !self.cache.shows(app, deploy));
            archiving.filter(|deploy| !change.forgotten.contains(&deploy.revision)).cloned().collect()
        };
        let mut archiving = carried();
        if archiving.len() > CARRIED_MAX {
            self.archive.settle(app).await?;
            archiving = carried();
        }
        archiving.extend(change.ended);
        let lease_namespace = match &change.state.lease {
            same if *same == record.state.lease => record.kept.lease_namespace.clone(),
            Some(_) => Some(self.api.namespace().to_owned()),
            None => None,
        };
        let mut next = record.clone();
        next.state = change.state;
        let added = change.keys.iter().map(|write| (write.made.revision, StoredKey::of(write)));
        next.kept =
            Kept { archiving, lease_namespace, keys: record.kept.keys.clone().into_iter().chain(added).collect() };
        let open: BTreeSet<Revision> = next.deploys().map(|deploy| deploy.revision).collect();
        next.kept.keys.retain(|revision, _| open.contains(revision));
        Ok(next)
    }

    fn committed(&self, record: AppRecord) -> Version {
        let record = Arc::new(record);
        self.cache.note_record(&record);
        self.changes.send(AppChange::App(record.state.app.uid, record.version));
        self.archive.schedule_own(&record);
        record.version
    }

    /// Why the `RollhookApp` was not as it was read.
    async fn outdated(&self, app: AppUid) -> Error {
        match self.read_uid(app).await {
            Ok(Some(_)) => Error::Conflict(Entity::Version),
            Ok(None) => Error::NotFound(Entity::App),
            Err(error) => error,
        }
    }

    async fn register(&self, change: Change) -> Result<Version> {
        let app = Arc::clone(&change.state.app);
        if self.read_uid(app.uid).await?.is_some() {
            return Err(Error::Conflict(Entity::App));
        }
        let metadata = ObjectMeta {
            name: Some(app.id.name.to_string()),
            namespace: Some(app.id.namespace.to_string()),
            labels: Some([(UID_LABEL.to_owned(), app.uid.to_string())].into()),
            ..ObjectMeta::default()
        };
        let lease_namespace = change.state.lease.as_ref().map(|_| self.api.namespace().to_owned());
        let keys = change.keys.iter().map(|write| (write.made.revision, StoredKey::of(write))).collect();
        let kept = Kept { archiving: change.ended, keys, lease_namespace };
        let registered = self.create_locked(AppRecord::new(metadata, change.state, kept)).await;
        if registered.as_ref().is_err_and(|error| !error.is_conflict()) {
            self.unlock_namespace(app.id.namespace.as_str()).await;
        }
        registered
    }

    async fn create_locked(&self, record: AppRecord) -> Result<Version> {
        let app = &record.state.app;
        let api = self.api.within::<AppObject>(record.namespace());
        match self.lock_namespace(app).await {
            Err(Error::Conflict(Entity::Namespace)) if get(&api, app.id.name.as_str()).await?.is_some() => {
                return Err(Error::Conflict(Entity::App));
            }
            locked => locked?,
        }
        let created = match create(&api, &record.object()?).await? {
            Written::Done(created) => created.metadata,
            Written::Conflict | Written::Gone => return Err(Error::Conflict(Entity::App)),
        };
        if let Err(error) = self.lock_namespace(app).await {
            delete(&api, &created).await?;
            return Err(error);
        }
        Ok(self.committed(record.written(created)?))
    }

    async fn remove(&self, app: AppUid, version: Version) -> Result<Version> {
        let record = self.read_at(app, version).await?;
        match delete(&self.api.within::<AppObject>(record.namespace()), &record.metadata).await? {
            Written::Done(()) => {}
            Written::Conflict | Written::Gone => return Err(self.outdated(app).await),
        }
        self.forget(&record.metadata, Version::REMOVED);
        // The App owns its Secret and its AppDeploys, so that the cluster removes what is left after a failure.
        let registered = Registered::of(&record);
        let (secret, deploys) = futures_util::join!(self.secrets.discard(&registered), self.archive.remove(&record));
        for error in [secret.err(), deploys.err()].into_iter().flatten() {
            tracing::warn!(app = %record.id(), error = %error.chain(), "leaving the rest of a removed app to the cluster");
        }
        self.unlock_namespace(record.namespace()).await;
        Ok(Version::REMOVED)
    }
}
