//! Who drives which app: signs of life, and the queue of apps with work.

use rollhook_core::{
    app::AppUid,
    ports::{Claim, Claimed},
    time::Timestamp,
};
use sqlx::SqliteConnection;

use crate::{
    error::Failure,
    rows::{signed, to_json, uid},
};

/// Apps with work that this incarnation owns, and those that nobody alive owns; what it owns comes first, so that a
/// newcomer displaces none. A claim that seems to last longer than its time was made before the clock was set back.
pub(crate) const CANDIDATES: &str = "
SELECT a.uid, h.app, h.place, h.owner IS ?1 AS mine
FROM heads h CROSS JOIN apps a ON a.id = h.app
WHERE h.place IS NOT NULL AND (h.owner IS NULL OR h.owner = ?1 OR h.owner NOT IN (
    SELECT incarnation FROM replicas WHERE name <> ?2 AND expires_at > ?3 AND expires_at - ?3 <= ttl))
ORDER BY mine DESC, h.place LIMIT ?4";

const TAKE: &str = "UPDATE heads SET owner = ?1 WHERE app IN (SELECT value FROM json_each(?2))";

/// Names of processes that have long been gone, such as a deleted pod's.
const FORGET: &str = "DELETE FROM replicas WHERE expires_at < ?1";
const FORGET_AFTER_MILLIS: i64 = 24 * 3600 * 1000;

const LIVE: &str = "
INSERT INTO replicas (name, incarnation, ttl, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, ttl = excluded.ttl,
    expires_at = excluded.expires_at";

/// What a claim would be answered, and what must be written for it.
pub(crate) struct Plan {
    now: Timestamp,
    ttl: i64,
    alive: bool,
    take: Vec<i64>,
    named: Vec<AppUid>,
}

impl Plan {
    /// Whether the answer holds without a write.
    pub(crate) fn needs_no_write(&self) -> bool {
        self.alive && self.take.is_empty()
    }

    /// The answer.
    pub(crate) fn claimed(self) -> Claimed {
        Claimed { now: self.now, apps: self.named }
    }
}

/// Finds out what a claim gets.
pub(crate) async fn plan(connection: &mut SqliteConnection, claim: &Claim, now: Timestamp) -> sqlx::Result<Plan> {
    let ttl = i64::try_from(claim.ttl.as_millis()).unwrap_or(i64::MAX);
    let incarnation = signed(claim.replica.incarnation);
    if ttl == 0 {
        return Ok(Plan { now, ttl, alive: false, take: Vec::new(), named: Vec::new() });
    }
    let known: Option<(i64, i64, i64)> =
        sqlx::query_as("SELECT incarnation, ttl, expires_at FROM replicas WHERE name = ?1")
            .bind(&claim.replica.name)
            .fetch_optional(&mut *connection)
            .await?;
    let candidates: Vec<(String, i64, i64, bool)> = sqlx::query_as(CANDIDATES)
        .bind(incarnation)
        .bind(&claim.replica.name)
        .bind(now.as_millis())
        .bind(i64::try_from(claim.limit).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    let take = candidates.iter().filter(|(.., mine)| !mine).map(|(_, app, ..)| *app).collect();
    let mut placed = Vec::with_capacity(candidates.len());
    for (text, _, place, _) in &candidates {
        placed.push((*place, uid(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))?));
    }
    placed.sort_unstable();
    let alive = known.is_some_and(|(known, known_ttl, expires_at)| {
        let left = expires_at.saturating_sub(now.as_millis());
        known == incarnation && known_ttl == ttl && is_fresh(left, ttl)
    });
    Ok(Plan { now, ttl, alive, take, named: placed.into_iter().map(|(_, app)| app).collect() })
}

/// A sign of life is worth a write only once a tenth of its time is over: a claim comes with every wake, and each write
/// wakes the other processes on the same file.
fn is_fresh(left: i64, ttl: i64) -> bool {
    left <= ttl && left > ttl - ttl / 10
}

/// Writes what a claim changes, within a transaction that the plan was made in.
pub(crate) async fn perform(connection: &mut SqliteConnection, claim: &Claim, plan: &Plan) -> Result<(), Failure> {
    let incarnation = signed(claim.replica.incarnation);
    if plan.ttl == 0 {
        // A late farewell of an earlier incarnation must not end the present one.
        let farewell = sqlx::query("DELETE FROM replicas WHERE name = ?1 AND incarnation = ?2");
        farewell.bind(&claim.replica.name).bind(incarnation).execute(&mut *connection).await?;
        // Apps at rest are given up as well, though the same process should come back.
        sqlx::query("UPDATE heads SET owner = NULL WHERE owner = ?1").bind(incarnation).execute(connection).await?;
        return Ok(());
    }
    if !plan.alive {
        let live = sqlx::query(LIVE).bind(&claim.replica.name).bind(incarnation).bind(plan.ttl);
        live.bind(plan.now.after(claim.ttl).as_millis()).execute(&mut *connection).await?;
        let forget = sqlx::query(FORGET).bind(plan.now.as_millis() - FORGET_AFTER_MILLIS);
        forget.execute(&mut *connection).await?;
    }
    if !plan.take.is_empty() {
        let take = sqlx::query(TAKE).bind(incarnation).bind(to_json(&plan.take)?);
        take.execute(connection).await?;
    }
    Ok(())
}
