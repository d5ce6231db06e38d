//! The keys that tokens are sealed with, and their replacement.

use rollhook_core::{Result, app::AppUid};
use rollhook_sealing::{KeyId, KeyRing, token};
use serde::Serialize;

use crate::{
    literal::{self, column, hex, uid, unhex},
    store::PostgresStore,
};

/// The number of tokens that are sealed anew at once.
const AT_ONCE: usize = 200;

/// A token that was sealed anew.
#[derive(Serialize)]
struct Resealed {
    app: AppUid,
    old: String,
    new: String,
}

impl PostgresStore {
    /// Returns the keys that seal and open tokens.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns the keys that tokens are sealed with, and the number of tokens of each.
    ///
    /// # Errors
    /// `Unavailable` while the server is away; `Corrupt` if a token names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        // The second byte tells the length of the key's name, which stands before the nonce.
        let rows = self.reads.read(
            "SELECT encode(CASE WHEN length(t.sealed) < 2 THEN t.sealed \
             ELSE substring(t.sealed FROM 1 FOR 2 + get_byte(t.sealed, 1)) END, 'hex') AS head, count(*) \
             FROM rollhook.tokens t GROUP BY head"
                .to_owned(),
        );
        let rows = rows.await?;
        let counted = rows.iter().map(|row| Ok((unhex(column(row, 0)?)?, column::<i64>(row, 1)?.unsigned_abs())));
        token::usage(counted.collect::<Result<Vec<_>>>()?)
    }

    /// Seals every token anew that is not sealed with the newest key, so that older keys can be deleted; returns their
    /// number. The call may be interrupted and repeated. A token that is replaced meanwhile stays as it was put.
    ///
    /// # Errors
    /// `Denied` if a token was sealed with a key that the ring lacks, `Corrupt` if one was damaged, `Unavailable` while
    /// the server is away; some may have been sealed anew by then.
    pub async fn reseal(&self) -> Result<u64> {
        let (mut count, mut after) = (0, String::new());
        loop {
            let rows = self.reads.read(format!(
                "SELECT t.app::text, encode(t.sealed, 'hex') FROM rollhook.tokens t {after} ORDER BY t.app LIMIT {AT_ONCE}"
            ));
            let rows = rows.await?;
            let Some(last) = rows.last() else { return Ok(count) };
            after = format!("WHERE t.app > '{}'", uid(column(last, 0)?)?);
            let mut resealed = Vec::new();
            for row in &rows {
                let (app, old): (AppUid, &str) = (uid(column(row, 0)?)?, column(row, 1)?);
                if let Some(new) = token::reseal(&self.ring, app, &unhex(old)?)? {
                    resealed.push(Resealed { app, old: old.to_owned(), new: hex(&new) });
                }
            }
            let replaced = self.writes.write(format!(
                "UPDATE rollhook.tokens t SET sealed = decode(n.new, 'hex') \
                 FROM json_to_recordset({}) n (app uuid, old text, new text) \
                 WHERE t.app = n.app AND t.sealed = decode(n.old, 'hex') RETURNING t.app",
                literal::json(&resealed)?,
            ));
            count += u64::try_from(replaced.await?.len()).unwrap_or_default();
        }
    }
}
