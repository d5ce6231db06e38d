//! Tokens, sealed before they are written to the file.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::{KeyId, KeyRing, token};
use rusqlite::{OptionalExtension, Row};

use crate::{call::Session, history::uid, store::SqliteStore};

pub(crate) const FIND: &str = "
SELECT a.uid, t.sealed, t.created_at FROM apps a JOIN tokens t ON t.app = a.id
WHERE a.namespace = ?1 AND a.name = ?2";
const PUT: &str = "
INSERT OR REPLACE INTO tokens (app, sealed, created_at) SELECT id, ?2, ?3 FROM apps WHERE uid = ?1";
const OF: &str = "SELECT t.sealed, t.created_at FROM tokens t JOIN apps a ON a.id = t.app WHERE a.uid = ?1";
const REMOVE: &str = "DELETE FROM tokens WHERE app = (SELECT id FROM apps WHERE uid = ?1)";
const ALL: &str = "SELECT a.uid, t.sealed, t.app FROM tokens t JOIN apps a ON a.id = t.app";
const RESEAL: &str = "UPDATE tokens SET sealed = ?2 WHERE app = ?1";

#[async_trait]
impl TokenStore for SqliteStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let ring = Arc::clone(&self.ring);
        let token = token.clone();
        self.writer.run(move |session| write(session, &ring, WebhookSecret::new(app, token, session.now))).await
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        let ring = Arc::clone(&self.ring);
        let token = token.clone();
        let rotate = self.writer.run(move |session| {
            let columns = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?));
            let stored = session.statement(OF)?.query_row([app.as_bits().to_be_bytes()], columns).optional()?;
            let Some((sealed, created_at)) = stored else { return Ok(Err(Error::NotFound(Entity::Object))) };
            match token::open(&ring, app, &sealed, created_at) {
                Ok(present) => write(session, &ring, present.rotated(token, until, session.now)),
                Err(error) => Ok(Err(error)),
            }
        });
        rotate.await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let name = (app.namespace.to_string(), app.name.to_string());
        let columns = |row: &Row<'_>| Ok((uid(row, 0)?, row.get::<_, Vec<u8>>(1)?, row.get(2)?));
        let find =
            self.reader.run(move |session| Ok(Ok(session.statement(FIND)?.query_row(name, columns).optional()?)));
        let found = find.await?;
        found.map(|(app, sealed, created_at)| token::open(&self.ring, app, &sealed, created_at)).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.writer
            .run(move |session| session.statement(REMOVE)?.execute([app.as_bits().to_be_bytes()]).map(|_| Ok(())))
            .await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

impl SqliteStore {
    /// Returns the keys that seal and open tokens.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns the keys that tokens are sealed with, and the number of tokens of each.
    ///
    /// # Errors
    /// `Unavailable` if the file cannot be read; `Corrupt` if a token names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        self.long_reader
            .run(|session| Ok(token::usage(sealed(session)?.iter().map(|(_, sealed, _)| (sealed, 1)))))
            .await
    }

    /// Seals every token with the newest key, so that older keys can be deleted; returns how many were sealed with
    /// another.
    ///
    /// # Errors
    /// `Denied` if a token was sealed with a key that the ring lacks, `Corrupt` if one was damaged; nothing is changed
    /// then.
    pub async fn reseal(&self) -> Result<u64> {
        let ring = Arc::clone(&self.ring);
        self.writer
            .run(move |session| {
                let renewed = sealed(session)?.into_iter().filter_map(|(app, sealed, id)| {
                    token::reseal(&ring, app, &sealed).transpose().map(|sealed| Ok((id, sealed?)))
                });
                let renewed: Vec<(i64, Vec<u8>)> = match renewed.collect::<Result<_>>() {
                    Ok(renewed) => renewed,
                    Err(error) => return Ok(Err(error)),
                };
                for row in &renewed {
                    session.statement(RESEAL)?.execute((row.0, &row.1))?;
                }
                Ok(Ok(renewed.len() as u64))
            })
            .await
    }
}

/// Writes an app's tokens.
fn write(session: &Session<'_>, ring: &KeyRing, secret: WebhookSecret) -> rusqlite::Result<Result<WebhookSecret>> {
    let sealed = match token::seal(ring, &secret) {
        Ok(sealed) => sealed,
        Err(error) => return Ok(Err(error)),
    };
    let parameters = (secret.app.as_bits().to_be_bytes(), sealed, secret.created_at.as_millis());
    let written = session.statement(PUT)?.execute(parameters)?;
    Ok(if written == 0 { Err(Error::NotFound(Entity::App)) } else { Ok(secret) })
}

/// Returns every token as it is stored, with its app's uid and row.
fn sealed(session: &Session<'_>) -> rusqlite::Result<Vec<(AppUid, Vec<u8>, i64)>> {
    let mut statement = session.statement(ALL)?;
    statement.query_map([], |row| Ok((uid(row, 0)?, row.get(1)?, row.get(2)?)))?.collect()
}
