//! The schema, and its migration from older versions.
//!
//! Everything lies in the schema `rollhook`, and every name is written with it, so that nothing depends on a session's
//! search path.

use std::time::Duration;

use rollhook_core::{Error, Result};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};

use crate::{
    connections::{connect, in_time},
    error::SqlError,
    literal::column,
};

/// Each step brings the schema from one version to the next; a released one never changes. Steps only add, so that a
/// replica of the version before goes on working meanwhile.
const STEPS: [&str; 3] = [include_str!("schema.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];

/// The longest that a migration may take, with the wait for another replica's.
const MIGRATION: Duration = Duration::from_secs(120);

/// One migration at a time, until the end of its transaction: "rollhook" in ASCII.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8245924714880987243)";

/// The oldest PostgreSQL that is tested, as it numbers itself.
const OLDEST: i64 = 150_000;

const STATE: &str = "
SELECT current_setting('default_transaction_isolation'), current_setting('server_version_num')::bigint,
    to_regnamespace('rollhook') IS NOT NULL,
    EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = to_regnamespace('rollhook'))
        OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace = to_regnamespace('rollhook')),
    to_regclass('rollhook.rollhook_schema') IS NOT NULL";

const VERSION: &str = "SELECT coalesce(max(s.version), 0)::bigint FROM rollhook.rollhook_schema s";

/// The state of the schema.
#[derive(Clone, Copy)]
struct SchemaState {
    exists: bool,
    /// The number of steps that were made.
    steps: usize,
}

/// Brings the schema to this version, in one transaction, while other replicas may do the same.
///
/// # Errors
/// `Invalid` if another version made the schema, or another program did; `Denied` if the user may not.
pub(crate) async fn migrate(options: &PgConnectOptions) -> Result<()> {
    let mut connection = connect(options).await?;
    in_time(MIGRATION, async { Ok(update(&mut connection).await) }).await??;
    // The server also notices the end of a connection that was not closed in order.
    let _ = connection.close().await;
    Ok(())
}

async fn update(connection: &mut PgConnection) -> Result<()> {
    if inspect(connection).await?.steps == STEPS.len() {
        return Ok(());
    }
    // Until it is committed, it is undone if anything fails, this process included.
    let mut transaction = connection.begin().await.map_err(SqlError::from)?;
    run(&mut transaction, LOCK).await?;
    // Another replica may have been faster.
    let found = inspect(&mut transaction).await?;
    if !found.exists {
        run(&mut transaction, "CREATE SCHEMA rollhook").await.map_err(|failure| {
            let mut error = failure.to_error();
            if let Error::Denied { what, .. } = &mut error {
                MAY_NOT_CREATE.clone_into(what);
            }
            error
        })?;
    }
    for (index, step) in STEPS.iter().enumerate().skip(found.steps) {
        run(&mut transaction, *step).await?;
        let mark = format!("INSERT INTO rollhook.rollhook_schema (version) VALUES ({})", index + 1);
        run(&mut transaction, mark).await?;
    }
    transaction.commit().await.map_err(SqlError::from)?;
    if found.steps < STEPS.len() {
        tracing::info!(from = found.steps, to = STEPS.len(), "updated the schema rollhook");
    }
    Ok(())
}

/// Checks the server, and returns the state of the schema.
async fn inspect(connection: &mut PgConnection) -> Result<SchemaState> {
    let rows = run(connection, STATE).await?;
    let row = rows.first().ok_or(SqlError::from(sqlx::Error::RowNotFound))?;
    let isolation: &str = column(row, 0)?;
    if isolation != "read committed" {
        return Err(Error::invalid(format!(
            "default_transaction_isolation is \"{isolation}\" for the database's user: \
             ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        )));
    }
    if column::<i64>(row, 1)? < OLDEST {
        return Err(Error::invalid("the server is older than PostgreSQL 15: use 15 or newer"));
    }
    let (exists, is_filled, is_ours) = (column(row, 2)?, column(row, 3)?, column(row, 4)?);
    match (is_filled, is_ours) {
        (false, _) => return Ok(SchemaState { exists, steps: 0 }),
        (true, true) => {}
        (true, false) => return Err(Error::invalid(FOREIGN)),
    }
    let rows = run(connection, VERSION).await?;
    let version: i64 = column(rows.first().ok_or(SqlError::from(sqlx::Error::RowNotFound))?, 0)?;
    match usize::try_from(version) {
        Ok(steps) if steps <= STEPS.len() => Ok(SchemaState { exists, steps }),
        Ok(_) | Err(_) => Err(Error::invalid(format!(
            "a newer version of this program made the schema rollhook (it is {version}, this version knows up to {}): \
             use that version, or a newer one",
            STEPS.len()
        ))),
    }
}

async fn run(connection: &mut PgConnection, statements: impl Into<String>) -> Result<Vec<PgRow>, SqlError> {
    Ok(sqlx::raw_sql(AssertSqlSafe(statements.into())).fetch_all(connection).await?)
}

const MAY_NOT_CREATE: &str = "the database's user may not create the schema rollhook: \
                              GRANT CREATE ON DATABASE … TO it, or CREATE SCHEMA rollhook AUTHORIZATION it";
const FOREIGN: &str = "the database has a schema named rollhook that another program made, or a version of this one from \
                       before its first release: use another database";
