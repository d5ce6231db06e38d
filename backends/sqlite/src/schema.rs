//! The tables, and how a file of an older version becomes one of this.
//!
//! `apps` holds what seldom changes, `heads` what every deploy changes: small rows, so that one page of the file serves
//! many apps of a batch. An entry's id is its app's number and its revision in one integer: the table itself is the
//! index by app and revision, and a history page is read from one place in the file.

use rollhook_core::{Error, Result};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::error::classify;

/// Each step brings a file from one version to the next; a released one never changes.
const STEPS: [&str; 1] = [FIRST];

/// "rhdb": tells our files from other programs'.
const APPLICATION_ID: i64 = 0x7268_6462;

const FIRST: &str = "
CREATE TABLE apps (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that what is left of a removed app belongs to nobody
    uid TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    environment TEXT NOT NULL,
    guard INTEGER NOT NULL,
    body TEXT NOT NULL, -- JSON
    UNIQUE (namespace, name)
) STRICT;

CREATE TABLE heads (
    app INTEGER PRIMARY KEY,
    last_revision INTEGER NOT NULL DEFAULT 0, -- 0: none; so in the next four
    current_revision INTEGER NOT NULL DEFAULT 0,
    on_cluster_revision INTEGER NOT NULL DEFAULT 0,
    last_restore INTEGER NOT NULL DEFAULT 0,
    ended_on_cluster INTEGER NOT NULL DEFAULT 0, -- the newest that touched the cluster and ended
    unfinished TEXT NOT NULL DEFAULT '[]', -- JSON: revisions, ascending; so in the next
    touching TEXT NOT NULL DEFAULT '[]', -- the unfinished ones that touched the cluster, which may be taken back
    place INTEGER, -- in the queue of apps with work
    owner INTEGER, -- the incarnation that drives it, or did last
    last_time INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX heads_with_work ON heads (place) WHERE place IS NOT NULL;

CREATE TABLE deploys (
    id INTEGER PRIMARY KEY, -- app << 32 | revision
    status INTEGER NOT NULL,
    step INTEGER NOT NULL,
    body TEXT NOT NULL -- JSON
) STRICT;
CREATE INDEX deploys_succeeded ON deploys (status) WHERE status = 3;

CREATE TABLE keys (
    app INTEGER NOT NULL,
    header INTEGER NOT NULL,
    key TEXT NOT NULL,
    request BLOB NOT NULL, -- SHA-256
    revision INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (app, header, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_by_expiry ON keys (expires_at);

CREATE TABLE replicas (
    name TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    app INTEGER PRIMARY KEY,
    sealed BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;

CREATE TABLE leftovers (app INTEGER PRIMARY KEY) STRICT; -- removed apps whose entries are deleted bit by bit
";

/// Brings the file to this version, in one transaction.
///
/// # Errors
/// `Invalid` where a newer version wrote the file, or another program did.
pub(crate) async fn migrate(connection: &mut SqliteConnection) -> Result<()> {
    if version(connection).await? == STEPS.len() {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(classify)?;
    // Another process may have been faster.
    let version = version(&mut transaction).await?;
    for (index, step) in STEPS.iter().enumerate().skip(version) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await.map_err(classify)?;
        set(&mut transaction, "user_version", index as i64 + 1).await?;
    }
    set(&mut transaction, "application_id", APPLICATION_ID).await?;
    transaction.commit().await.map_err(classify)
}

/// The number of steps that the file has behind it, if it is one of ours, or empty.
async fn version(connection: &mut SqliteConnection) -> Result<usize> {
    let (version, application, objects): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id), \
         (SELECT count(*) FROM sqlite_schema)",
    )
    .fetch_one(connection)
    .await
    .map_err(classify)?;
    let untouched = version == 0 && application == 0 && objects == 0;
    if application != APPLICATION_ID && !untouched {
        return Err(Error::invalid("the database file belongs to another program"));
    }
    let known = STEPS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).ok_or_else(|| {
        Error::invalid(format!(
            "the database file was written by a newer version of this program (its schema is {version}, this \
             version knows up to {known}): use that version, or a newer one"
        ))
    })
}

async fn set(connection: &mut SqliteConnection, pragma: &str, value: i64) -> Result<()> {
    let statement = AssertSqlSafe(format!("PRAGMA {pragma} = {value}"));
    sqlx::query(statement).execute(connection).await.map(drop).map_err(classify)
}
