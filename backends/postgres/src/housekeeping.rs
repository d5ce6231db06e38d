//! Deletes what has long expired, and closes connections that are not used.

use std::time::Duration;

use rollhook_core::Result;
use tokio::{sync::watch, time::sleep};

use crate::{connections::Connections, error::SqlError, literal::column};

/// The time between two runs.
const PAUSE: Duration = Duration::from_secs(30);
/// The time between two runs while there is more to delete.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// The most keys, and the most records, that are deleted at once, so that their deletion keeps nothing waiting.
const AT_ONCE: i64 = 1000;

/// Keeps house until the store is closed.
pub(crate) async fn run(connections: [Connections; 3], mut closing: watch::Receiver<()>) {
    let [writes, ..] = &connections;
    let mut pause = SHORT_PAUSE;
    loop {
        tokio::select! {
            _ = closing.changed() => return,
            () = sleep(pause) => {}
        }
        // A failure is in the log, and the next time may be better.
        pause = if sweep(writes).await.is_ok_and(|deleted| deleted == AT_ONCE) { SHORT_PAUSE } else { PAUSE };
        connections.iter().for_each(Connections::close_unused);
    }
}

/// Deletes keys and records that expired an hour ago, and names of replicas that are gone since yesterday; returns how
/// many keys or records, whichever are more. Rows that another process changes are left to it.
async fn sweep(writes: &Connections) -> Result<i64> {
    let rows = writes.write(format!(
        "DELETE FROM rollhook.replicas r WHERE r.name = ANY (ARRAY( \
             SELECT o.name FROM rollhook.replicas o WHERE o.seen_at < rollhook.clock() - 24 * 3600000 \
             FOR UPDATE SKIP LOCKED)); \
         WITH keys AS (DELETE FROM rollhook.keys k WHERE k.ctid = ANY (ARRAY( \
             SELECT e.ctid FROM rollhook.keys e WHERE e.expires_at < (SELECT rollhook.clock()) - 3600000 \
             ORDER BY e.expires_at LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED)) RETURNING 1), \
         records AS (DELETE FROM rollhook.records r WHERE r.ctid = ANY (ARRAY( \
             SELECT e.ctid FROM rollhook.records e WHERE e.expires_at < (SELECT rollhook.clock()) - 3600000 \
             ORDER BY e.expires_at LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED)) RETURNING 1) \
         SELECT greatest((SELECT count(*) FROM keys), (SELECT count(*) FROM records))"
    ));
    let rows = rows.await?;
    Ok(column(rows.first().ok_or(SqlError::from(sqlx::Error::RowNotFound))?, 0)?)
}
