//! Tokens, sealed before they are sent to the database.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::token;

use crate::{
    literal::{column, hex, uid, unhex},
    lookup::Lookup,
    store::PostgresStore,
};

/// The number of attempts of a rotation while others change the token.
const ATTEMPTS: usize = 5;

/// The time in an app's document. PostgreSQL reads no JSON that has the character 0 in any of its texts, as the message
/// of a deploy may that failed by what a program has printed; the text of none of them matters here.
pub(crate) const UPDATED_AT: &str = r"replace(a.document, $nul$\u0000$nul$, $nul$\u0001$nul$)::json ->> 'updated_at'";

#[async_trait]
impl TokenStore for PostgresStore {
    /// The app's row is locked, so that no token is put for an app that is just being removed.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let sealed = token::seal(&self.ring, &WebhookSecret::new(app, token.clone(), Timestamp::default()))?;
        let rows = self.writes.write(format!(
            "INSERT INTO rollhook.tokens AS t (app, sealed, created_at) \
             SELECT a.uid, decode('{}', 'hex'), greatest(rollhook.clock(), ({UPDATED_AT})::bigint) \
             FROM rollhook.apps a WHERE a.uid = '{app}' FOR KEY SHARE OF a \
             ON CONFLICT (app) DO UPDATE \
             SET sealed = excluded.sealed, created_at = greatest(excluded.created_at, t.created_at) \
             RETURNING t.created_at",
            hex(&sealed),
        ));
        let rows = rows.await?;
        token::open(&self.ring, app, &sealed, column(rows.first().ok_or(Error::NotFound(Entity::App))?, 0)?)
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        for _ in 0..ATTEMPTS {
            let present = self.writes.write(format!(
                "SELECT encode(t.sealed, 'hex'), t.created_at FROM rollhook.tokens t WHERE t.app = '{app}'"
            ));
            let present = present.await?;
            let Some(row) = present.first() else { return Err(Error::NotFound(Entity::Object)) };
            let stored: String = column(row, 0)?;
            let present = token::open(&self.ring, app, &unhex(&stored)?, column(row, 1)?)?;
            let rotated = token::seal(&self.ring, &present.rotated(token.clone(), until, Timestamp::default()))?;
            // Another call may have replaced it meanwhile.
            let rows = self.writes.write(format!(
                "UPDATE rollhook.tokens t SET sealed = decode('{}', 'hex'), \
                 created_at = greatest(rollhook.clock(), t.created_at) \
                 WHERE t.app = '{app}' AND t.sealed = decode('{stored}', 'hex') RETURNING t.created_at",
                hex(&rotated),
            ));
            if let Some(row) = rows.await?.first() {
                return token::open(&self.ring, app, &rotated, column(row, 0)?);
            }
        }
        Err(Error::Conflict(Entity::Object))
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
