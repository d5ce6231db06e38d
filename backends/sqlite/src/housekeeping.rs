//! What the writer does besides writing for callers: deleting what nobody needs, a little at a time, and looking for
//! what other processes wrote.

use std::time::Duration;

use rollhook_core::time::Timestamp;
use sqlx::SqliteConnection;

use crate::rows::entry_id;

/// How often expired keys are deleted, while anything is written.
const PRUNING: Duration = Duration::from_secs(10);
/// The most rows that are deleted at once, so that no accept waits long for it.
const SWEEP: i64 = 1000;

/// What the writer has to look after, and when it did so last.
pub(crate) struct Housekeeping {
    /// SQLite's number for the last change by others that was seen.
    seen_version: Option<i64>,
    pruned_at: Timestamp,
    /// Whether entries of removed apps may be left.
    leftovers: bool,
}

impl Default for Housekeeping {
    fn default() -> Self {
        Self { seen_version: None, pruned_at: Timestamp::default(), leftovers: true }
    }
}

impl Housekeeping {
    /// Whether another process wrote since the last look.
    pub(crate) async fn others_wrote(&mut self, connection: &mut SqliteConnection) -> sqlx::Result<bool> {
        let version: i64 = sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await?;
        let before = self.seen_version.replace(version);
        Ok(before.is_some_and(|before| before != version))
    }

    /// Deletes some expired keys, if it is time to; within a transaction.
    pub(crate) async fn prune(&mut self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<()> {
        let is_due = now < self.pruned_at || now.since(self.pruned_at) >= PRUNING;
        if !is_due {
            return Ok(());
        }
        let delete = "DELETE FROM keys WHERE (app, header, key) IN \
                      (SELECT app, header, key FROM keys WHERE expires_at <= ?1 LIMIT ?2)";
        let deleted = sqlx::query(delete).bind(now.as_millis()).bind(SWEEP).execute(connection).await?;
        if deleted.rows_affected() < SWEEP.unsigned_abs() {
            self.pruned_at = now;
        }
        Ok(())
    }

    /// The next look at what others wrote is the first.
    pub(crate) fn forget_version(&mut self) {
        self.seen_version = None;
    }

    /// An app may have been removed.
    pub(crate) fn expect_leftovers(&mut self) {
        self.leftovers = true;
    }

    /// Whether a removed app may have left something.
    pub(crate) fn expects_leftovers(&self) -> bool {
        self.leftovers
    }

    /// Deletes some of what removed apps have left.
    pub(crate) async fn sweep(&mut self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let app: Option<i64> =
            sqlx::query_scalar("SELECT app FROM leftovers LIMIT 1").fetch_optional(&mut *connection).await?;
        let Some(app) = app else {
            self.leftovers = false;
            return Ok(());
        };
        let entries = "DELETE FROM deploys WHERE id IN (SELECT id FROM deploys WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)";
        let entries = sqlx::query(entries).bind(entry_id(app, 0)).bind(entry_id(app, u64::MAX)).bind(SWEEP);
        let keys =
            "DELETE FROM keys WHERE (app, header, key) IN (SELECT app, header, key FROM keys WHERE app = ?1 LIMIT ?2)";
        let keys = sqlx::query(keys).bind(app).bind(SWEEP);
        let deleted = entries.execute(&mut *connection).await?.rows_affected()
            + keys.execute(&mut *connection).await?.rows_affected();
        if deleted == 0 {
            sqlx::query("DELETE FROM leftovers WHERE app = ?1").bind(app).execute(connection).await?;
        }
        Ok(())
    }
}
