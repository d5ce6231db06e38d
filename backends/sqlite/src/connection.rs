//! Connections: how they are set up, and opened again when they broke.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rollhook_core::{Error, Result};
use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

/// How long a statement waits for another process's lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that is opened when it is needed and again after it broke.
pub(crate) struct Link {
    options: SqliteConnectOptions,
    open: Option<SqliteConnection>,
}

impl Link {
    /// To write with: what is committed through it survives a power loss.
    pub(crate) fn writer(path: &Path) -> Self {
        let options = options(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("cache_size", "-8192")
            // The write-ahead log is cut back to this after a burst.
            .pragma("journal_size_limit", "16777216");
        Self { options, open: None }
    }

    /// To read with.
    pub(crate) fn reader(path: &Path) -> Self {
        Self { options: options(path).pragma("cache_size", "-1024").pragma("query_only", "ON"), open: None }
    }

    /// The connection, opened if it is not.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        let connection = match self.open.take() {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(self.open.insert(connection))
    }

    /// Gives the connection up; the next use opens another.
    pub(crate) fn reset(&mut self) {
        self.open = None;
    }

    /// Closes the connection in order; the last one of all folds the write-ahead log into the file.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.open.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "closing the database failed");
        }
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(false)
        .statement_cache_capacity(64)
        // A whole batch's rows fit, so that the connection's thread does not wait for ours.
        .row_buffer_size(1024)
        .thread_name(|number| format!("sqlite-{number}"))
        .disable_statement_logging()
}

/// Makes the file, and the directories above it, readable by nobody else, where they are missing.
pub(crate) fn prepare(path: &Path) -> Result<()> {
    make(path).map_err(|error| Error::unavailable("the database file cannot be opened", error))
}

fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    // SQLite gives its side files the mode of this one.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}
