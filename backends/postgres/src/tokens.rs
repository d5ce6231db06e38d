//! The secrets, sealed before they come near the database.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    ports::{Sealing, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::KeyRing;
use sqlx::{Row, postgres::PgRow};

use crate::{
    ask::{Ask, ask},
    job::call,
    literal,
    lookup::{Lookup, SealedSecret},
    operator::{HashCall, SetHash},
    store::PostgresStore,
};

#[async_trait]
impl TokenStore for PostgresStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let sealed = self.ring.seal(token.expose().as_bytes(), &purpose(app))?;
        let created_at = ask(&self.rare, Put { app, sealed }).await?;
        Ok(WebhookSecret { app, token: token.clone(), created_at })
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let secret = call(&self.lookups, app.clone(), Lookup::Secret).await?;
        secret.map(|secret| open(&self.ring, &secret)).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        ask(&self.rare, Remove(app)).await
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        call(&self.operator, (), HashCall).await
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        ask(&self.rare, SetHash(hash)).await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

/// What a token is sealed for: moved to another app's row it does not open.
pub(crate) fn purpose(app: AppUid) -> Vec<u8> {
    format!("webhook-token:{app}").into_bytes()
}

fn open(ring: &KeyRing, secret: &SealedSecret) -> Result<WebhookSecret> {
    let text = ring.open(&secret.sealed, &purpose(secret.app))?;
    let token = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    let token = token.ok_or_else(|| Error::Corrupt { what: "what was sealed is no token".to_owned(), cause: None })?;
    Ok(WebhookSecret { app: secret.app, token, created_at: secret.created_at })
}

struct Put {
    app: AppUid,
    sealed: Vec<u8>,
}

impl Ask for Put {
    type Answer = Timestamp;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.put_token('{}', decode('{}', 'hex'))", self.app, literal::hex(&self.sealed)))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Timestamp>> {
        let created_at: Option<i64> = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        Ok(created_at.map(Timestamp::from_millis).ok_or(Error::NotFound("app")))
    }
}

struct Remove(AppUid);

impl Ask for Remove {
    type Answer = ();

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.remove_token('{}')", self.0))
    }

    fn answer(&self, _: &[PgRow]) -> sqlx::Result<Result<()>> {
        Ok(Ok(()))
    }
}
