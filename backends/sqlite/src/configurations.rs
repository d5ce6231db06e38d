//! Configurations, sealed before they are written to the file. They are long: all of their work is done by the threads.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppUid, Namespace},
    configuration::{ConfigurationId, Variables},
    error::Entity,
    ports::{ConfigurationStore, StoredConfiguration},
    time::Timestamp,
};
use rollhook_sealing::configuration::{self, Sealed};
use rusqlite::{OptionalExtension, Row};

use crate::{call::Session, store::SqliteStore};

const IS_THERE: &str = "SELECT id FROM apps WHERE uid = ?1";
/// One that is there is the same: an id has one configuration.
const PUT: &str = "
INSERT OR IGNORE INTO configurations (app, id, created_at, key, sealed) VALUES (?1, ?2, ?3, ?4, ?5)";
const GET: &str = "
SELECT sealed FROM configurations WHERE app = (SELECT id FROM apps WHERE uid = ?1) AND id = ?2";
const LIST: &str = "
SELECT id, created_at, length(sealed) FROM configurations WHERE app = (SELECT id FROM apps WHERE uid = ?1)";
const BYTES_OF: &str = "
SELECT coalesce(sum(length(c.sealed)), 0) FROM apps a JOIN configurations c ON c.app = a.id WHERE a.namespace = ?1";
const REMOVE: &str = "DELETE FROM configurations WHERE app = (SELECT id FROM apps WHERE uid = ?1) AND id = ?2";

/// For a check of their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 5] = [IS_THERE, GET, LIST, BYTES_OF, REMOVE];

#[async_trait]
impl ConfigurationStore for SqliteStore {
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        let (ring, variables) = (Arc::clone(&self.ring), variables.clone());
        // Beside the writer, for which everyone else waits.
        let sealed = self.long_reader.run(move |_| Ok(configuration::seal(&ring, app, id, &variables))).await?;
        self.writer.run(move |session| write(session, app, id, &sealed)).await
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        let ring = Arc::clone(&self.ring);
        let get = self.long_reader.run(move |session| {
            let mut statement = session.statement(GET)?;
            let found = statement.query_row((uid(app), bytes(id)), |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(found.map(|sealed| configuration::open(&ring, app, id, &sealed)).transpose())
        });
        get.await
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        let list = self.long_reader.run(move |session| {
            let mut statement = session.statement(LIST)?;
            let rows = statement.query_map([uid(app)], |row| {
                let (created_at, bytes): (i64, i64) = (row.get(1)?, row.get(2)?);
                let created_at = Timestamp::from_millis(created_at);
                Ok(StoredConfiguration { id: self::id(row, 0)?, bytes: bytes.unsigned_abs(), created_at })
            })?;
            rows.map(|row| row.map(Ok)).collect()
        });
        list.await
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        let namespace = namespace.to_string();
        let bytes = self.long_reader.run(move |session| {
            let bytes: i64 = session.statement(BYTES_OF)?.query_row([namespace], |row| row.get(0))?;
            Ok(Ok(bytes.unsigned_abs()))
        });
        bytes.await
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        let ids = ids.to_vec();
        let remove = self.writer.run(move |session| {
            let mut statement = session.statement(REMOVE)?;
            for id in ids {
                statement.execute((uid(app), bytes(id)))?;
            }
            Ok(Ok(()))
        });
        remove.await
    }
}

/// Writes a configuration.
fn write(session: &Session<'_>, app: AppUid, id: ConfigurationId, sealed: &Sealed) -> rusqlite::Result<Result<()>> {
    let row = session.statement(IS_THERE)?.query_row([uid(app)], |row| row.get::<_, i64>(0)).optional()?;
    let Some(row) = row else { return Ok(Err(Error::NotFound(Entity::App))) };
    let values = (row, bytes(id), session.now.as_millis(), sealed.key.as_str(), &sealed.bytes);
    session.statement(PUT)?.execute(values)?;
    Ok(Ok(()))
}

fn uid(app: AppUid) -> [u8; 16] {
    app.as_bits().to_be_bytes()
}

fn bytes(id: ConfigurationId) -> [u8; 16] {
    id.0.to_be_bytes()
}

/// Returns the id in a column.
pub(crate) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<ConfigurationId> {
    row.get(column).map(|bytes| ConfigurationId(u128::from_be_bytes(bytes)))
}
