//! Connections: how they are set up, and opened again after they broke.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rollhook_core::{Error, Result};
use rusqlite::{Connection, OpenFlags};

use crate::error::SqlError;

/// The longest that a statement waits for the lock of another process.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// Each commit through a writing connection survives a power loss. The write-ahead log is folded into the file once it
/// has 16 MiB, so that a page that changes often is written there once, and cut back to 32 MiB after a burst; housekeeping
/// empties it where the store is quiet.
const WRITER: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -8192; \
                      PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 33554432;";
const READER: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -1024;";
/// More statements than there are.
const STATEMENTS: usize = 64;

/// A connection that is opened when it is needed, and again after it broke.
pub(crate) struct Link {
    path: PathBuf,
    pragmas: &'static str,
    open: Option<Connection>,
}

impl Link {
    /// Returns a connection to write with.
    pub(crate) fn writer(path: &Path) -> Self {
        Self { path: path.to_owned(), pragmas: WRITER, open: None }
    }

    /// Returns a connection to read with.
    pub(crate) fn reader(path: &Path) -> Self {
        Self { path: path.to_owned(), pragmas: READER, open: None }
    }

    /// Returns the connection, and opens it if it is closed.
    pub(crate) fn get(&mut self) -> Result<&Connection, SqlError> {
        let connection = match self.open.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        Ok(self.open.insert(connection))
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.execute_batch(self.pragmas)?;
        Ok(connection)
    }

    /// Undoes a failed transaction, with the connection itself if it may be broken.
    pub(crate) fn recover(&mut self, failure: &SqlError) {
        if failure.leaves_connection_sound() {
            self.roll_back();
        } else {
            self.open = None;
        }
    }

    /// Ends the transaction, if there is one, without a commit.
    pub(crate) fn roll_back(&mut self) {
        if let Some(connection) = &self.open
            && !connection.is_autocommit()
            && connection.execute_batch("ROLLBACK").is_err()
        {
            self.open = None;
        }
    }
}

/// Creates the file, and the directories above it, readable by their owner only, if they are missing.
pub(crate) fn create(path: &Path) -> Result<()> {
    try_create(path).map_err(|error| Error::unavailable("the database file cannot be opened", error))
}

fn try_create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    // SQLite gives its side files the mode of this one.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}
