//! The ports, on the file.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision, Status},
    error::Entity,
    ledger::AppState,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, Sealing, TokenStore, UnreadableApp, Version, WebhookSecret,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    sealing::token,
    time::Timestamp,
    token::Token,
};
use serde::Deserialize;

use crate::{
    contents::{AppRecord, json, key_name},
    file::JsonStore,
};

#[async_trait]
impl HistoryStore for JsonStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let contents = self.read()?;
        let Some((_, record)) = contents.app(app) else { return Ok(None) };
        let state = json(AppState::deserialize(&record.state))?;
        let key = key.and_then(|key| record.keys.get(&key_name(key)).copied());
        Ok(Some(Loaded { state, version: Version(record.version), key, now: (self.clock)() }))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let write = |commit| self.change(|contents, now| Ok(Committed { version: contents.commit(commit)?, now }));
        let answers = commits.into_iter().map(write).collect();
        self.committed.send_replace(());
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let contents = self.read()?;
        let archive = contents.apps.get(&app).into_iter().flat_map(|record| record.archive.iter().rev());
        let below = archive.filter(|(revision, _)| page.before.is_none_or(|before| **revision < before));
        let deploys = below.map(|(_, deploy)| Ok(json(Deploy::deserialize(deploy))?.without_logs()));
        let is_wanted = |deploy: &Deploy| !page.succeeded || deploy.status() == Status::Succeeded;
        // A deploy that cannot be read is not left out: it ends the page as an error.
        deploys.filter(|deploy| deploy.as_ref().map_or(true, is_wanted)).take(page.limit).collect()
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        let contents = self.read()?;
        let stored = contents.apps.get(&app).and_then(|record| record.archive.get(&revision));
        stored.map(|deploy| json(Deploy::deserialize(deploy))).transpose()
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let mut apps: Vec<_> = self.read()?.apps.into_values().collect();
        apps.retain(|record| page.namespace.as_ref().is_none_or(|namespace| record.id.namespace == *namespace));
        apps.retain(|record| page.after.as_ref().is_none_or(|after| record.id > *after));
        apps.sort_by(|one, other| one.id.cmp(&other.id));
        let listed = |record: AppRecord| {
            json(AppState::deserialize(&record.state)).map_err(|error| UnreadableApp { id: record.id, error })
        };
        Ok(apps.into_iter().take(page.limit).map(listed).collect())
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        let mut apps: Vec<_> = self.read()?.apps.into_iter().collect();
        apps.retain(|(_, record)| record.queued_at.is_some());
        apps.retain(|(_, record)| record.lease.as_ref().is_none_or(|replica| !alive.contains(replica)));
        apps.sort_by_key(|(_, record)| record.queued_at);
        Ok(apps.into_iter().map(|(app, _)| app).take(limit).collect())
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.change(|contents, now| {
            let ends = |other: &ReplicaId| other == replica || (other.name == replica.name && !ttl.is_zero());
            contents.replicas.retain(|(other, _, expires)| now <= *expires && !ends(other));
            contents.replicas.extend((!ttl.is_zero()).then(|| (replica.clone(), ttl, now.after(ttl))));
            // A heartbeat lasts no longer if the clock was set back.
            contents.replicas.iter_mut().for_each(|(_, ttl, expires)| *expires = now.after(*ttl).min(*expires));
            Ok(Heartbeat { now, alive: contents.replicas.iter().map(|(replica, ..)| replica.clone()).collect() })
        })
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.change(|contents, _| {
            if binding == Binding::Replace {
                contents.driver = None;
            }
            Ok(DriverIdentity(contents.driver.get_or_insert_with(|| driver.0.clone()).clone()))
        })
    }

    /// Streams a hint after this handle's commits; those of other processes are found by polling. The hint is `Any`,
    /// because reading one app costs as much as reading all.
    fn watch(&self) -> BoxStream<'static, AppChange> {
        let hints = self.committed.subscribe();
        stream::unfold(hints, async |mut hints| Some((hints.changed().await.map(|()| AppChange::Any).ok()?, hints)))
            .boxed()
    }
}

#[async_trait]
impl TokenStore for JsonStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        self.change(|contents, created_at| {
            let record = contents.apps.get_mut(&app).ok_or(Error::NotFound(Entity::App))?;
            let secret = WebhookSecret::new(app, token.clone(), created_at);
            record.token = Some((token::seal(&self.keys, &secret)?, created_at));
            Ok(secret)
        })
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        self.change(|contents, now| {
            let record = contents.apps.get_mut(&app).ok_or(Error::NotFound(Entity::App))?;
            let (sealed, at) = record.token.take().ok_or(Error::NotFound(Entity::Object))?;
            let present = token::open(&self.keys, app, &sealed, at.as_millis())?;
            let secret = present.rotated(token.clone(), until, now);
            record.token = Some((token::seal(&self.keys, &secret)?, now));
            Ok(secret)
        })
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let contents = self.read()?;
        let Some((&app, record)) = contents.app(AppRef::Name(app)) else { return Ok(None) };
        let open = |(sealed, at): &(Vec<u8>, Timestamp)| token::open(&self.keys, app, sealed, at.as_millis());
        record.token.as_ref().map(open).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.change(|contents, _| Ok(contents.apps.get_mut(&app).and_then(|record| record.token.take()))).map(drop)
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}
