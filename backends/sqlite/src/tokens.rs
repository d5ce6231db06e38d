//! The secrets, sealed before they come near the file.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    ports::{Sealing, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::{KeyId, KeyRing};
use sqlx::{Row, SqliteConnection};

use crate::{
    job::{Job, call},
    reader::Read,
    rows::{to_json, uid},
    store::SqliteStore,
    writer::Write,
};

const OPERATOR_HASH: &str = "operator-hash";

/// A token as it is stored.
#[derive(Debug)]
pub(crate) struct SealedSecret {
    app: AppUid,
    sealed: Vec<u8>,
    created_at: Timestamp,
}

#[async_trait]
impl TokenStore for SqliteStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let sealed = self.ring.seal(token.expose().as_bytes(), &purpose(app))?;
        let created_at = self.write(Put { app, sealed }).await?;
        Ok(WebhookSecret { app, token: token.clone(), created_at })
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let secret = call(&self.lookups, app.clone(), Read::Secret).await?;
        secret.map(|secret| open(&self.ring, &secret)).transpose()
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.write(Remove(app)).await
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        let stored = call(&self.lookups, (), Read::OperatorHash).await?;
        let broken = |_| Error::Corrupt { what: "the management token's hash is not 32 bytes".to_owned(), cause: None };
        stored.map(|hash| hash.try_into().map_err(broken)).transpose()
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        self.write(SetOperatorHash(hash)).await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

impl SqliteStore {
    /// Seals every token anew with the newest key, so that older keys can be deleted; says how many were not sealed
    /// with it before.
    ///
    /// # Errors
    /// `Denied` where a token was sealed with a key that the ring lacks, `Corrupt` where one was damaged; nothing is
    /// changed then.
    pub async fn reseal(&self) -> Result<u64> {
        self.write(Reseal(self.ring.clone())).await
    }

    /// The keys that it seals and opens with.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The keys that tokens are sealed with, and how many with each.
    ///
    /// # Errors
    /// `Unavailable` while the file cannot be read; `Corrupt` where a token names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        self.write(KeysInUse).await
    }
}

/// What a token is sealed for: moved to another app's row it does not open.
fn purpose(app: AppUid) -> Vec<u8> {
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

#[async_trait]
impl Write for Put {
    type Output = Timestamp;

    async fn write(&self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<Result<Timestamp>> {
        let put = sqlx::query(
            "INSERT OR REPLACE INTO tokens (app, sealed, created_at) SELECT id, ?2, ?3 FROM apps WHERE uid = ?1",
        );
        let put = put.bind(self.app.to_string()).bind(&self.sealed).bind(now.as_millis());
        let written = put.execute(connection).await?.rows_affected();
        Ok(if written == 0 { Err(Error::NotFound("app")) } else { Ok(now) })
    }
}

struct Remove(AppUid);

#[async_trait]
impl Write for Remove {
    type Output = ();

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<()>> {
        let remove = "DELETE FROM tokens WHERE app = (SELECT id FROM apps WHERE uid = ?1)";
        sqlx::query(remove).bind(self.0.to_string()).execute(connection).await?;
        Ok(Ok(()))
    }
}

struct SetOperatorHash([u8; 32]);

#[async_trait]
impl Write for SetOperatorHash {
    type Output = ();

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<()>> {
        let set = sqlx::query("INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)");
        set.bind(OPERATOR_HASH).bind(self.0.to_vec()).execute(connection).await?;
        Ok(Ok(()))
    }
}

struct Reseal(std::sync::Arc<KeyRing>);

#[async_trait]
impl Write for Reseal {
    type Output = u64;

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<u64>> {
        let rows = sqlx::query("SELECT t.app, a.uid, t.sealed FROM tokens t JOIN apps a ON a.id = t.app")
            .fetch_all(&mut *connection)
            .await?;
        let mut renewed = Vec::new();
        for row in rows {
            let (app, uid, sealed): (i64, &str, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            match self.renew(uid, &sealed) {
                Ok(Some(sealed)) => renewed.push((app, sealed)),
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        for (app, sealed) in &renewed {
            let update = sqlx::query("UPDATE tokens SET sealed = ?2 WHERE app = ?1").bind(app).bind(sealed);
            update.execute(&mut *connection).await?;
        }
        Ok(Ok(renewed.len() as u64))
    }
}

impl Reseal {
    fn renew(&self, app: &str, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let purpose = purpose(uid(app)?);
        let text = self.0.open(sealed, &purpose)?;
        let is_newest = KeyRing::key_of(sealed)? == self.0.primary();
        Ok(if is_newest { None } else { Some(self.0.seal(&text, &purpose)?) })
    }
}

struct KeysInUse;

#[async_trait]
impl Write for KeysInUse {
    type Output = Vec<(KeyId, u64)>;

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<Self::Output>> {
        let rows: Vec<Vec<u8>> = sqlx::query_scalar("SELECT sealed FROM tokens").fetch_all(connection).await?;
        let mut counts = BTreeMap::new();
        for sealed in rows {
            match KeyRing::key_of(&sealed) {
                Ok(id) => *counts.entry(id).or_default() += 1,
                Err(error) => return Ok(Err(error.into())),
            }
        }
        Ok(Ok(counts.into_iter().collect()))
    }
}

/// Looks tokens up by their apps' names.
pub(crate) async fn find(
    connection: &mut SqliteConnection,
    jobs: &mut [Job<AppId, Option<SealedSecret>>],
) -> sqlx::Result<()> {
    let names: Vec<_> = jobs.iter().map(|job| (&job.ask.namespace, &job.ask.name)).collect();
    let rows = sqlx::query(
        "SELECT j.key, a.uid, t.sealed, t.created_at FROM json_each(?1) j \
         CROSS JOIN apps a ON a.namespace = j.value ->> 0 AND a.name = j.value ->> 1 \
         CROSS JOIN tokens t ON t.app = a.id",
    )
    .bind(to_json(&names)?)
    .fetch_all(connection)
    .await?;
    for job in &mut *jobs {
        job.decide(Ok(None));
    }
    for row in rows {
        let (text, sealed): (&str, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
        let created_at = Timestamp::from_millis(row.try_get(3)?);
        if let Some(job) = jobs.get_mut(row.try_get::<u32, _>(0)? as usize) {
            job.decide(uid(text).map(|app| Some(SealedSecret { app, sealed, created_at })));
        }
    }
    Ok(())
}

/// Reads the management token's hash.
pub(crate) async fn operator_hash(
    connection: &mut SqliteConnection,
    jobs: &mut [Job<(), Option<Vec<u8>>>],
) -> sqlx::Result<()> {
    let read = sqlx::query_scalar("SELECT value FROM settings WHERE name = ?1").bind(OPERATOR_HASH);
    let hash: Option<Vec<u8>> = read.fetch_optional(connection).await?;
    for job in jobs {
        job.decide(Ok(hash.clone()));
    }
    Ok(())
}
