//! The tables, and the check that a file has these and no others.

use rollhook_core::{Error, Result};
use rusqlite::Connection;

use crate::error::SqlError;

const TABLES: &str = include_str!("schema.sql");
/// The version of the tables, kept as the file's `user_version`.
const VERSION: i64 = 1;
/// "rhhs": tells the files of this store from those of other programs.
const APPLICATION_ID: i64 = 0x7268_6873;

/// Creates the tables in an empty file.
///
/// # Errors
/// The inner error is `Invalid` if the file has other tables than these.
pub(crate) fn prepare(connection: &Connection) -> Result<Result<()>, SqlError> {
    if !is_empty(connection)? {
        return Ok(check(connection)?);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have been faster.
    if is_empty(connection)? {
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(check(connection)?)
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(objects == 0 && number(connection, "application_id")? == 0 && number(connection, "user_version")? == 0)
}

fn check(connection: &Connection) -> rusqlite::Result<Result<()>> {
    let version = number(connection, "user_version")?;
    Ok(if number(connection, "application_id")? != APPLICATION_ID {
        Err(Error::invalid(
            "the database file belongs to another program, or to a version of this one from before its first release: \
             name another file, or move this one away",
        ))
    } else if version > VERSION {
        Err(Error::invalid(format!(
            "the database file was written by a newer version of this program (its schema is {version}, this version \
             knows up to {VERSION}): use that version, or a newer one"
        )))
    } else {
        Ok(())
    })
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
