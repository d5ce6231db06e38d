//! The keys that tokens are sealed with, and their replacement.

use rollhook_core::{Error, Result, app::AppUid};
use rollhook_sealing::{KeyId, KeyRing};
use serde::Serialize;
use sqlx::{Row, postgres::PgRow};

use crate::{
    ask::{Ask, ask},
    literal,
    rows::uid,
    store::PostgresStore,
    tokens::purpose,
};

/// How many tokens are sealed anew at once.
const AT_ONCE: usize = 200;

impl PostgresStore {
    /// The keys that it seals and opens with.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The keys that tokens are sealed with, and how many with each.
    ///
    /// # Errors
    /// `Unavailable` while the server is away; `Corrupt` where a token names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        ask(&self.pages, KeysInUse).await
    }

    /// Seals every token anew that is not sealed with the newest key, so that older keys can be deleted; says how many
    /// those were. It may be interrupted and repeated. A token that is replaced meanwhile stays as it was put.
    ///
    /// # Errors
    /// `Denied` where a token was sealed with a key that the ring lacks, `Corrupt` where one was damaged, `Unavailable`
    /// while the server is away; some may have been sealed anew by then.
    pub async fn reseal(&self) -> Result<u64> {
        let (mut resealed, mut after) = (0, 0);
        loop {
            let stored = ask(&self.pages, StoredTokens { after }).await?;
            let Some(last) = stored.last() else { return Ok(resealed) };
            after = last.app;
            let renewed = stored.iter().map(|stored| self.renewed(stored)).collect::<Result<Vec<_>>>()?;
            let renewed: Vec<Renewed> = renewed.into_iter().flatten().collect();
            if !renewed.is_empty() {
                resealed += ask(&self.rare, Replace(renewed)).await?;
            }
        }
    }

    fn renewed(&self, stored: &StoredToken) -> Result<Option<Renewed>> {
        let purpose = purpose(stored.uid);
        let text = self.ring.open(&stored.sealed, &purpose)?;
        if KeyRing::key_of(&stored.sealed)? == self.ring.primary() {
            return Ok(None);
        }
        let new = literal::hex(&self.ring.seal(&text, &purpose)?);
        Ok(Some(Renewed { app: stored.app, old: literal::hex(&stored.sealed), new }))
    }
}

struct KeysInUse;

impl Ask for KeysInUse {
    type Answer = Vec<(KeyId, u64)>;

    /// What stands before the nonce names the key: its second byte tells how long the name is.
    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok("SELECT encode(CASE WHEN length(t.sealed) < 2 THEN t.sealed \
            ELSE substring(t.sealed FROM 1 FOR 2 + get_byte(t.sealed, 1)) END, 'hex') AS head, count(*) \
            FROM rollhook.tokens t GROUP BY head ORDER BY head"
            .to_owned())
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Self::Answer>> {
        let broken = || Error::Corrupt { what: "a stored token names no key".to_owned(), cause: None };
        rows.iter()
            .map(|row| {
                let (head, count): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
                let id = literal::unhex(head).and_then(|head| KeyRing::key_of(&head).ok()).ok_or_else(broken);
                Ok(id.map(|id| (id, count.unsigned_abs())))
            })
            .collect()
    }

    fn reads(&self) -> bool {
        true
    }
}

struct StoredTokens {
    after: i64,
}

struct StoredToken {
    app: i64,
    uid: AppUid,
    sealed: Vec<u8>,
}

impl Ask for StoredTokens {
    type Answer = Vec<StoredToken>;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!(
            "SELECT t.app, a.uid, encode(t.sealed, 'hex') FROM rollhook.tokens t JOIN rollhook.apps a ON a.id = t.app \
             WHERE t.app > {} ORDER BY t.app LIMIT {AT_ONCE}",
            self.after
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Self::Answer>> {
        let token = |row: &PgRow| {
            let sealed = literal::unhex(row.try_get(2)?).ok_or(sqlx::Error::RowNotFound)?;
            Ok(StoredToken { app: row.try_get(0)?, uid: uid(row.try_get(1)?)?, sealed })
        };
        rows.iter().map(token).collect::<sqlx::Result<_>>().map(Ok)
    }

    fn reads(&self) -> bool {
        true
    }
}

#[derive(Serialize)]
struct Renewed {
    app: i64,
    old: String,
    new: String,
}

/// Replaces tokens that are still what they were.
struct Replace(Vec<Renewed>);

impl Ask for Replace {
    type Answer = u64;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.replace_tokens({})", literal::json(&self.0)?))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<u64>> {
        let replaced: i64 = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        Ok(Ok(replaced.unsigned_abs()))
    }
}
