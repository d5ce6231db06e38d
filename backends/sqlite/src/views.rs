//! Reads of the history: an app as decisions need it, and pages.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision},
    ports::{Page, View},
    time::Timestamp,
};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use crate::{
    apps,
    job::Job,
    rows::{REVISION_MAX, from_json, revision, revision_of, to_json, uid},
};

/// One statement reads at one point in time. A row without an entry's id is the app itself; rows of entries follow.
const VIEWS: &str = "
WITH wanted (app, uid) AS MATERIALIZED (
    SELECT a.id, a.uid FROM json_each(?1) j CROSS JOIN apps a ON a.uid = j.value)
SELECT w.uid, NULL, a.body, h.last_revision, h.current_revision, h.on_cluster_revision, h.last_restore, h.unfinished,
       h.last_time
FROM wanted w CROSS JOIN apps a ON a.id = w.app CROSS JOIN heads h ON h.app = w.app
UNION ALL
SELECT w.uid, d.id, d.body, NULL, NULL, NULL, NULL, NULL, NULL
FROM wanted w CROSS JOIN heads h ON h.app = w.app CROSS JOIN json_each(h.unfinished) u
CROSS JOIN deploys d ON d.id = (w.app << 32) + u.value
UNION ALL
SELECT w.uid, d.id, d.body, NULL, NULL, NULL, NULL, NULL, NULL
FROM wanted w CROSS JOIN heads h ON h.app = w.app
CROSS JOIN deploys d ON d.id IN ((w.app << 32) + h.current_revision, (w.app << 32) + h.on_cluster_revision)";

const PAGE: &str = "
SELECT d.id, d.body FROM apps a CROSS JOIN deploys d ON d.id > a.id << 32 AND d.id < (a.id << 32) + ?2
WHERE a.uid = ?1 ORDER BY d.id DESC LIMIT ?3";

const PAGE_SUCCEEDED: &str = "
SELECT d.id, d.body
FROM apps a CROSS JOIN deploys d INDEXED BY deploys_succeeded
    ON d.status = 3 AND d.id > a.id << 32 AND d.id < (a.id << 32) + ?2
WHERE a.uid = ?1 ORDER BY d.id DESC LIMIT ?3";

/// For a look at their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 3] = [VIEWS, PAGE, PAGE_SUCCEEDED];

/// Stored text by revision.
type Bodies = BTreeMap<Revision, Vec<u8>>;

/// An app's row of [`VIEWS`].
struct AppRow {
    app: Vec<u8>,
    last: Option<Revision>,
    current: Option<Revision>,
    on_cluster: Option<Revision>,
    last_restore: Option<Revision>,
    unfinished: Vec<u8>,
    last_time: Timestamp,
}

/// Reads apps as decisions need them.
pub(crate) async fn view(
    connection: &mut SqliteConnection,
    jobs: &mut [Job<AppUid, View>],
    now: Timestamp,
) -> sqlx::Result<()> {
    let wanted: BTreeSet<AppUid> = jobs.iter().map(|job| job.ask).collect();
    let mut found: HashMap<AppUid, (Option<AppRow>, Bodies)> = HashMap::new();
    for row in sqlx::query(VIEWS).bind(to_json(&wanted)?).fetch_all(connection).await? {
        let uid = uid(row.try_get(0)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let (app, bodies) = found.entry(uid).or_default();
        match row.try_get::<Option<i64>, _>(1)? {
            None => *app = Some(app_row(&row)?),
            Some(id) => bodies.extend(revision_of(id).zip(Some(row.try_get_unchecked(2)?))),
        }
    }
    for job in jobs {
        let view = match found.get(&job.ask) {
            Some((Some(app), bodies)) => assemble(app, bodies, now),
            Some((None, _)) | None => Err(Error::NotFound("app")),
        };
        job.decide(view);
    }
    Ok(())
}

fn app_row(row: &SqliteRow) -> sqlx::Result<AppRow> {
    Ok(AppRow {
        app: row.try_get_unchecked(2)?,
        last: revision(row.try_get(3)?),
        current: revision(row.try_get(4)?),
        on_cluster: revision(row.try_get(5)?),
        last_restore: revision(row.try_get(6)?),
        unfinished: row.try_get_unchecked(7)?,
        last_time: Timestamp::from_millis(row.try_get(8)?),
    })
}

fn assemble(row: &AppRow, bodies: &Bodies, now: Timestamp) -> Result<View> {
    let entry = |revision: &Revision| {
        let missing =
            || Error::Corrupt { what: format!("entry {revision} of an app's history is missing"), cause: None };
        deploy(*revision, bodies.get(revision).ok_or_else(missing)?)
    };
    let unfinished: Vec<Revision> = from_json(&row.unfinished, || "an app's state cannot be read".to_owned())?;
    Ok(View {
        // Never below the times of the app's entries, though the clock was set back.
        now: now.max(row.last_time),
        app: apps::parse(&row.app)?,
        last: row.last,
        unfinished: unfinished.iter().map(entry).collect::<Result<_>>()?,
        current: row.current.as_ref().map(entry).transpose()?,
        on_cluster: row.on_cluster.as_ref().map(entry).transpose()?,
        last_restore: row.last_restore,
    })
}

/// Reads parts of histories, newest first.
pub(crate) async fn page(
    connection: &mut SqliteConnection,
    jobs: &mut [Job<(AppUid, Page), Vec<Deploy>>],
) -> sqlx::Result<()> {
    for job in jobs {
        let (app, page) = &job.ask;
        let end = page.before.map_or(REVISION_MAX, |before| before.get().min(REVISION_MAX));
        let rows = sqlx::query(if page.succeeded { PAGE_SUCCEEDED } else { PAGE })
            .bind(app.to_string())
            .bind(i64::try_from(end).unwrap_or(i64::MAX))
            .bind(i64::try_from(page.limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await?;
        let entry = |row: &SqliteRow| {
            let id: i64 = row.try_get(0)?;
            let body: Vec<u8> = row.try_get_unchecked(1)?;
            Ok(revision_of(id).map(|revision| deploy(revision, &body)))
        };
        let entries: Vec<Option<Result<Deploy>>> = rows.iter().map(entry).collect::<sqlx::Result<_>>()?;
        job.decide(entries.into_iter().flatten().collect());
    }
    Ok(())
}

fn deploy(revision: Revision, body: &[u8]) -> Result<Deploy> {
    from_json(body, || format!("entry {revision} of an app's history cannot be read"))
}
