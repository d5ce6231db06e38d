//! Records: each write is one statement that compares and writes, and takes its version from a sequence.

use std::time::Duration;

use async_trait::async_trait;
use rollhook_core::{Error, Result, error::Entity, ports::Version, time::Timestamp};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};
use rollhook_sql::{RecordRow, place_columns, record_version};
use sqlx::postgres::PgRow;

use crate::{
    error::SqlError,
    history::number,
    literal::{self, column},
    lookup::Lookup,
    store::PostgresStore,
};

/// The longest time of a record, in milliseconds: added to the clock it stays within a column.
const LONGEST: i64 = i64::MAX / 2;

#[async_trait]
impl RecordStore for PostgresStore {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        let found = self.lookups.record(Lookup::Record { kind: kind.as_str(), key: key.clone() }).await?;
        found.map(|(row, now)| row.decode(now)).transpose()
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        let statement = match version {
            None => insert(kind, &record)?,
            Some(version) => update(kind, &record, version)?,
        };
        let rows = self.writes.write(statement).await?;
        let written: i64 = column(rows.first().ok_or(Error::Conflict(Entity::Version))?, 0)?;
        Ok(Version(written.unsigned_abs()))
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        // Kinds and keys need no escaping.
        let remove = format!("DELETE FROM rollhook.records r WHERE r.kind = '{kind}' AND r.key = '{key}'");
        self.writes.write(remove).await?;
        Ok(())
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        let (created_at, key) = place_columns(after);
        // The time is read once, apart from the rows, so that they are read in the order of their index.
        let rows = self.reads.read(format!(
            "WITH c AS MATERIALIZED (SELECT rollhook.clock() AS now) \
             SELECT r.version, r.key, r.document, r.created_at, r.expires_at, (SELECT c.now FROM c) \
             FROM rollhook.records r WHERE r.kind = '{kind}' AND (r.created_at, r.key) < ({created_at}, '{key}') \
             AND (r.expires_at IS NULL OR r.expires_at > (SELECT c.now FROM c)) \
             ORDER BY r.created_at DESC, r.key DESC LIMIT {}",
            number(limit),
        ));
        rows.await?.iter().map(|row| self::row(row)?.decode(Timestamp::from_millis(column(row, 5)?))).collect()
    }
}

/// Returns the statement that writes a record if there is none. A writer that comes at the same time waits for the end
/// of the other one, and then finds its row.
fn insert(kind: RecordKind, record: &NewRecord) -> Result<String, SqlError> {
    let NewRecord { key, document, ttl } = record;
    Ok(format!(
        "INSERT INTO rollhook.records AS r (kind, key, version, document, created_at, expires_at) \
         SELECT '{kind}', '{key}', nextval('rollhook.record_versions'), {}::json ->> 0, c.now, c.now + {} \
         FROM rollhook.clock() c (now) \
         ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, document = excluded.document, \
         created_at = excluded.created_at, expires_at = excluded.expires_at \
         WHERE r.expires_at <= excluded.created_at RETURNING r.version",
        literal::json(&[document])?,
        millis(*ttl),
    ))
}

/// Returns the statement that replaces the record of this version. A writer that comes at the same time waits for the
/// end of the other one, and then compares the version anew.
fn update(kind: RecordKind, record: &NewRecord, version: Version) -> Result<String, SqlError> {
    let NewRecord { key, document, ttl } = record;
    Ok(format!(
        "UPDATE rollhook.records r SET version = nextval('rollhook.record_versions'), document = {}::json ->> 0, \
         expires_at = c.now + {} \
         FROM rollhook.clock() c (now) WHERE r.kind = '{kind}' AND r.key = '{key}' AND r.version = {} \
         AND (r.expires_at IS NULL OR r.expires_at > c.now) RETURNING r.version",
        literal::json(&[document])?,
        millis(*ttl),
        record_version(version),
    ))
}

/// Returns a record's time as a constant: nothing is added to the clock where there is none.
fn millis(ttl: Option<Duration>) -> String {
    let millis = |ttl: Duration| i64::try_from(ttl.as_millis()).unwrap_or(LONGEST).min(LONGEST);
    ttl.map_or("NULL::bigint".to_owned(), |ttl| millis(ttl).to_string())
}

/// Returns the record of a row that begins with its columns.
fn row(row: &PgRow) -> Result<RecordRow, SqlError> {
    Ok(RecordRow {
        version: column(row, 0)?,
        key: column(row, 1)?,
        document: column(row, 2)?,
        created_at: column(row, 3)?,
        expires_at: column(row, 4)?,
    })
}
