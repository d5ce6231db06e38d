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
use rollhook_sealing::{KeyRing, token};
use rusqlite::{OptionalExtension, Row};

use crate::{call::Session, history::uid, store::SqliteStore};

pub(crate) const FIND: &str = "
SELECT a.uid, t.sealed, t.created_at FROM apps a JOIN tokens t ON t.app = a.id
WHERE a.namespace = ?1 AND a.name = ?2";
const PUT: &str = "
INSERT OR REPLACE INTO tokens (app, sealed, created_at) SELECT id, ?2, ?3 FROM apps WHERE uid = ?1";
const OF: &str = "SELECT t.sealed, t.created_at FROM tokens t JOIN apps a ON a.id = t.app WHERE a.uid = ?1";
const REMOVE: &str = "DELETE FROM tokens WHERE app = (SELECT id FROM apps WHERE uid = ?1)";

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
