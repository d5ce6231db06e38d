//! The writer's work besides calls: finds commits of other processes, deletes rows that are no longer needed, and folds the
//! write-ahead log of a burst into the file.

use std::{fs, time::Duration};

use rollhook_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::connection::BUSY_TIMEOUT;

/// The time between deletions.
const SWEEPS: Duration = Duration::from_secs(10);
/// The most rows of a kind that are deleted at once, so that calls wait only briefly.
const ROWS: usize = 1000;
/// The time for which an expired key or record is kept: no replica's clock is further behind.
const EXPIRED_FOR: Duration = Duration::from_secs(3600);
/// The most transactions between two deletions for which the store counts as quiet: heartbeats, and a deploy or two.
const QUIET: u64 = 100;
/// The bytes of the write-ahead log that stay while the store is quiet.
const LOG: u64 = 1 << 20;

/// The state after the last check.
#[derive(Default)]
pub(crate) struct Housekeeping {
    /// SQLite's number for the last commit of another connection.
    data_version: Option<i64>,
    swept_at: Timestamp,
    /// The number of transactions by then.
    swept_commits: u64,
}

impl Housekeeping {
    /// Deletes some rows and folds the log if it is time to; returns whether another process has committed since the last
    /// look. `commits` is the number of transactions so far.
    pub(crate) fn run(&mut self, connection: &Connection, now: Timestamp, commits: u64) -> rusqlite::Result<bool> {
        let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let before = self.data_version.replace(version);
        let is_due = now < self.swept_at || now.since(self.swept_at) >= SWEEPS;
        if is_due && !sweep(connection, now)? {
            self.swept_at = now;
            let before = std::mem::replace(&mut self.swept_commits, commits);
            if commits.saturating_sub(before) <= QUIET {
                fold(connection)?;
            }
        }
        Ok(before.is_some_and(|before| before != version))
    }
}

/// Folds a write-ahead log of some size into the file and empties it, unless another connection reads or writes at this
/// moment: the log that a burst leaves would stay as large until the next burst, beside a small database.
fn fold(connection: &Connection) -> rusqlite::Result<()> {
    let log = connection.path().map(|path| format!("{path}-wal"));
    let size = log.and_then(|log| fs::metadata(log).ok()).map_or(0, |log| log.len());
    if size <= LOG {
        return Ok(());
    }
    // Calls do not wait for readers.
    connection.busy_timeout(Duration::ZERO)?;
    let folded = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    folded
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
