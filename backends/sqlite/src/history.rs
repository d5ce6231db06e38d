//! Implements the history store, with the statements that read.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};
use rollhook_sql::{CommitRows, deploy, deploy_with_evidence, header_number, key_use, listed, located};
use rusqlite::{OptionalExtension, Row, params_from_iter, types::Value};

use crate::{call::Session, commit::commit, heartbeat, store::SqliteStore};

/// The most apps that share a commit: at this size, a flush of the disk costs each of them little.
const APPS_PER_COMMIT: usize = 512;

const LOAD: &str = "
SELECT a.namespace, a.name, a.document, a.version, k.request, k.revision, k.expires_at
FROM apps a LEFT JOIN keys k ON k.app = a.id AND k.header = ?1 AND k.key = ?2 WHERE a.uid = ?3";
const LOAD_NAMED: &str = "
SELECT a.namespace, a.name, a.document, a.version, k.request, k.revision, k.expires_at
FROM apps a LEFT JOIN keys k ON k.app = a.id AND k.header = ?1 AND k.key = ?2 WHERE a.namespace = ?3 AND a.name = ?4";
const PAGE: &str = "
SELECT revision, document FROM deploys
WHERE app = (SELECT id FROM apps WHERE uid = ?1) AND revision < ?2 AND (succeeded OR NOT ?3)
ORDER BY revision DESC LIMIT ?4";
const ARCHIVED: &str = "
SELECT revision, document, evidence FROM deploys
WHERE app = (SELECT id FROM apps WHERE uid = ?1) AND revision = ?2";
const LIST: &str = "
SELECT namespace, name, document FROM apps WHERE (namespace, name) > (?1, ?2) AND namespace <= ?3
ORDER BY namespace, name LIMIT ?4";
const WORK: &str = "
SELECT uid FROM apps
WHERE queued_at IS NOT NULL AND (lease IS NULL OR lease NOT IN (SELECT value FROM json_each(?1)))
ORDER BY queued_at LIMIT ?2";

// Stored as bytes, as every setting is.
const BIND: &str = "INSERT OR IGNORE INTO settings (name, value) VALUES ('driver', ?1)";
const REBIND: &str = "INSERT OR REPLACE INTO settings (name, value) VALUES ('driver', ?1)";
const DRIVER: &str = "SELECT value FROM settings WHERE name = 'driver'";

/// For a check of their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 6] = [LOAD, LOAD_NAMED, PAGE, ARCHIVED, LIST, WORK];

#[async_trait]
impl HistoryStore for SqliteStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let (header, key) = key.map(|key| (i64::from(header_number(key.header)), key.key.clone())).unzip();
        let mut values = vec![Value::from(header), Value::from(key)];
        let statement = match app {
            AppRef::Uid(uid) => {
                values.push(Value::from(uid.as_bits().to_be_bytes().to_vec()));
                LOAD
            }
            AppRef::Name(AppId { namespace, name }) => {
                values.extend([namespace.to_string(), name.to_string()].map(Value::from));
                LOAD_NAMED
            }
        };
        let load = self.reader.run(move |session| {
            let now = session.now;
            let mut statement = session.statement(statement)?;
            let found = statement.query_row(params_from_iter(values), |row| loaded(row, now));
            Ok(found.optional()?.transpose())
        });
        load.await
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let rows: Vec<_> = commits.into_iter().map(CommitRows::encode).collect();
        let count = rows.len();
        match self.writer.try_run(move |session| commit(session, rows)).await {
            Ok(answers) => answers,
            Err(failure) => (0..count).map(|_| Err(failure.to_error())).collect(),
        }
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let before = page.before.map_or(i64::MAX, |before| i64::try_from(before.get()).unwrap_or(i64::MAX));
        let parameters = (app.as_bits().to_be_bytes(), before, page.succeeded, limit(page.limit));
        self.long_reader
            .run(move |session| {
                let mut statement = session.statement(PAGE)?;
                statement.query_map(parameters, paged)?.collect()
            })
            .await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        let Ok(revision) = i64::try_from(revision.get()) else { return Ok(None) };
        let parameters = (app.as_bits().to_be_bytes(), revision);
        let read = self.reader.run(move |session| {
            let found = session.statement(ARCHIVED)?.query_row(parameters, archived);
            Ok(found.optional()?.transpose())
        });
        read.await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let first = page.namespace.as_ref().map(|namespace| (namespace.to_string(), String::new()));
        let after = page.after.map(|after| (after.namespace.to_string(), after.name.to_string()));
        let (namespace, name) = first.max(after).unwrap_or_default();
        // No namespace comes after a tilde.
        let last = page.namespace.map_or_else(|| "~".to_owned(), String::from);
        self.long_reader
            .run(move |session| {
                let mut statement = session.statement(LIST)?;
                statement.query_map((namespace, name, last, limit(page.limit)), stored)?.collect()
            })
            .await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        let alive: Vec<_> = alive.iter().map(ToString::to_string).collect();
        let alive = serde_json::Value::from(alive).to_string();
        self.long_reader
            .run(move |session| {
                let mut statement = session.statement(WORK)?;
                let uids = statement.query_map((alive, self::limit(limit)), |row| uid(row, 0))?;
                uids.map(|uid| uid.map(Ok)).collect()
            })
            .await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let (own, again) = (replica.clone(), replica.clone());
        match self.reader.run(move |session| heartbeat::fresh(session, &own, ttl).map(Ok)).await? {
            Some(fresh) => Ok(fresh),
            None => self.writer.run(move |session| heartbeat::write(session, &again, ttl).map(Ok)).await,
        }
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        let driver = driver.0.clone();
        let bind = move |session: &mut Session<'_>| {
            let statement = if binding == Binding::First { BIND } else { REBIND };
            session.statement(statement)?.execute([driver])?;
            session.statement(DRIVER)?.query_row([], |row| row.get(0)).map(Ok)
        };
        self.writer.run(bind).await.map(DriverIdentity)
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.hints.watch()
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { apps_per_commit: APPS_PER_COMMIT, commits_at_once: 2 }
    }
}

/// Returns the app of a row of [`LOAD`].
fn loaded(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<Result<Loaded>> {
    let version = Version(row.get::<_, i64>(3)?.unsigned_abs());
    let key = match row.get_ref(4)?.as_blob_or_null()? {
        Some(request) => key_use(request, row.get(5)?, row.get(6)?).map(Some),
        None => Ok(None),
    };
    let listed = stored(row)?;
    Ok(listed.and_then(|listed| {
        let state = listed.map_err(|unreadable| unreadable.error)?;
        Ok(Loaded { state, version, key: key?, now })
    }))
}

/// Returns the app of a row that begins with its namespace, name and state.
fn stored(row: &Row<'_>) -> rusqlite::Result<Result<ListedApp>> {
    Ok(listed(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_bytes()?))
}

/// Returns the deploy of a row of [`PAGE`].
fn paged(row: &Row<'_>) -> rusqlite::Result<Result<Deploy>> {
    named(row, deploy(row.get_ref(1)?.as_bytes()?))
}

/// Returns the deploy of a row of [`ARCHIVED`].
fn archived(row: &Row<'_>) -> rusqlite::Result<Result<Deploy>> {
    named(row, deploy_with_evidence(row.get_ref(1)?.as_bytes()?, row.get_ref(2)?.as_bytes_or_null()?))
}

/// Names the revision of a row whose deploy cannot be read.
fn named(row: &Row<'_>, deploy: Result<Deploy>) -> rusqlite::Result<Result<Deploy>> {
    let revision: i64 = row.get(0)?;
    Ok(deploy.map_err(|error| located(&format!("revision {revision}"), error)))
}

/// Returns the uid in a column.
pub(crate) fn uid(row: &Row<'_>, column: usize) -> rusqlite::Result<AppUid> {
    row.get(column).map(u128::from_be_bytes).map(AppUid::from_bits)
}

pub(crate) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
