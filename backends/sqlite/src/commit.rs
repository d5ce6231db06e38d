//! Commits: each app's version and keys are checked before any of its rows is written, so that a conflict needs no
//! undoing and leaves the other apps of the transaction alone.

use rollhook_core::{
    Error, Result,
    app::AppUid,
    error::Entity,
    ports::{AppChange, Committed, Version},
};
use rollhook_sql::{CommitRows, DeployRow, KeyRow, PutRows, StateRow};
use rusqlite::{CachedStatement, OptionalExtension, Row};

use crate::call::Session;

const FIND: &str = "SELECT id, version, queued_at, lease FROM apps WHERE uid = ?1";
const KEY: &str = "SELECT 1 FROM keys WHERE app = ?1 AND header = ?2 AND key = ?3";
const PUT_STATE: &str = "UPDATE apps SET version = version + 1, document = ?2 WHERE id = ?1";
/// Apart from [`PUT_STATE`], because an update that names a column rewrites its index, changed or not.
const PUT_WORK: &str = "UPDATE apps SET version = version + 1, document = ?2, queued_at = ?3, lease = ?4 WHERE id = ?1";
const PUT_KEY: &str = "INSERT OR REPLACE INTO keys (app, header, key, request, revision, expires_at) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const PUT_DEPLOY: &str = "INSERT OR REPLACE INTO deploys (app, revision, succeeded, document, evidence) \
                          VALUES (?1, ?2, ?3, ?4, ?5)";
/// By the index that is named: the planner takes the primary key, and would read all keys of the app.
pub(crate) const FREE: &str = "DELETE FROM keys INDEXED BY keys_by_revision WHERE app = ?1 AND revision = ?2";
const FORGET: &str = "DELETE FROM deploys WHERE app = ?1 AND revision = ?2";
const IS_TAKEN: &str = "
SELECT EXISTS (SELECT 1 FROM apps WHERE namespace = ?2 AND name = ?5 OR uid = ?1),
       coalesce((SELECT project <> ?3 OR environment <> ?4 FROM apps WHERE namespace = ?2 LIMIT 1), 0)";
const REGISTER: &str = "
INSERT INTO apps (uid, namespace, project, environment, name, version, queued_at, lease, document)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8)";
const REMOVE: [&str; 4] = [
    "DELETE FROM apps WHERE id = ?1",
    "DELETE FROM tokens WHERE app = ?1",
    "DELETE FROM configurations WHERE app = ?1",
    // Archive and keys, which may be many, belong to an id that is never used again.
    "INSERT INTO removed (app) VALUES (?1)",
];

/// For a check of their plans.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 9] = [FIND, KEY, PUT_STATE, PUT_WORK, PUT_KEY, PUT_DEPLOY, FREE, FORGET, IS_TAKEN];

/// The statements of each app, prepared once for all apps of a call.
struct Statements<'a> {
    find: CachedStatement<'a>,
    key: CachedStatement<'a>,
    put_state: CachedStatement<'a>,
    put_work: CachedStatement<'a>,
    put_key: CachedStatement<'a>,
    put_deploy: CachedStatement<'a>,
}

/// The row of an app.
struct Found {
    id: i64,
    version: i64,
    queued_at: Option<i64>,
    lease: Option<String>,
}

/// Commits each app, with an answer each.
pub(crate) fn commit(
    session: &mut Session<'_>,
    commits: Vec<Result<CommitRows>>,
) -> rusqlite::Result<Vec<Result<Committed>>> {
    let statements = &mut Statements {
        find: session.statement(FIND)?,
        key: session.statement(KEY)?,
        put_state: session.statement(PUT_STATE)?,
        put_work: session.statement(PUT_WORK)?,
        put_key: session.statement(PUT_KEY)?,
        put_deploy: session.statement(PUT_DEPLOY)?,
    };
    let now = session.now;
    let mut answers = Vec::with_capacity(commits.len());
    for rows in commits {
        let committed = match rows {
            Ok(rows) => write(session, statements, &rows)?.map(|version| {
                let is_removed = rows.put.is_none();
                let version = if is_removed { Version::REMOVED } else { Version(version.unsigned_abs()) };
                session.changes.push(AppChange::App(rows.app, version));
                Committed { version, now }
            }),
            Err(error) => Err(error),
        };
        answers.push(committed);
    }
    Ok(answers)
}

/// Writes the rows of one app; returns its new version. With the inner error nothing was written.
fn write(session: &Session<'_>, statements: &mut Statements<'_>, rows: &CommitRows) -> rusqlite::Result<Result<i64>> {
    let CommitRows { app, version, put } = rows;
    if let (None, Some(rows)) = (version, put) {
        return register(session, statements, *app, rows);
    }
    let version = version.unwrap_or_default();
    let found = statements.find.query_row([app.as_bits().to_be_bytes()], Found::of).optional()?;
    let found = match found {
        None => return Ok(Err(Error::NotFound(Entity::App))),
        Some(found) if found.version != version => return Ok(Err(Error::Conflict(Entity::Version))),
        Some(found) => found,
    };
    match put {
        None => {
            for statement in REMOVE {
                session.statement(statement)?.execute([found.id])?;
            }
        }
        Some(rows) => {
            for KeyRow { header, key, .. } in rows.keys.iter().filter(|key| !key.replaces) {
                if statements.key.exists((found.id, header, key))? {
                    return Ok(Err(Error::Conflict(Entity::IdempotencyKey)));
                }
            }
            let StateRow { queued_at, lease, document, .. } = &rows.state;
            if (&found.queued_at, &found.lease) == (queued_at, lease) {
                statements.put_state.execute((found.id, document))?;
            } else {
                statements.put_work.execute((found.id, document, queued_at, lease))?;
            }
            put_rest(session, statements, found.id, rows)?;
        }
    }
    Ok(Ok(version + 1))
}

fn register(
    session: &Session<'_>,
    statements: &mut Statements<'_>,
    app: AppUid,
    rows: &PutRows,
) -> rusqlite::Result<Result<i64>> {
    let StateRow { namespace, name, project, environment, queued_at, lease, document } = &rows.state;
    let uid = app.as_bits().to_be_bytes();
    let taken = session
        .statement(IS_TAKEN)?
        .query_row((uid, namespace, project, environment, name), |row| Ok((row.get(0)?, row.get(1)?)))?;
    match taken {
        (true, _) => return Ok(Err(Error::Conflict(Entity::App))),
        (_, true) => return Ok(Err(Error::Conflict(Entity::Namespace))),
        (false, false) => {}
    }
    let values = (uid, namespace, project, environment, name, queued_at, lease, document);
    let id = session.statement(REGISTER)?.insert(values)?;
    put_rest(session, statements, id, rows)?;
    Ok(Ok(1))
}

/// Writes what goes with a state.
fn put_rest(session: &Session<'_>, statements: &mut Statements<'_>, id: i64, rows: &PutRows) -> rusqlite::Result<()> {
    for row in &rows.keys {
        let KeyRow { header, key, request, revision, expires_at, .. } = row;
        statements.put_key.execute((id, header, key, request, revision, expires_at))?;
    }
    for deploy in &rows.ended {
        let DeployRow { revision, succeeded, document, evidence } = deploy;
        statements.put_deploy.execute((id, revision, succeeded, document, evidence))?;
    }
    for revision in &rows.forgotten {
        session.statement(FREE)?.execute((id, revision))?;
        session.statement(FORGET)?.execute((id, revision))?;
    }
    Ok(())
}

impl Found {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, version: row.get(1)?, queued_at: row.get(2)?, lease: row.get(3)? })
    }
}
