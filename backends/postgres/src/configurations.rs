//! Configurations, sealed before they are sent to the database. They are long, so that they are sealed and opened beside the
//! event loop.

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
use rollhook_sealing::configuration;

use crate::{
    literal::{column, hex, unhex},
    store::PostgresStore,
    tokens::UPDATED_AT,
};

#[async_trait]
impl ConfigurationStore for PostgresStore {
    /// The app's row is locked, so that none is put for an app that is just being removed. One that is there is the same: an id
    /// has one configuration.
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        let (ring, variables) = (Arc::clone(&self.ring), variables.clone());
        let sealed = beside(move || {
            let sealed = configuration::seal(&ring, app, id, &variables)?;
            Ok((sealed.key, hex(&sealed.bytes)))
        });
        let (key, sealed) = sealed.await?;
        let rows = self.writes.write(format!(
            "INSERT INTO rollhook.configurations AS c (app, id, created_at, key, sealed) \
             SELECT a.uid, '{id}', greatest(rollhook.clock(), ({UPDATED_AT})::bigint), '{key}', decode('{sealed}', 'hex') \
             FROM rollhook.apps a WHERE a.uid = '{app}' FOR KEY SHARE OF a \
             ON CONFLICT (app, id) DO UPDATE SET created_at = c.created_at RETURNING c.app",
        ));
        if rows.await?.is_empty() { Err(Error::NotFound(Entity::App)) } else { Ok(()) }
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        let rows = self.reads.read(format!(
            "SELECT encode(c.sealed, 'hex') FROM rollhook.configurations c WHERE c.app = '{app}' AND c.id = '{id}'"
        ));
        let rows = rows.await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (ring, sealed) = (Arc::clone(&self.ring), column::<String>(row, 0)?);
        beside(move || configuration::open(&ring, app, id, &unhex(&sealed)?)).await.map(Some)
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        let rows = self.reads.read(format!(
            "SELECT c.id::text, octet_length(c.sealed)::bigint, c.created_at FROM rollhook.configurations c \
             WHERE c.app = '{app}'"
        ));
        let listed = |row| {
            let (bytes, created_at): (i64, i64) = (column(row, 1)?, column(row, 2)?);
            let created_at = Timestamp::from_millis(created_at);
            Ok(StoredConfiguration { id: id(column(row, 0)?)?, bytes: bytes.unsigned_abs(), created_at })
        };
        rows.await?.iter().map(listed).collect()
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        let rows = self.reads.read(format!(
            "SELECT coalesce(sum(octet_length(c.sealed)), 0)::bigint FROM rollhook.configurations c \
             JOIN rollhook.apps a ON a.uid = c.app WHERE a.namespace = '{namespace}'"
        ));
        let rows = rows.await?;
        let bytes: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        Ok(bytes.unsigned_abs())
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
        let statement = format!(
            "DELETE FROM rollhook.configurations c WHERE c.app = '{app}' AND c.id = ANY (ARRAY[{}]::uuid[])",
            ids.join(", ")
        );
        self.writes.write(statement).await?;
        Ok(())
    }
}

/// Does work on long values, and returns what it does.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::unavailable("sealing a configuration was cut off", error)))
}

/// Parses a configuration's id as PostgreSQL writes it.
pub(crate) fn id(text: &str) -> Result<ConfigurationId> {
    text.replace('-', "").parse().map_err(|error| Error::corrupt("a stored id cannot be read", error))
}
