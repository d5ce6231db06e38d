//! The schema, and how one of an older version becomes one of this.
//!
//! Everything lies in the schema `rollhook`, and every name is written with it, so that nothing depends on a session's
//! search path.

use std::time::Duration;

use rollhook_core::{Error, Result};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, postgres::PgConnectOptions};

use crate::{
    error::{Failure, classify},
    link::{connect, in_time},
};

/// Each step brings the schema from one version to the next; a released one never changes. Steps only add, so that a
/// replica of the version before goes on working meanwhile.
const STEPS: [&[&str]; 1] = [&[
    include_str!("schema/1/tables.sql"),
    include_str!("schema/1/write.sql"),
    include_str!("schema/1/read.sql"),
    include_str!("schema/1/claim.sql"),
    include_str!("schema/1/apps.sql"),
    include_str!("schema/1/tokens.sql"),
    include_str!("schema/1/sweep.sql"),
]];

/// How long a migration may take, the wait for another replica's included.
const MIGRATION: Duration = Duration::from_secs(120);

/// Held until the end of the transaction by whoever migrates: "rollhook" in ASCII.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8245924714880987243)";

/// The table that tells our schema from others' of its name.
const MARK: &str = "CREATE TABLE rollhook.rollhook_migrations \
                    (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())";

const STATE: &str = "
SELECT current_setting('default_transaction_isolation'), current_setting('server_version_num')::bigint,
       EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'rollhook')
       OR EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                  WHERE n.nspname = 'rollhook'),
       EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'rollhook' AND c.relname = 'rollhook_migrations')";

/// The oldest PostgreSQL that is tested, as it numbers itself.
const OLDEST: i64 = 150_000;

/// Brings the schema to this version, in one transaction, while other replicas may do the same.
///
/// # Errors
/// `Invalid` where a newer version made the schema, or another program did; `Denied` where the user may not.
pub(crate) async fn migrate(options: &PgConnectOptions) -> Result<()> {
    let mut connection = connect(options).await.map_err(|failure| failure.to_error())?;
    let migrated = in_time(MIGRATION, async { Ok(bring(&mut connection).await) }).await;
    migrated.map_err(|failure: Failure| failure.to_error())??;
    // The server notices the end of a connection that was not closed in order too.
    let _ = connection.close().await;
    Ok(())
}

async fn bring(connection: &mut PgConnection) -> Result<()> {
    if version(connection).await?.is_some_and(|version| version == STEPS.len()) {
        return Ok(());
    }
    // Until it is committed, it is undone if anything fails, this process included.
    let mut transaction = connection.begin().await.map_err(classify)?;
    run(&mut transaction, LOCK).await?;
    // Another replica may have been faster.
    let version = version(&mut transaction).await?;
    if version.is_none() {
        create(&mut transaction).await?;
    }
    for (index, step) in STEPS.iter().enumerate().skip(version.unwrap_or_default()) {
        for part in *step {
            run(&mut transaction, part).await?;
        }
        let mark = format!("INSERT INTO rollhook.rollhook_migrations (version) VALUES ({})", index + 1);
        sqlx::raw_sql(AssertSqlSafe(mark)).execute(&mut *transaction).await.map_err(classify)?;
    }
    transaction.commit().await.map_err(classify)?;
    match version {
        None => tracing::info!("made the schema rollhook"),
        Some(step) => tracing::info!("brought the schema rollhook from step {step} to {}", STEPS.len()),
    }
    Ok(())
}

async fn create(connection: &mut PgConnection) -> Result<()> {
    // Without this the right to create schemas would be needed where the schema is there already.
    let absent: bool =
        sqlx::raw_sql("SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'rollhook')")
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(classify)?;
    if absent {
        let created = run(connection, "CREATE SCHEMA rollhook").await;
        created.map_err(|error| match error {
            Error::Denied { cause, .. } => Error::Denied {
                what: "the database's user may not create the schema rollhook: \
                       GRANT CREATE ON DATABASE … TO it, or CREATE SCHEMA rollhook AUTHORIZATION it"
                    .to_owned(),
                cause,
            },
            other @ (Error::NotFound(_)
            | Error::Conflict(_)
            | Error::Invalid { .. }
            | Error::Unavailable { .. }
            | Error::Corrupt { .. }) => other,
        })?;
    }
    run(connection, MARK).await
}

/// The number of steps that the schema has behind it; none where it has not been begun.
async fn version(connection: &mut PgConnection) -> Result<Option<usize>> {
    let row = sqlx::raw_sql(STATE).fetch_one(&mut *connection).await.map_err(classify)?;
    let flag = |column: usize| row.try_get::<bool, _>(column).map_err(classify);
    let isolation: &str = row.try_get(0).map_err(classify)?;
    if isolation != "read committed" {
        return Err(Error::invalid(format!(
            "default_transaction_isolation is \"{isolation}\" for the database's user: \
             ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        )));
    }
    if row.try_get::<i64, _>(1).map_err(classify)? < OLDEST {
        return Err(Error::invalid("the server is older than PostgreSQL 15: use 15 or newer"));
    }
    let (filled, ours) = (flag(2)?, flag(3)?);
    if !ours {
        return if filled {
            Err(Error::invalid(
                "the database has a schema named rollhook that another program made: use another database",
            ))
        } else {
            Ok(None)
        };
    }
    let row = sqlx::raw_sql("SELECT coalesce(max(m.version), 0)::bigint FROM rollhook.rollhook_migrations m")
        .fetch_one(connection)
        .await
        .map_err(classify)?;
    let version: i64 = row.try_get(0).map_err(classify)?;
    let known = STEPS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).map(Some).ok_or_else(|| {
        Error::invalid(format!(
            "the schema rollhook was made by a newer version of this program (it is {version}, this version knows up to \
             {known}): use that version, or a newer one"
        ))
    })
}

async fn run(connection: &mut PgConnection, statements: &'static str) -> Result<()> {
    sqlx::raw_sql(statements).execute(connection).await.map(drop).map_err(classify)
}
