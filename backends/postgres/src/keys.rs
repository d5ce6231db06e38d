//! The keys that tokens and configurations are sealed with, and their replacement.

use std::sync::Arc;

use rollhook_core::{Result, app::AppUid, configuration::ConfigurationId};
use rollhook_sealing::{KeyId, KeyRing, configuration, token, usage};
use serde::Serialize;
use sqlx::postgres::PgRow;

use crate::{
    configurations::{beside, id},
    literal::{self, column, hex, uid, unhex},
    store::PostgresStore,
};

/// The number of tokens that are sealed anew at once.
const AT_ONCE: usize = 200;
/// The number of configurations that are sealed anew at once: each may have a megabyte.
const CONFIGURATIONS_AT_ONCE: usize = 4;

/// A token that was sealed anew.
#[derive(Serialize)]
struct Resealed {
    app: AppUid,
    old: String,
    new: String,
}

/// A configuration that was sealed anew. It is never replaced by another one, so that the key tells whether it is the old form.
#[derive(Serialize)]
struct ResealedConfiguration {
    app: AppUid,
    id: ConfigurationId,
    old_key: String,
    key: String,
    new: String,
}

impl PostgresStore {
    /// Returns the keys that seal and open tokens and configurations.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns the keys that tokens and configurations are sealed with, and the number of both of each.
    ///
    /// # Errors
    /// `Unavailable` while the server is away; `Corrupt` if a token or configuration names no key.
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
        let tokens = usage::of_sealed(counted.collect::<Result<Vec<_>>>()?)?;
        let rows = self.reads.read("SELECT c.key, count(*) FROM rollhook.configurations c GROUP BY c.key".to_owned());
        let rows = rows.await?;
        let counted =
            rows.iter().map(|row| Ok((column::<&str>(row, 0)?.parse()?, column::<i64>(row, 1)?.unsigned_abs())));
        let configurations = counted.collect::<Result<Vec<_>>>()?;
        Ok(usage::sum([tokens, configurations].concat()))
    }

    /// Seals every token and configuration anew that is not sealed with the newest key, so that older keys can be deleted;
    /// returns their number. The call may be interrupted and repeated. A token that is replaced meanwhile stays as it was put.
    ///
    /// # Errors
    /// `Denied` if one was sealed with a key that the ring lacks, `Corrupt` if one was damaged, `Unavailable` while
    /// the server is away; some may have been sealed anew by then.
    pub async fn reseal(&self) -> Result<u64> {
        Ok(self.reseal_tokens().await? + self.reseal_configurations().await?)
    }

    async fn reseal_tokens(&self) -> Result<u64> {
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

    async fn reseal_configurations(&self) -> Result<u64> {
        let mut count = 0;
        loop {
            let rows = self.reads.read(format!(
                "SELECT c.app::text, c.id::text, c.key, encode(c.sealed, 'hex') FROM rollhook.configurations c \
                 WHERE c.key <> '{}' LIMIT {CONFIGURATIONS_AT_ONCE}",
                self.ring.primary(),
            ));
            let rows = rows.await?;
            if rows.is_empty() {
                return Ok(count);
            }
            let ring = Arc::clone(&self.ring);
            let resealed = beside(move || rows.iter().map(|row| resealed(&ring, row)).collect::<Result<Vec<_>>>());
            let replaced = self.writes.write(format!(
                "UPDATE rollhook.configurations c SET key = n.key, sealed = decode(n.new, 'hex') \
                 FROM json_to_recordset({}) n (app uuid, id uuid, old_key text, key text, new text) \
                 WHERE c.app = n.app AND c.id = n.id AND c.key = n.old_key RETURNING c.app",
                literal::json(&resealed.await?)?,
            ));
            count += u64::try_from(replaced.await?.len()).unwrap_or_default();
        }
    }
}

fn resealed(ring: &KeyRing, row: &PgRow) -> Result<ResealedConfiguration> {
    let (app, id) = (uid(column(row, 0)?)?, id(column(row, 1)?)?);
    let (old_key, old): (String, &str) = (column(row, 2)?, column(row, 3)?);
    let new = configuration::reseal(ring, app, id, unhex(old)?)?;
    Ok(ResealedConfiguration { app, id, old_key, key: new.key.to_string(), new: hex(&new.bytes) })
}
