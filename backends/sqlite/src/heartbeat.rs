//! Heartbeats: rows that say until when a replica lives, by the wall clock, which all processes on the file share.

use std::time::Duration;

use rollhook_core::{ports::Heartbeat, replica::ReplicaId, time::Timestamp};

use crate::call::Session;

const ALL: &str = "SELECT name, boot, ttl, expires_at FROM replicas";
const PUT: &str = "INSERT OR REPLACE INTO replicas (name, boot, ttl, expires_at) VALUES (?1, ?2, ?3, ?4)";
const RELEASE: &str = "DELETE FROM replicas WHERE name = ?1 AND boot = ?2";
/// After the clock was set back, a heartbeat of the future counts as one made now: it lasts no longer than its ttl.
const MEND: &str = "UPDATE replicas SET expires_at = ?1 + ttl WHERE expires_at > ?1 + ttl";
/// Names that do not come back, such as those of deleted pods.
const FORGET: &str = "DELETE FROM replicas WHERE expires_at < ?1";
const FORGOTTEN_AFTER_MILLIS: i64 = 24 * 3600 * 1000;

/// A replica's row.
struct Beat {
    replica: ReplicaId,
    ttl: i64,
    /// Milliseconds from now.
    left: i64,
}

impl Beat {
    fn is_alive(&self) -> bool {
        self.left >= 0
    }

    /// Returns whether the heartbeat is from before the clock was set back.
    fn is_of_the_future(&self) -> bool {
        self.left > self.ttl
    }
}

/// Returns the answer to a heartbeat that need not be written, because the last one is less than a third of its ttl
/// old. Each write costs a flush of the disk, and wakes the other processes on the same file.
pub(crate) fn fresh(session: &Session<'_>, replica: &ReplicaId, ttl: Duration) -> rusqlite::Result<Option<Heartbeat>> {
    let (ttl, beats) = (millis(ttl), beats(session)?);
    let is_fresh = |beat: &Beat| beat.replica == *replica && beat.ttl == ttl && beat.left > ttl - ttl / 3;
    let is_written = beats.iter().any(is_fresh) && !beats.iter().any(Beat::is_of_the_future);
    Ok(is_written.then(|| answer(session.now, beats)))
}

/// Writes a heartbeat.
pub(crate) fn write(session: &Session<'_>, replica: &ReplicaId, ttl: Duration) -> rusqlite::Result<Heartbeat> {
    let ReplicaId { name, boot } = replica;
    let boot = boot.cast_signed();
    session.statement(MEND)?.execute([session.wall.as_millis()])?;
    if ttl.is_zero() {
        session.statement(RELEASE)?.execute((name, boot))?;
    } else {
        session.statement(FORGET)?.execute([session.wall.as_millis() - FORGOTTEN_AFTER_MILLIS])?;
        session.statement(PUT)?.execute((name, boot, millis(ttl), session.wall.after(ttl).as_millis()))?;
    }
    Ok(answer(session.now, beats(session)?))
}

fn answer(now: Timestamp, beats: Vec<Beat>) -> Heartbeat {
    Heartbeat { now, alive: beats.into_iter().filter(Beat::is_alive).map(|beat| beat.replica).collect() }
}

fn beats(session: &Session<'_>) -> rusqlite::Result<Vec<Beat>> {
    let now = session.wall.as_millis();
    let mut statement = session.statement(ALL)?;
    let beats = statement.query_map([], |row| {
        let replica = ReplicaId { name: row.get(0)?, boot: row.get::<_, i64>(1)?.cast_unsigned() };
        Ok(Beat { replica, ttl: row.get(2)?, left: row.get::<_, i64>(3)?.saturating_sub(now) })
    })?;
    beats.collect()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
