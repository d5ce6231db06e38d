//! Records: a write replaces the row by one of another id, which is the record's version.

use async_trait::async_trait;
use rollhook_core::{Error, Result, error::Entity, ports::Version};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};
use rollhook_sql::{RecordRow, place_columns, record_version};
use rusqlite::{OptionalExtension, Row};

use crate::{call::Session, history::limit, store::SqliteStore};

const READ: &str = "
SELECT id, key, document, created_at, expires_at FROM records
WHERE kind = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)";
const FIND: &str = "
SELECT id, created_at FROM records WHERE kind = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3)";
const PUT: &str = "
INSERT OR REPLACE INTO records (kind, key, document, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";
const REMOVE: &str = "DELETE FROM records WHERE kind = ?1 AND key = ?2";
const LIST: &str = "
SELECT id, key, document, created_at, expires_at FROM records
WHERE kind = ?1 AND (created_at, key) < (?2, ?3) AND (expires_at IS NULL OR expires_at > ?4)
ORDER BY created_at DESC, key DESC LIMIT ?5";

/// For a check of their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 4] = [READ, FIND, REMOVE, LIST];

#[async_trait]
impl RecordStore for SqliteStore {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        let key = key.to_string();
        let read = self.reader.run(move |session| {
            let now = session.now;
            let mut statement = session.statement(READ)?;
            let found = statement.query_row((kind.as_str(), key, now.as_millis()), row).optional()?;
            Ok(found.map(|row| row.decode(now)).transpose())
        });
        read.await
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        self.writer.run(move |session| write(session, kind, record, version)).await
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        let key = key.to_string();
        self.writer.run(move |session| session.statement(REMOVE)?.execute((kind.as_str(), key)).map(|_| Ok(()))).await
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        let (created_at, key) = place_columns(after);
        self.long_reader
            .run(move |session| {
                let now = session.now;
                let mut statement = session.statement(LIST)?;
                let parameters = (kind.as_str(), created_at, key, now.as_millis(), self::limit(limit));
                let rows = statement.query_map(parameters, row)?;
                rows.map(|row| row.map(|row| row.decode(now))).collect()
            })
            .await
    }
}

/// Writes the record if its version is this one. No other write gets in between: there is one writer.
fn write(
    session: &Session<'_>,
    kind: RecordKind,
    record: NewRecord,
    version: Option<Version>,
) -> rusqlite::Result<Result<Version>> {
    let (kind, key, now) = (kind.as_str(), record.key.as_str(), session.now);
    let columns = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let stored = session.statement(FIND)?.query_row((kind, key, now.as_millis()), columns).optional()?;
    if stored.map(|(id, _)| id) != version.map(record_version) {
        return Ok(Err(Error::Conflict(Entity::Version)));
    }
    let created_at = stored.map_or(now.as_millis(), |(_, created_at)| created_at);
    let expires_at = record.ttl.map(|ttl| now.after(ttl).as_millis());
    session.statement(PUT)?.execute((kind, key, &record.document, created_at, expires_at))?;
    Ok(Ok(Version(session.connection.last_insert_rowid().unsigned_abs())))
}

/// Returns the row of a query whose columns are those of [`READ`].
fn row(row: &Row<'_>) -> rusqlite::Result<RecordRow> {
    Ok(RecordRow {
        version: row.get(0)?,
        key: row.get(1)?,
        document: row.get(2)?,
        created_at: row.get(3)?,
        expires_at: row.get(4)?,
    })
}
