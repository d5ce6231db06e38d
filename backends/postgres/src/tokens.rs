//! The secrets, sealed before they come near the database.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenStore, WebhookSecret},
    token::Token,
};
use rollhook_sealing::token;
use serde::Serialize;
use sqlx::postgres::PgRow;

use crate::{
    error::Failure,
    literal::{self, column, hex, uid, unhex},
    shared_read::Question,
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
        let stored = self.tokens.ask(TokenOf(app.clone())).await?;
        let open =
            |(app, sealed, created_at): StoredToken| token::open(&self.ring, uid(&app)?, &unhex(&sealed)?, created_at);
        stored.map(open).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.writes.write(format!("DELETE FROM rollhook.tokens t WHERE t.app = '{app}'")).await?;
        Ok(())
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        let stored = self.operator.ask(OperatorHash).await?;
        stored.map(|hash| token::operator_hash(&unhex(&hash)?)).transpose()
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        self.writes
            .write(format!(
                "INSERT INTO rollhook.settings (name, value) VALUES ('operator-hash', decode('{}', 'hex')) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                hex(&hash),
            ))
            .await?;
        Ok(())
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

/// The question for the token of the app of this name.
#[derive(Serialize)]
pub(crate) struct TokenOf(AppId);

/// The app, the sealed token in hexadecimal digits, and when it was put.
type StoredToken = (String, String, i64);

impl Question for TokenOf {
    type Answer = Option<StoredToken>;

    fn statement(asked: &[Self]) -> Result<String, Failure> {
        Ok(format!(
            "SELECT i.number, t.app::text, encode(t.sealed, 'hex'), t.created_at \
             FROM rows from (json_to_recordset({}) AS (namespace text, name text)) WITH ORDINALITY i (namespace, name, number) \
             JOIN rollhook.apps a ON a.namespace = i.namespace AND a.name = i.name \
             JOIN rollhook.tokens t ON t.app = a.uid",
            literal::json(asked)?,
        ))
    }

    fn answers(asked: &[Self], rows: &[PgRow]) -> Result<Vec<Self::Answer>, Failure> {
        let mut answers: Vec<_> = asked.iter().map(|_| None).collect();
        for row in rows {
            let number = usize::try_from(column::<i64>(row, 0)?).unwrap_or_default();
            if let Some(answer) = answers.get_mut(number.wrapping_sub(1)) {
                *answer = Some((column(row, 1)?, column(row, 2)?, column(row, 3)?));
            }
        }
        Ok(answers)
    }
}

/// The question for the management token's hash.
pub(crate) struct OperatorHash;

impl Question for OperatorHash {
    type Answer = Option<String>;

    fn statement(_: &[Self]) -> Result<String, Failure> {
        Ok("SELECT encode(s.value, 'hex') FROM rollhook.settings s WHERE s.name = 'operator-hash'".to_owned())
    }

    fn answers(asked: &[Self], rows: &[PgRow]) -> Result<Vec<Self::Answer>, Failure> {
        let stored: Option<String> = rows.first().map(|row| column(row, 0)).transpose()?;
        Ok(vec![stored; asked.len()])
    }
}
