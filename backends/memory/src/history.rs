//! Apps and their history.

use std::{collections::btree_map::Entry, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision, Status},
    error::Entity,
    ledger::{AppState, Change, KeyWrite},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};

use crate::store::{KeyName, Life, MemoryStore, Stored, Tables};

/// The time for which a key is kept after it has expired.
const KEY_SLACK: Duration = Duration::from_secs(3600);

#[async_trait]
impl HistoryStore for MemoryStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let now = self.now();
        Ok(self.lock().app(app).map(|stored| Loaded {
            state: stored.state.clone(),
            version: stored.version,
            key: key.and_then(|key| stored.keys.get(&name(key)).copied()),
            now,
        }))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let now = self.now();
        let commit = |commit: AppCommit| {
            let (app, removes) = (commit.app(), commit.change().is_none());
            // Each takes the lock for itself, so that a large batch holds no reader up.
            let version = self.lock().commit(commit, now)?;
            let version = if removes { Version::REMOVED } else { version };
            self.notifier.send(AppChange::App(app, version));
            Ok(Committed { version, now })
        };
        commits.into_iter().map(commit).collect()
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let tables = self.lock();
        let archive = tables.apps.get(&app).into_iter().flat_map(|stored| stored.archive.values().rev());
        let is_wanted = |deploy: &&Arc<Deploy>| {
            page.before.is_none_or(|before| deploy.revision < before)
                && (!page.succeeded || deploy.status() == Status::Succeeded)
        };
        Ok(archive.filter(is_wanted).take(page.limit).map(|deploy| deploy.without_logs()).collect())
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        let tables = self.lock();
        Ok(tables.apps.get(&app).and_then(|stored| stored.archive.get(&revision)).map(|deploy| Deploy::clone(deploy)))
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let tables = self.lock();
        let namespaces = tables.namespaces.iter();
        let wanted = namespaces.filter(|(name, _)| page.namespace.as_ref().is_none_or(|namespace| namespace == *name));
        let states = wanted.flat_map(|(_, apps)| apps.values()).filter_map(|uid| Some(&tables.apps.get(uid)?.state));
        let is_after = |state: &&AppState| page.after.as_ref().is_none_or(|after| state.app.id > *after);
        Ok(states.filter(is_after).take(page.limit).cloned().map(Ok).collect())
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        let tables = self.lock();
        let is_free = |state: &AppState| state.lease.as_ref().is_none_or(|lease| !alive.contains(lease));
        let free = tables.apps.iter().filter(|(_, stored)| is_free(&stored.state));
        let mut work: Vec<_> = free.filter_map(|(uid, stored)| Some((stored.state.queued_at?, *uid))).collect();
        work.sort_unstable();
        Ok(work.into_iter().take(limit).map(|(_, uid)| uid).collect())
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let now = self.now();
        Ok(Heartbeat { now, alive: self.lock().heartbeat(replica, ttl, now) })
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        let mut tables = self.lock();
        if binding == Binding::Replace {
            tables.driver = None;
        }
        Ok(tables.driver.get_or_insert_with(|| driver.clone()).clone())
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.notifier.stream()
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { apps_per_commit: usize::MAX, commits_at_once: 1 }
    }
}

impl Tables {
    fn commit(&mut self, commit: AppCommit, now: Timestamp) -> Result<Version> {
        if let Some(version) = commit.version() {
            let stored = self.apps.get(&commit.app()).ok_or(Error::NotFound(Entity::App))?;
            if stored.version != version {
                return Err(Error::Conflict(Entity::Version));
            }
        }
        let version = Version(self.commits + 1);
        match commit {
            AppCommit::Register(change) => self.register(change.state.app.uid, version, *change, now)?,
            AppCommit::Update(_, change) => self.put(change.state.app.uid, version, *change, now)?,
            AppCommit::Remove(app, _) => self.remove(app),
        }
        self.commits += 1;
        Ok(version)
    }

    fn register(&mut self, uid: AppUid, version: Version, change: Change, now: Timestamp) -> Result<()> {
        let app = Arc::clone(&change.state.app);
        let AppId { namespace, name } = app.id.clone();
        let others = self.namespaces.get(&namespace);
        if self.apps.contains_key(&uid) || others.is_some_and(|others| others.contains_key(&name)) {
            return Err(Error::Conflict(Entity::App));
        }
        let other = others.and_then(|others| self.apps.get(others.values().next()?));
        if other.is_some_and(|Stored { state: AppState { app: other, .. }, .. }| {
            (&other.project, &other.environment) != (&app.project, &app.environment)
        }) {
            return Err(Error::Conflict(Entity::Namespace));
        }
        self.namespaces.entry(namespace).or_default().insert(name, uid);
        let (archive, keys, expiring) = Default::default();
        let (state, configurations) = (change.state.clone(), Default::default());
        let stored = Stored { state, version, archive, keys, expiring, secret: None, configurations };
        self.apps.insert(uid, stored);
        self.put(uid, version, change, now)
    }

    fn put(&mut self, uid: AppUid, version: Version, change: Change, now: Timestamp) -> Result<()> {
        let stored = self.apps.get_mut(&uid).ok_or(Error::NotFound(Entity::App))?;
        if change.keys.iter().any(|write| !write.replaces && stored.keys.contains_key(&name(&write.key))) {
            return Err(Error::Conflict(Entity::IdempotencyKey));
        }
        (stored.state, stored.version) = (change.state, version);
        stored.archive.extend(change.ended.into_iter().map(|deploy| (deploy.revision, deploy)));
        for revision in &change.forgotten {
            stored.archive.remove(revision);
        }
        if !change.forgotten.is_empty() {
            stored.keys.retain(|_, made| !change.forgotten.contains(&made.revision));
        }
        stored.keep(change.keys, now);
        Ok(())
    }

    fn remove(&mut self, uid: AppUid) {
        let Some(stored) = self.apps.remove(&uid) else { return };
        let AppId { namespace, name } = &stored.state.app.id;
        if let Entry::Occupied(mut apps) = self.namespaces.entry(namespace.clone()) {
            apps.get_mut().remove(name);
            if apps.get().is_empty() {
                apps.remove();
            }
        }
    }

    fn heartbeat(&mut self, replica: &ReplicaId, ttl: Duration, now: Timestamp) -> Vec<ReplicaId> {
        let ReplicaId { name, boot } = replica.clone();
        if !ttl.is_zero() {
            self.replicas.insert(name, Life { boot, heartbeat_at: now, ttl });
        } else if self.replicas.get(&name).is_some_and(|life| life.boot == boot) {
            // A late release by an earlier boot leaves the present one alive.
            self.replicas.remove(&name);
        }
        self.replicas.retain(|_, life| {
            // After the clock was set back a heartbeat still lasts no longer than its time.
            life.heartbeat_at = life.heartbeat_at.min(now);
            now.since(life.heartbeat_at) <= life.ttl
        });
        self.replicas.iter().map(|(name, life)| ReplicaId { name: name.clone(), boot: life.boot }).collect()
    }
}

impl Stored {
    /// Keeps the uses of keys, and forgets those that have long expired.
    fn keep(&mut self, keys: Vec<KeyWrite>, now: Timestamp) {
        for KeyWrite { key, made, .. } in keys {
            self.expiring.insert((made.expires_at, name(&key)));
            self.keys.insert(name(&key), made);
        }
        while let Some((expires_at, _)) = self.expiring.first()
            && expires_at.after(KEY_SLACK) <= now
            && let Some((expires_at, name)) = self.expiring.pop_first()
        {
            if self.keys.get(&name).is_some_and(|used| used.expires_at == expires_at) {
                self.keys.remove(&name);
            }
        }
    }
}

fn name(key: &IdempotencyKey) -> KeyName {
    (key.header, key.key.clone())
}
