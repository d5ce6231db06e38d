//! The writer's work besides calls: finds commits of other processes, and deletes rows that are no longer needed.

use std::time::Duration;

use rollhook_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

/// The time between deletions.
const SWEEPS: Duration = Duration::from_secs(10);
/// The most rows of a kind that are deleted at once, so that calls wait only briefly.
const ROWS: usize = 1000;
/// The time for which an expired key or record is kept: no replica's clock is further behind.
const EXPIRED_FOR: Duration = Duration::from_secs(3600);

/// The state after the last check.
#[derive(Default)]
pub(crate) struct Housekeeping {
    /// SQLite's number for the last commit of another connection.
    data_version: Option<i64>,
    swept_at: Timestamp,
}

impl Housekeeping {
    /// Deletes some rows if it is time to; returns whether another process has committed since the last look.
    pub(crate) fn run(&mut self, connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
        let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let before = self.data_version.replace(version);
        let is_due = now < self.swept_at || now.since(self.swept_at) >= SWEEPS;
        if is_due && !sweep(connection, now)? {
            self.swept_at = now;
        }
        Ok(before.is_some_and(|before| before != version))
    }
}

/// Deletes expired keys and records, and what removed apps have left; returns whether there may be more.
fn sweep(connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
    let expired_at = now.as_millis().saturating_sub(EXPIRED_FOR.as_millis() as i64);
    let keys = "DELETE FROM keys WHERE (app, header, key) IN \
                (SELECT app, header, key FROM keys WHERE expires_at <= ?1 LIMIT ?2)";
    let is_expired = "SELECT 1 FROM keys WHERE expires_at <= ?1 LIMIT 1";
    let mut more = false;
    // The read before the write takes no lock if there is nothing to delete.
    if connection.prepare_cached(is_expired)?.exists([expired_at])? {
        more |= connection.prepare_cached(keys)?.execute((expired_at, ROWS as i64))? == ROWS;
    }
    let records = "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE expires_at <= ?1 LIMIT ?2)";
    let is_expired = "SELECT 1 FROM records WHERE expires_at <= ?1 LIMIT 1";
    if connection.prepare_cached(is_expired)?.exists([expired_at])? {
        more |= connection.prepare_cached(records)?.execute((expired_at, ROWS as i64))? == ROWS;
    }
    let app: Option<i64> =
        connection.prepare_cached("SELECT app FROM removed LIMIT 1")?.query_row([], |row| row.get(0)).optional()?;
    if let Some(app) = app {
        let deploys = "DELETE FROM deploys WHERE id IN (SELECT id FROM deploys WHERE app = ?1 LIMIT ?2)";
        if connection.prepare_cached(deploys)?.execute((app, ROWS as i64))? < ROWS {
            connection.prepare_cached("DELETE FROM removed WHERE app = ?1")?.execute([app])?;
        }
        more = true;
    }
    Ok(more)
}
