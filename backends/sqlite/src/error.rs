//! What SQLite's failures mean to a caller of the ports.

use std::sync::Arc;

use rollhook_core::Error;

/// SQLite's primary result codes (<https://www.sqlite.org/rescode.html>), as far as they tell something apart.
mod code {
    pub(super) const PERM: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const NOMEM: u32 = 7;
    pub(super) const READONLY: u32 = 8;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const PROTOCOL: u32 = 15;
    pub(super) const SCHEMA: u32 = 17;
    pub(super) const TOOBIG: u32 = 18;
    pub(super) const NOLFS: u32 = 22;
    pub(super) const AUTH: u32 = 23;
    /// Extended: the file system itself reports damage.
    pub(super) const IOERR_CORRUPTFS: u32 = 10 | (33 << 8);
}

/// A failure that concerns everybody who shared a batch.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<sqlx::Error>);

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl Failure {
    /// The failure as one caller sees it.
    pub(crate) fn to_error(&self) -> Error {
        let cause = Arc::clone(&self.0);
        match meaning(&self.0) {
            Meaning::Away(what) => Error::unavailable(what, cause),
            Meaning::Invalid(what) => Error::Invalid { what: what.to_owned(), cause: Some(Box::new(cause)) },
            Meaning::Corrupt(what) => Error::corrupt(what, cause),
        }
    }

    /// Whether another connection has the write lock, or the disk is full: the connection itself is sound.
    pub(crate) fn leaves_connection_sound(&self) -> bool {
        matches!(primary_code(&self.0), Some(code::BUSY | code::LOCKED | code::FULL))
    }

    /// Whether the file is out of reach, for whatever is asked of it.
    pub(crate) fn is_away(&self) -> bool {
        matches!(meaning(&self.0), Meaning::Away(_))
    }

    /// Whether another connection is in the way.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(primary_code(&self.0), Some(code::BUSY | code::LOCKED))
    }
}

/// The failure as a caller of a port sees it.
pub(crate) fn classify(error: sqlx::Error) -> Error {
    Failure::from(error).to_error()
}

/// Stored text that cannot be read.
pub(crate) fn unreadable(what: impl Into<String>, cause: serde_json::Error) -> Error {
    Error::corrupt(what, cause)
}

enum Meaning {
    Away(&'static str),
    Invalid(&'static str),
    Corrupt(&'static str),
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enum is open, and its remaining variants have one meaning")]
fn meaning(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Database(_) => code_meaning(error),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::InvalidSavePointStatement
        | sqlx::Error::BeginFailed => Meaning::Away("the connection to the database file broke"),
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) | sqlx::Error::Encode(_) => {
            Meaning::Invalid("the database does not take this")
        }
        // What is left tells that rows do not have the shape that they were written in.
        _ => Meaning::Corrupt("the database holds something else than was written"),
    }
}

fn code_meaning(error: &sqlx::Error) -> Meaning {
    if extended_code(error) == Some(code::IOERR_CORRUPTFS) {
        return Meaning::Corrupt("the file system reports a damaged database file");
    }
    match primary_code(error) {
        Some(code::BUSY | code::LOCKED) => Meaning::Away("the database is locked by another process"),
        Some(code::FULL) => Meaning::Away("there is no space left for the database"),
        Some(code::IOERR | code::CANTOPEN | code::PROTOCOL | code::NOLFS) => {
            Meaning::Away("the database file cannot be read or written")
        }
        Some(code::READONLY | code::PERM | code::AUTH) => Meaning::Away("the database file must not be written"),
        Some(code::NOMEM | code::INTERRUPT | code::SCHEMA) => Meaning::Away("the database gave up"),
        Some(code::TOOBIG) => Meaning::Invalid("this is too large for the database"),
        _ => Meaning::Corrupt("the database file is damaged, or not this service's"),
    }
}

fn primary_code(error: &sqlx::Error) -> Option<u32> {
    extended_code(error).map(|code| code & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}
