//! Reads what a batch of accepts and records concerns, and writes back what they changed: a few statements for all of
//! them, because each statement is a trip to the connection's thread.

use std::collections::HashMap;

use rollhook_core::{
    app::AppUid,
    ports::{Admission, Record},
    time::Timestamp,
};
use serde::Serialize;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use crate::{
    ledger::{Body, Entry, Head, KeyName, Known, Ledger, key_name},
    rows::{entry_id, number, revision, signed, to_json, uid, unsigned},
};

const HEADS: &str = "
SELECT a.uid, a.id, a.guard, h.last_revision, h.current_revision, h.ended_on_cluster, h.last_restore, h.unfinished,
       h.place, h.owner, EXISTS (SELECT 1 FROM replicas r WHERE r.incarnation = h.owner), h.last_time,
       CASE WHEN j.value ->> 1 THEN a.body END,
       (SELECT max(place) FROM heads WHERE place IS NOT NULL), h.touching,
       CASE WHEN j.value ->> 2 THEN a.body ->> '$.policy.poll_ms' IS NOT NULL ELSE 0 END
FROM json_each(?1) j CROSS JOIN apps a ON a.uid = j.value ->> 0 CROSS JOIN heads h ON h.app = a.id";

const KEYS: &str = "
SELECT j.key, k.request, k.revision, k.expires_at, d.id, d.status, d.step, d.body
FROM json_each(?1) j
CROSS JOIN keys k ON k.app = j.value ->> 0 AND k.header = j.value ->> 1 AND k.key = j.value ->> 2
CROSS JOIN deploys d ON d.id = (k.app << 32) + k.revision";

const ENTRIES: &str = "
SELECT d.id, d.status, d.step, CASE WHEN j.value ->> 1 THEN d.body END
FROM json_each(?1) j CROSS JOIN deploys d ON d.id = j.value ->> 0";

/// The bodies come as one blob, because text within JSON would be escaped here and unescaped there.
const PUT_ENTRIES: &str = "
INSERT INTO deploys (id, status, step, body)
SELECT value ->> 0, value ->> 1, value ->> 2, CAST(substr(?2, value ->> 3, value ->> 4) AS TEXT)
FROM json_each(?1) WHERE true
ON CONFLICT (id) DO UPDATE SET status = excluded.status, step = excluded.step, body = excluded.body";

const PUT_KEYS: &str = "
INSERT OR REPLACE INTO keys (app, header, key, request, revision, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, substr(?2, value ->> 3, 32), value ->> 4, value ->> 5
FROM json_each(?1)";

const PUT_HEADS: &str = "
INSERT INTO heads (app, last_revision, current_revision, on_cluster_revision, last_restore, ended_on_cluster,
                   unfinished, touching, place, owner, last_time)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       value -> 6, value -> 7, value ->> 8, value ->> 9, value ->> 10
FROM json_each(?1) WHERE true
ON CONFLICT (app) DO UPDATE SET
    last_revision = excluded.last_revision, current_revision = excluded.current_revision,
    on_cluster_revision = excluded.on_cluster_revision, last_restore = excluded.last_restore,
    ended_on_cluster = excluded.ended_on_cluster, unfinished = excluded.unfinished, touching = excluded.touching,
    place = excluded.place, owner = excluded.owner, last_time = excluded.last_time";

const PUT_APP: &str = "UPDATE apps SET guard = ?2, body = ?3 WHERE id = ?1";

/// For a look at their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 7] = [HEADS, KEYS, ENTRIES, PUT_ENTRIES, PUT_KEYS, PUT_HEADS, PUT_APP];

/// Reads all that the accepts and records of a batch decide on.
pub(crate) async fn load(
    connection: &mut SqliteConnection,
    now: Timestamp,
    admissions: &[&Admission],
    records: &[&Record],
) -> sqlx::Result<Ledger> {
    let mut ledger = Ledger { now, ..Ledger::default() };
    load_heads(connection, &mut ledger, admissions, records).await?;
    load_keys(connection, &mut ledger, admissions).await?;
    load_entries(connection, &mut ledger, admissions, records).await?;
    Ok(ledger)
}

async fn load_heads(
    connection: &mut SqliteConnection,
    ledger: &mut Ledger,
    admissions: &[&Admission],
    records: &[&Record],
) -> sqlx::Result<()> {
    // Whether the registration itself may be changed, and whether it matters that the app is polled: it is large, and
    // seldom needed.
    let mut wanted: HashMap<AppUid, (bool, bool)> = HashMap::new();
    for admission in admissions {
        wanted.entry(admission.app).or_default().0 |= admission.hold.is_some();
    }
    for record in records {
        let (changed, rests) = wanted.entry(record.app).or_default();
        *changed |= !record.lift.is_empty();
        *rests |= record.rest;
    }
    let wanted: Vec<_> = wanted.into_iter().map(|(app, (changed, rests))| (app, changed, rests)).collect();
    for row in sqlx::query(HEADS).bind(to_json(&wanted)?).fetch_all(connection).await? {
        let uid = uid(row.try_get(0)?).map_err(decoding)?;
        ledger.next_place = row.try_get::<Option<i64>, _>(13)?.map_or(0, |place| place + 1);
        ledger.heads.insert(uid, head(&row)?);
    }
    Ok(())
}

fn head(row: &SqliteRow) -> sqlx::Result<Head> {
    let revisions = |column: usize| serde_json::from_str(row.try_get(column)?).map_err(decoding);
    Ok(Head {
        app: row.try_get(1)?,
        guard: unsigned(row.try_get(2)?),
        last: revision(row.try_get(3)?),
        current: revision(row.try_get(4)?),
        ended_on_cluster: revision(row.try_get(5)?),
        last_restore: revision(row.try_get(6)?),
        unfinished: revisions(7)?,
        touching: revisions(14)?,
        place: row.try_get(8)?,
        owner: row.try_get(9)?,
        owner_is_known: row.try_get(10)?,
        last_time: Timestamp::from_millis(row.try_get(11)?),
        body: body(row, 12)?,
        polled: row.try_get(15)?,
        changed: false,
        body_changed: false,
    })
}

async fn load_keys(
    connection: &mut SqliteConnection,
    ledger: &mut Ledger,
    admissions: &[&Admission],
) -> sqlx::Result<()> {
    let name = |admission: &&Admission| {
        let head = ledger.heads.get(&admission.app)?;
        Some(key_name(head.app, admission.key.as_ref()?))
    };
    let names: Vec<KeyName> = admissions.iter().filter_map(name).collect();
    if names.is_empty() {
        return Ok(());
    }
    for row in sqlx::query(KEYS).bind(to_json(&names)?).fetch_all(connection).await? {
        let Some(name) = usize::try_from(row.try_get::<i64, _>(0)?).ok().and_then(|index| names.get(index)) else {
            continue;
        };
        let Some(revision) = revision(row.try_get(2)?) else { continue };
        let expires_at = Timestamp::from_millis(row.try_get(3)?);
        let known = Known { request: row.try_get(1)?, revision, expires_at, changed: false };
        ledger.keys.insert(name.clone(), known);
        ledger.entries.insert(row.try_get(4)?, entry(&row, 5)?);
    }
    Ok(())
}

async fn load_entries(
    connection: &mut SqliteConnection,
    ledger: &mut Ledger,
    admissions: &[&Admission],
    records: &[&Record],
) -> sqlx::Result<()> {
    // An entry that only moves on is replaced whole, so that its text is not needed.
    let mut wanted: HashMap<i64, bool> = HashMap::new();
    for admission in admissions.iter().filter(|admission| admission.supersede) {
        let Some(head) = ledger.heads.get(&admission.app) else { continue };
        wanted.extend(head.unfinished.iter().map(|revision| (entry_id(head.app, revision.get()), true)));
    }
    for record in records {
        let Some(head) = ledger.heads.get(&record.app) else { continue };
        for change in &record.changes {
            wanted.entry(entry_id(head.app, change.revision.get())).or_default();
        }
    }
    wanted.retain(|id, _| !ledger.entries.contains_key(id));
    if wanted.is_empty() {
        return Ok(());
    }
    let wanted: Vec<_> = wanted.into_iter().collect();
    for row in sqlx::query(ENTRIES).bind(to_json(&wanted)?).fetch_all(connection).await? {
        ledger.entries.insert(row.try_get(0)?, entry(&row, 1)?);
    }
    Ok(())
}

fn entry(row: &SqliteRow, from: usize) -> sqlx::Result<Entry> {
    let body = body(row, from + 2)?;
    Ok(Entry { status: row.try_get(from)?, step: row.try_get(from + 1)?, body, changed: false })
}

fn body<T>(row: &SqliteRow, column: usize) -> sqlx::Result<Body<T>> {
    // As bytes: text that is not even UTF-8 is one caller's trouble, not the batch's.
    let text: Option<Vec<u8>> = row.try_get_unchecked(column)?;
    Ok(text.map_or(Body::Absent, Body::Text))
}

fn decoding(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

/// Writes back all that was changed.
pub(crate) async fn store(connection: &mut SqliteConnection, ledger: &Ledger) -> sqlx::Result<()> {
    store_entries(connection, ledger).await?;
    store_keys(connection, ledger).await?;
    store_heads(connection, ledger).await
}

async fn store_entries(connection: &mut SqliteConnection, ledger: &Ledger) -> sqlx::Result<()> {
    let mut bodies = Vec::new();
    let mut rows = Vec::new();
    for (id, entry) in &ledger.entries {
        if let (true, Body::Value(deploy)) = (entry.changed, &entry.body) {
            let start = bodies.len();
            serde_json::to_writer(&mut bodies, deploy).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
            rows.push((id, entry.status, entry.step, start + 1, bodies.len() - start));
        }
    }
    put(connection, PUT_ENTRIES, &rows, Some(bodies)).await
}

async fn store_keys(connection: &mut SqliteConnection, ledger: &Ledger) -> sqlx::Result<()> {
    let mut requests = Vec::new();
    let mut rows = Vec::new();
    for ((app, header, key), known) in ledger.keys.iter().filter(|(_, known)| known.changed) {
        let (revision, expires_at) = (number(Some(known.revision)), known.expires_at);
        rows.push((app, header, key, requests.len() + 1, revision, expires_at));
        requests.extend_from_slice(&known.request);
    }
    put(connection, PUT_KEYS, &rows, Some(requests)).await
}

async fn store_heads(connection: &mut SqliteConnection, ledger: &Ledger) -> sqlx::Result<()> {
    let changed = ledger.heads.values().filter(|head| head.changed).map(|head| {
        let newest = [head.last, head.current, head.on_cluster(), head.last_restore, head.ended_on_cluster];
        let [last, current, on_cluster, last_restore, ended] = newest.map(number);
        let sets = (&head.unfinished, &head.touching);
        (
            head.app,
            last,
            current,
            on_cluster,
            last_restore,
            ended,
            sets.0,
            sets.1,
            head.place,
            head.owner,
            head.last_time,
        )
    });
    put(connection, PUT_HEADS, &changed.collect::<Vec<_>>(), None).await?;
    for head in ledger.heads.values() {
        if let (true, Body::Value(app)) = (head.body_changed, &head.body) {
            let statement = sqlx::query(PUT_APP).bind(head.app).bind(signed(head.guard)).bind(to_json(app)?);
            statement.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Runs one statement over all rows, if there are any.
async fn put<T: Serialize>(
    connection: &mut SqliteConnection,
    statement: &'static str,
    rows: &[T],
    blob: Option<Vec<u8>>,
) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(statement).bind(to_json(rows)?).bind(blob).execute(connection).await.map(drop)
}
