//! Implements the history store.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};
use rollhook_sql::{deploy, deploy_with_evidence, header_number, key_use, listed, state};
use sqlx::postgres::PgRow;

use crate::{
    error::SqlError,
    listen::Listener,
    literal::{self, column, uid},
    statement::APPS,
    store::{COMMITS, PostgresStore},
};

#[async_trait]
impl HistoryStore for PostgresStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        // Names and uids need no escaping.
        let app = match app {
            AppRef::Name(id) => format!("a.namespace = '{}' AND a.name = '{}'", id.namespace, id.name),
            AppRef::Uid(uid) => format!("a.uid = '{uid}'"),
        };
        let use_of = match key {
            Some(key) => {
                let text = literal::json(&[&key.key])?;
                format!("u.app = a.uid AND u.header = {} AND u.key = {text}::json ->> 0", header_number(key.header))
            }
            None => "false".to_owned(),
        };
        let rows = self.reads.read(format!(
            "SELECT a.document, a.version, rollhook.clock(), encode(u.request, 'hex'), u.revision, u.expires_at \
             FROM rollhook.apps a LEFT JOIN rollhook.keys u ON {use_of} WHERE {app}"
        ));
        rows.await?.first().map(loaded).transpose()
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let (store, count) = (self.clone(), commits.len());
        // A task of its own, so that watchers hear of the commits even if the caller goes away.
        let written = tokio::spawn(async move { store.write(commits).await }).await;
        let stopped = |_| Err(Error::Unavailable { what: "the process is shutting down".to_owned(), cause: None });
        written.unwrap_or_else(|_| (0..count).map(stopped).collect())
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let Page { before, succeeded, limit, .. } = page;
        let rows = self.reads.read(format!(
            "SELECT d.document FROM rollhook.deploys d WHERE d.app = '{app}' AND d.revision < {}{} \
             ORDER BY d.revision DESC LIMIT {}",
            before.map_or(i64::MAX, |before| i64::try_from(before.get()).unwrap_or(i64::MAX)),
            if succeeded { " AND d.succeeded" } else { "" },
            number(limit),
        ));
        rows.await?.iter().map(|row| deploy(column::<&str>(row, 0)?.as_bytes())).collect()
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        let rows = self.reads.read(format!(
            "SELECT d.document, d.evidence FROM rollhook.deploys d WHERE d.app = '{app}' AND d.revision = {}",
            i64::try_from(revision.get()).unwrap_or(i64::MAX),
        ));
        let deploy = |row| {
            let evidence = column::<Option<&str>>(row, 1)?.map(str::as_bytes);
            deploy_with_evidence(column::<&str>(row, 0)?.as_bytes(), evidence)
        };
        rows.await?.first().map(deploy).transpose()
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let within = page.namespace.map(|namespace| format!("a.namespace = '{namespace}' AND ")).unwrap_or_default();
        let (namespace, name) = page.after.map(|after| (after.namespace.into(), after.name.into())).unwrap_or_default();
        let (namespace, name): (String, String) = (namespace, name);
        let rows = self.reads.read(format!(
            "SELECT a.namespace, a.name, a.document FROM rollhook.apps a WHERE {within}(a.namespace, a.name) > ('{namespace}', '{name}') \
             ORDER BY a.namespace, a.name LIMIT {}",
            number(page.limit),
        ));
        let row = |row| listed(column(row, 0)?, column(row, 1)?, column::<&str>(row, 2)?.as_bytes());
        rows.await?.iter().map(row).collect()
    }

    /// Goes from lease to lease by index, so that apps which living replicas drive cost nothing however many they are.
    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        let alive: Vec<String> = alive.iter().map(ToString::to_string).collect();
        let (alive, limit) = (literal::json(&alive)?, number(limit));
        let rows = self.reads.read(format!(
            "WITH RECURSIVE leases AS (
                (SELECT a.lease FROM rollhook.apps a WHERE a.queued_at IS NOT NULL ORDER BY a.lease LIMIT 1)
                UNION ALL
                SELECT (SELECT a.lease FROM rollhook.apps a WHERE a.queued_at IS NOT NULL AND a.lease > l.lease
                        ORDER BY a.lease LIMIT 1)
                FROM leases l WHERE l.lease IS NOT NULL
            )
            SELECT w.uid::text FROM leases l CROSS JOIN LATERAL (
                SELECT a.uid, a.queued_at FROM rollhook.apps a
                WHERE a.lease = l.lease AND a.queued_at IS NOT NULL ORDER BY a.queued_at LIMIT {limit}
            ) w
            WHERE l.lease <> ALL (ARRAY(SELECT json_array_elements_text({alive})))
            ORDER BY w.queued_at, w.uid LIMIT {limit}"
        ));
        rows.await?.iter().map(|row| uid(column(row, 0)?)).collect()
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let (name, boot) = (literal::json(&[&replica.name])?, replica.boot.cast_signed());
        let beat = if ttl.is_zero() {
            format!("DELETE FROM rollhook.replicas r WHERE r.name = {name}::json ->> 0 AND r.boot = {boot}")
        } else {
            format!(
                "INSERT INTO rollhook.replicas (name, boot, seen_at, ttl) \
                 VALUES ({name}::json ->> 0, {boot}, rollhook.clock(), {}) \
                 ON CONFLICT (name) DO UPDATE SET boot = excluded.boot, seen_at = excluded.seen_at, ttl = excluded.ttl",
                i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX),
            )
        };
        // After the clock was set back a heartbeat still lasts no longer than its time.
        let rows = self.writes.write(format!(
            "UPDATE rollhook.replicas r SET seen_at = c.now FROM rollhook.clock() c (now) WHERE r.seen_at > c.now; {beat}; \
             SELECT c.now, r.name, r.boot FROM rollhook.clock() c (now) \
             LEFT JOIN rollhook.replicas r ON r.seen_at >= c.now - r.ttl"
        ));
        heartbeat(&rows.await?)
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        let value = literal::json(&[&driver.0])?;
        let on_conflict =
            if binding == Binding::First { "DO NOTHING" } else { "(name) DO UPDATE SET value = excluded.value" };
        let rows = self.writes.write(format!(
            "INSERT INTO rollhook.settings (name, value) VALUES ('driver', {value}::json ->> 0) ON CONFLICT {on_conflict}; \
             SELECT s.value FROM rollhook.settings s WHERE s.name = 'driver'"
        ));
        let rows = rows.await?;
        let stored = rows.first().ok_or(SqlError::from(sqlx::Error::RowNotFound))?;
        Ok(DriverIdentity(column(stored, 0)?))
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        if !self.is_listening.swap(true, Ordering::Relaxed) {
            let listener = Listener { sender: Arc::clone(&self.sender), hints: self.hints.clone() };
            tokio::spawn(listener.run(Arc::clone(&self.options), self.closing.subscribe()));
        }
        self.hints.watch()
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { apps_per_commit: APPS, commits_at_once: COMMITS }
    }
}

fn loaded(row: &PgRow) -> Result<Loaded> {
    let key = match column::<Option<&str>>(row, 3)? {
        Some(request) => Some(key_use(&literal::unhex(request)?, column(row, 4)?, column(row, 5)?)?),
        None => None,
    };
    Ok(Loaded {
        state: state(column::<&str>(row, 0)?.as_bytes())?,
        version: Version(column::<i64>(row, 1)?.unsigned_abs()),
        key,
        now: Timestamp::from_millis(column(row, 2)?),
    })
}

fn heartbeat(rows: &[PgRow]) -> Result<Heartbeat> {
    let now = rows.first().ok_or(SqlError::from(sqlx::Error::RowNotFound))?;
    let mut heartbeat = Heartbeat { now: Timestamp::from_millis(column(now, 0)?), alive: Vec::new() };
    for row in rows {
        if let Some(name) = column(row, 1)? {
            heartbeat.alive.push(ReplicaId { name, boot: column::<i64>(row, 2)?.cast_unsigned() });
        }
    }
    Ok(heartbeat)
}

pub(crate) fn number(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
