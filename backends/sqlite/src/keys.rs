//! The keys that tokens and configurations are sealed with, and their replacement.

use std::sync::Arc;

use rollhook_core::{Result, app::AppUid, configuration::ConfigurationId};
use rollhook_sealing::{
    KeyId, KeyRing,
    configuration::{self, Sealed},
    token, usage,
};

use crate::{call::Session, configurations::id, history::uid, store::SqliteStore};

const TOKENS: &str = "SELECT a.uid, t.sealed, t.app FROM tokens t JOIN apps a ON a.id = t.app";
const RESEAL_TOKEN: &str = "UPDATE tokens SET sealed = ?2 WHERE app = ?1";
const CONFIGURATION_KEYS: &str = "SELECT key, count(*) FROM configurations GROUP BY key";
const OTHER_CONFIGURATIONS: &str = "
SELECT a.uid, c.id, c.sealed, c.rowid FROM configurations c JOIN apps a ON a.id = c.app WHERE c.key <> ?1 LIMIT ?2";
const RESEAL_CONFIGURATION: &str = "UPDATE configurations SET key = ?2, sealed = ?3 WHERE rowid = ?1";

/// The number of configurations that are sealed anew at once, so that calls wait only briefly: each may have a megabyte.
const AT_ONCE: usize = 8;

/// A configuration as it is stored.
struct Stored {
    app: AppUid,
    id: ConfigurationId,
    sealed: Vec<u8>,
    row: i64,
}

impl SqliteStore {
    /// Returns the keys that seal and open tokens and configurations.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns the keys that tokens and configurations are sealed with, and the number of both of each.
    ///
    /// # Errors
    /// `Unavailable` if the file cannot be read; `Corrupt` if a token or configuration names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        self.long_reader
            .run(|session| {
                let tokens = usage::of_sealed(tokens(session)?.iter().map(|(_, sealed, _)| (sealed, 1)));
                let configurations = configuration_keys(session)?;
                Ok(tokens.and_then(|tokens| Ok(usage::sum([tokens, configurations?].concat()))))
            })
            .await
    }

    /// Seals every token and configuration with the newest key, so that older keys can be deleted; returns how many were
    /// sealed with another. The call may be interrupted and repeated.
    ///
    /// # Errors
    /// `Denied` if one was sealed with a key that the ring lacks, `Corrupt` if one was damaged: no token is changed if it is a
    /// token, and of configurations some may have been sealed anew.
    pub async fn reseal(&self) -> Result<u64> {
        let ring = Arc::clone(&self.ring);
        let mut count = self.writer.run(move |session| reseal_tokens(session, &ring)).await?;
        loop {
            let ring = Arc::clone(&self.ring);
            let resealed = self.writer.run(move |session| reseal_configurations(session, &ring)).await?;
            count += resealed;
            if resealed == 0 {
                return Ok(count);
            }
        }
    }
}

/// Returns every token as it is stored, with its app's uid and row.
fn tokens(session: &Session<'_>) -> rusqlite::Result<Vec<(AppUid, Vec<u8>, i64)>> {
    let mut statement = session.statement(TOKENS)?;
    statement.query_map([], |row| Ok((uid(row, 0)?, row.get(1)?, row.get(2)?)))?.collect()
}

fn configuration_keys(session: &Session<'_>) -> rusqlite::Result<Result<Vec<(KeyId, u64)>>> {
    let mut statement = session.statement(CONFIGURATION_KEYS)?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().map(|(key, count)| Ok((key.parse()?, count.unsigned_abs()))).collect())
}

fn reseal_tokens(session: &Session<'_>, ring: &KeyRing) -> rusqlite::Result<Result<u64>> {
    let renewed = tokens(session)?
        .into_iter()
        .filter_map(|(app, sealed, id)| token::reseal(ring, app, &sealed).transpose().map(|sealed| Ok((id, sealed?))));
    let renewed: Vec<(i64, Vec<u8>)> = match renewed.collect::<Result<_>>() {
        Ok(renewed) => renewed,
        Err(error) => return Ok(Err(error)),
    };
    for row in &renewed {
        session.statement(RESEAL_TOKEN)?.execute((row.0, &row.1))?;
    }
    Ok(Ok(renewed.len() as u64))
}

/// Seals some configurations anew; returns how many.
fn reseal_configurations(session: &Session<'_>, ring: &KeyRing) -> rusqlite::Result<Result<u64>> {
    let primary = ring.primary();
    let mut statement = session.statement(OTHER_CONFIGURATIONS)?;
    let rows = statement.query_map((primary.as_str(), AT_ONCE as i64), |row| {
        Ok(Stored { app: uid(row, 0)?, id: id(row, 1)?, sealed: row.get(2)?, row: row.get(3)? })
    })?;
    let stored = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let renewed = stored.into_iter().map(|stored| {
        let Stored { app, id, sealed, row } = stored;
        configuration::reseal(ring, app, id, sealed).map(|sealed| (row, sealed))
    });
    let renewed: Vec<(i64, Sealed)> = match renewed.collect::<Result<_>>() {
        Ok(renewed) => renewed,
        Err(error) => return Ok(Err(error)),
    };
    for (row, sealed) in &renewed {
        session.statement(RESEAL_CONFIGURATION)?.execute((row, sealed.key.as_str(), &sealed.bytes))?;
    }
    Ok(Ok(renewed.len() as u64))
}
