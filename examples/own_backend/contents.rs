//! The contents of the file, and the rules by which a commit changes them.

use std::{collections::BTreeMap, time::Duration};

use rollhook::{
    Error, Result,
    app::{App, AppId, AppUid, Environment, Project},
    deploy::Revision,
    error::Entity,
    ledger::{Change, KeyUse},
    ports::{AppCommit, AppRef, Version},
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The contents of the file.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// The identity of the rollout driver that the apps are deployed by.
    pub(crate) driver: Option<String>,
    /// The replicas that are alive, each with the `ttl` of its last heartbeat and the time at which that expires.
    pub(crate) replicas: Vec<(ReplicaId, Duration, Timestamp)>,
    pub(crate) apps: BTreeMap<AppUid, AppRecord>,
}

/// An app with all that belongs to it, so that nothing outlives the app.
///
/// The state and the archived deploys stay unparsed until they are asked for: one that cannot be parsed is an error for
/// that caller, and everything else goes on. The fields of the state that the store itself needs stand beside it.
#[derive(Serialize, Deserialize)]
pub(crate) struct AppRecord {
    pub(crate) id: AppId,
    pair: (Project, Environment),
    pub(crate) lease: Option<ReplicaId>,
    pub(crate) queued_at: Option<Timestamp>,
    pub(crate) version: u64,
    pub(crate) state: Value,
    pub(crate) archive: BTreeMap<Revision, Value>,
    /// The uses of keys, by [`key_name`].
    pub(crate) keys: BTreeMap<String, KeyUse>,
    /// The sealed token, and when it was made.
    pub(crate) token: Option<(Vec<u8>, Timestamp)>,
}

impl Contents {
    pub(crate) fn app(&self, app: AppRef<'_>) -> Option<(&AppUid, &AppRecord)> {
        match app {
            AppRef::Name(id) => self.apps.iter().find(|(_, record)| record.id == *id),
            AppRef::Uid(uid) => self.apps.get_key_value(&uid),
        }
    }

    /// Writes a commit, and returns the app's new version. After an error the contents are half changed: the caller
    /// drops them, so that nothing of a refused commit is stored.
    pub(crate) fn commit(&mut self, commit: AppCommit) -> Result<Version> {
        let app = commit.app();
        let stored = self.apps.remove(&app);
        match (commit.version(), stored.as_ref().map(|record| Version(record.version))) {
            (None, Some(_)) => return Err(Error::Conflict(Entity::App)),
            (Some(_), None) => return Err(Error::NotFound(Entity::App)),
            (expected, found) if expected != found => return Err(Error::Conflict(Entity::Version)),
            _ => {}
        }
        let Some(change) = commit.change() else { return Ok(Version::REMOVED) };
        let record = stored.map_or_else(|| self.register(&change.state.app), Ok)?;
        self.apps.entry(app).or_insert(record).put(change.clone())
    }

    /// Returns the empty record of a new app, if its name and its namespace are free.
    fn register(&self, app: &App) -> Result<AppRecord> {
        let (id, pair) = (app.id.clone(), (app.project.clone(), app.environment.clone()));
        let mut neighbours = self.apps.values().filter(|other| other.id.namespace == id.namespace);
        if neighbours.clone().any(|other| other.id == id) {
            return Err(Error::Conflict(Entity::App));
        }
        if neighbours.any(|other| other.pair != pair) {
            return Err(Error::Conflict(Entity::Namespace));
        }
        let (state, archive, keys) = Default::default();
        Ok(AppRecord { id, pair, lease: None, queued_at: None, version: 0, state, archive, keys, token: None })
    }
}

impl AppRecord {
    /// Writes the change, and returns the new version.
    fn put(&mut self, change: Change) -> Result<Version> {
        for write in change.keys {
            if self.keys.insert(key_name(&write.key), write.made).is_some() && !write.replaces {
                return Err(Error::Conflict(Entity::IdempotencyKey));
            }
        }
        for deploy in change.ended {
            self.archive.insert(deploy.revision, json(serde_json::to_value(deploy))?);
        }
        // A key is of no use without the deploy that it made.
        self.keys.retain(|_, made| !change.forgotten.contains(&made.revision));
        self.archive.retain(|revision, _| !change.forgotten.contains(revision));
        self.state = json(serde_json::to_value(&change.state))?;
        (self.lease, self.queued_at) = (change.state.lease, change.state.queued_at);
        self.version += 1;
        Ok(Version(self.version))
    }
}

/// Returns the name of an idempotency key within its app: header and text. The request is left out, because a key is
/// also found by a call that reuses it for another request.
pub(crate) fn key_name(key: &IdempotencyKey) -> String {
    format!("{}: {}", key.header.as_str(), key.key)
}

pub(crate) fn json<T>(result: serde_json::Result<T>) -> Result<T> {
    result.map_err(|error| Error::corrupt("what is stored cannot be read or written as JSON", error))
}
