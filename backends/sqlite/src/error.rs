//! The failures of SQLite, by what a caller of the ports can do about them.

use std::sync::Arc;

use rollhook_core::{Error, error::Cause};
use rusqlite::{ErrorCode, ffi};

/// A failure that concerns every call of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum SqlError {
    /// A failure of SQLite.
    Database(Arc<rusqlite::Error>),
    /// The thread that serves the call has ended.
    Stopped,
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(Arc::new(error))
    }
}

impl SqlError {
    /// Returns the error for one caller.
    pub(crate) fn to_error(&self) -> Error {
        match self {
            Self::Database(error) => to_error(error, Arc::clone(error)),
            Self::Stopped => Error::Unavailable { what: "the store has been shut down".to_owned(), cause: None },
        }
    }

    /// Returns whether the connection itself is sound: another one has the write lock, or the disk is full.
    pub(crate) fn leaves_connection_sound(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull))
    }

    /// Returns whether another connection has the lock.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Database(error) => error.sqlite_error_code(),
            Self::Stopped => None,
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enums are open, and their remaining variants have one meaning")]
fn to_error(error: &rusqlite::Error, cause: Arc<rusqlite::Error>) -> Error {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    let invalid = |what: &str, cause| Error::Invalid { what: what.to_owned(), cause: Some(Cause::from(cause)) };
    let Some(found) = error.sqlite_error() else {
        return match error {
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
                Error::corrupt("the database holds something else than was written", cause)
            }
            // The statement and the database do not fit each other.
            _ => invalid("the database does not take this", cause),
        };
    };
    if found.extended_code == ffi::SQLITE_IOERR_CORRUPTFS {
        return Error::corrupt("the file system reports a damaged database file", cause);
    }
    match found.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Error::unavailable("the database is locked by another process", cause)
        }
        ErrorCode::DiskFull => Error::unavailable("there is no space left for the database", cause),
        ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::NoLargeFileSupport => Error::unavailable("the database file cannot be read or written", cause),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            Error::unavailable("the database file must not be written", cause)
        }
        ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted | ErrorCode::SchemaChanged => {
            Error::unavailable("the database gave up", cause)
        }
        ErrorCode::TooBig => invalid("this is too large for the database", cause),
        _ => Error::corrupt("the database file is damaged, or belongs to another program", cause),
    }
}
