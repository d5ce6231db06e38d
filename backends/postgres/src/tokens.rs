//! Tokens, sealed before they are sent to the database.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenStore, WebhookSecret},
    token::Token,
};
use rollhook_sealing::token;

use crate::{
    literal::{column, hex, uid, unhex},
    lookup::Lookup,
    store::PostgresStore,
};

#[async_trait]
impl TokenStore for PostgresStore {
    /// The app's row is locked, so that no token is put for an app that is just being removed.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let sealed = token::seal(&self.ring, app, token)?;
        let rows = self.writes.write(format!(
            "INSERT INTO rollhook.tokens AS t (app, sealed, created_at) \
             SELECT a.uid, decode('{}', 'hex'), greatest(rollhook.clock(), (a.document::json ->> 'updated_at')::bigint) \
             FROM rollhook.apps a WHERE a.uid = '{app}' FOR KEY SHARE OF a \
             ON CONFLICT (app) DO UPDATE \
             SET sealed = excluded.sealed, created_at = greatest(excluded.created_at, t.created_at) \
             RETURNING t.created_at",
            hex(&sealed),
        ));
        let rows = rows.await?;
        token::open(&self.ring, app, &sealed, column(rows.first().ok_or(Error::NotFound(Entity::App))?, 0)?)
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let found = self.lookups.token(Lookup::Token(app.clone())).await?;
        found.map(|row| token::open(&self.ring, uid(&row.app)?, &unhex(&row.sealed)?, row.created_at)).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.writes.write(format!("DELETE FROM rollhook.tokens t WHERE t.app = '{app}'")).await?;
        Ok(())
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}
