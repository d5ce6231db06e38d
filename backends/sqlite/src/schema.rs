//! The tables, and the check that a file has these and no others.

use rollhook_core::{Error, Result};
use rusqlite::Connection;

use crate::error::SqlError;

/// Each step brings the tables from one version to the next; a released one never changes. The version is kept as the
/// file's `user_version`. Steps only add, so that a process of the version before goes on working meanwhile.
const STEPS: [&str; 3] = [include_str!("schema.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// "rhhs": tells the files of this store from those of other programs.
const APPLICATION_ID: i64 = 0x7268_6873;

/// Creates the tables in an empty file, or brings those of an earlier version to this one.
///
/// # Errors
/// The inner error is `Invalid` if the file has other tables than these.
pub(crate) fn prepare(connection: &Connection) -> Result<Result<()>, SqlError> {
    match steps(connection)? {
        Ok(made) if made < STEPS.len() => {}
        other => return Ok(other.map(drop)),
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have been faster.
    let made = steps(connection)?;
    if let Ok(made) = made
        && made < STEPS.len()
    {
        for step in &STEPS[made..] {
            connection.execute_batch(step)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", i64::try_from(STEPS.len()).unwrap_or(i64::MAX))?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(made.map(drop))
}

/// Returns the number of steps that were made.
fn steps(connection: &Connection) -> rusqlite::Result<Result<usize>> {
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let version = number(connection, "user_version")?;
    let application = number(connection, "application_id")?;
    if (objects, application, version) == (0, 0, 0) {
        return Ok(Ok(0));
    }
    if application != APPLICATION_ID {
        return Ok(Err(Error::invalid(
            "the database file belongs to another program, or to a version of this one from before its first release: \
             name another file, or move this one away",
        )));
    }
    Ok(match usize::try_from(version) {
        Ok(made) if made <= STEPS.len() => Ok(made),
        Ok(_) | Err(_) => Err(Error::invalid(format!(
            "the database file was written by a newer version of this program (its schema is {version}, this version \
             knows up to {}): use that version, or a newer one",
            STEPS.len()
        ))),
    })
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
