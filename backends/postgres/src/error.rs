//! Classifies PostgreSQL's failures for callers of the ports.

use std::{io, sync::Arc};

use rollhook_core::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// A failure that concerns all calls that shared a statement.
#[derive(Clone, Debug)]
pub(crate) struct SqlError(Arc<sqlx::Error>);

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl From<SqlError> for Error {
    fn from(failure: SqlError) -> Self {
        failure.to_error()
    }
}

impl SqlError {
    /// Returns the failure of a server that did not answer in time.
    pub(crate) fn late() -> Self {
        sqlx::Error::Io(io::ErrorKind::TimedOut.into()).into()
    }

    /// Returns the error for one caller.
    pub(crate) fn to_error(&self) -> Error {
        let cause = Some(Arc::clone(&self.0).into());
        match meaning(&self.0) {
            Meaning::Away(what) | Meaning::Busy(what) => Error::Unavailable { what: what.to_owned(), cause },
            Meaning::Denied(what) => Error::Denied { what: what.to_owned(), cause },
            Meaning::Invalid(what) => Error::Invalid { what: what.to_owned(), cause },
            Meaning::Corrupt(what) => Error::Corrupt { what: what.to_owned(), cause },
        }
    }

    /// Returns whether the connection is sound: the server refused one statement, and takes the next.
    pub(crate) fn leaves_connection_sound(&self) -> bool {
        let server = self.0.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        server.is_some_and(|error| error.severity() == PgSeverity::Error)
    }

    /// Returns whether the server refused the statement itself: nothing of it was done.
    pub(crate) fn is_refusal(&self) -> bool {
        self.leaves_connection_sound() && !self.is_away()
    }

    /// Returns whether the connection ended before the answer.
    pub(crate) fn is_broken_connection(&self) -> bool {
        let is_late = matches!(&*self.0, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut);
        self.is_away() && !is_late && !self.leaves_connection_sound()
    }

    /// Returns whether another transaction held a lock that the statement needed, or it took too long.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(meaning(&self.0), Meaning::Busy(_))
    }

    /// Returns whether the server cannot serve any statement.
    pub(crate) fn is_away(&self) -> bool {
        matches!(meaning(&self.0), Meaning::Away(_))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// The server serves no statement.
    Away(&'static str),
    /// The server gave up this statement; another may succeed.
    Busy(&'static str),
    Denied(&'static str),
    Invalid(&'static str),
    Corrupt(&'static str),
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the enum is open, and its remaining variants have one meaning")]
fn meaning(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Database(error) => state_meaning(error.code().as_deref().unwrap_or_default()),
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            Meaning::Away("the database did not answer in time")
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed => Meaning::Away("the database cannot be reached, or the connection to it broke"),
        sqlx::Error::Tls(_) => Meaning::Denied(
            "no encrypted connection to the database came about: see sslmode and sslrootcert in its URL",
        ),
        sqlx::Error::Configuration(_) => Meaning::Invalid("the database's URL cannot be used"),
        sqlx::Error::InvalidArgument(_) | sqlx::Error::Encode(_) => Meaning::Invalid("the database does not take this"),
        // What is left tells that rows do not have the shape that they were written in.
        _ => Meaning::Corrupt("the database holds something else than was written"),
    }
}

/// By SQLSTATE, and by its class where that says enough
/// (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
fn state_meaning(state: &str) -> Meaning {
    match state {
        "28P01" | "28000" => Meaning::Denied("the database refuses the user or the password in its URL"),
        "42501" => Meaning::Denied(
            "the database's user may not do this: it must own the schema rollhook, or be granted its use",
        ),
        "3D000" => Meaning::Invalid("the database that the URL names does not exist: create it first"),
        "25006" => Meaning::Away("the database cannot be written to now: the server is a standby, or read-only"),
        "53100" => Meaning::Away("the database's disk is full"),
        "53300" => Meaning::Away("the database has no connection left: raise its max_connections, or let others go"),
        "55P03" => Meaning::Busy("the database is busy: another transaction holds a lock for too long"),
        "57014" => Meaning::Busy("the database gave up a statement that took too long"),
        "57P01" | "57P02" | "57P03" | "57P05" => Meaning::Away("the database is shutting down or starting up"),
        "54000" | "54001" | "54011" | "54023" => Meaning::Invalid("this is too large for the database"),
        "3F000" | "42P01" | "42703" | "42883" | "42704" => {
            Meaning::Corrupt("tables or functions of the schema rollhook are missing from the database")
        }
        _ => class_meaning(state.get(..2).unwrap_or_default()),
    }
}

fn class_meaning(class: &str) -> Meaning {
    match class {
        "08" => Meaning::Away("the connection to the database broke"),
        "25" | "26" => Meaning::Away("the database gave up the transaction"),
        "40" => Meaning::Busy("the database gave up the transaction: it conflicts with another"),
        "53" => Meaning::Away("the database has run out of memory or connections"),
        "55" | "57" => Meaning::Away("the database gave up a statement"),
        "58" => Meaning::Away("the database cannot read or write its files"),
        "28" => Meaning::Denied("the database refuses the user in its URL"),
        "22" => Meaning::Invalid("the database does not take this"),
        "23" => Meaning::Corrupt("the database holds something else than was written"),
        "XX" => Meaning::Corrupt("the database is damaged"),
        _ => Meaning::Corrupt("the database's answer is not one that is expected"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error as IoError, ErrorKind};

    use super::{Error, SqlError, state_meaning};

    /// As PostgreSQL 15 and PgBouncer 1.18 gave them, in the situation beside.
    const RECORDED: [(&str, &str, &str); 19] = [
        ("28P01", "a wrong password", "Denied"),
        ("28000", "a user whom pg_hba.conf does not let in", "Denied"),
        ("42501", "a schema of another role", "Denied"),
        ("3D000", "a database that does not exist", "Invalid"),
        ("22P05", "a NUL in JSON", "Invalid"),
        ("25006", "a write on a standby", "Away"),
        ("40001", "a conflict of two transactions", "Busy"),
        ("40P01", "two transactions that wait for each other", "Busy"),
        ("53100", "a full disk", "Away"),
        ("53200", "no memory", "Away"),
        ("53300", "no connection left", "Away"),
        ("55P03", "a row that another session holds", "Busy"),
        ("57014", "statement_timeout", "Busy"),
        ("57P01", "an orderly stop", "Away"),
        ("57P03", "a start", "Away"),
        ("58P01", "a server that PgBouncer cannot reach", "Away"),
        ("08P01", "a client that PgBouncer does not let in", "Away"),
        ("42883", "a function that was dropped", "Corrupt"),
        ("XX001", "a damaged page", "Corrupt"),
    ];

    #[test]
    fn recorded_states_are_told_apart() {
        for (state, situation, expected) in RECORDED {
            let meaning = format!("{:?}", state_meaning(state));
            assert!(meaning.starts_with(expected), "{state}, {situation}: {meaning}");
        }
    }

    #[test]
    fn failures_without_a_state_are_told_apart() {
        let classify = |error: sqlx::Error| SqlError::from(error).to_error();
        assert!(classify(sqlx::Error::WorkerCrashed).is_unavailable());
        assert!(classify(sqlx::Error::Io(IoError::from(ErrorKind::ConnectionRefused))).is_unavailable());
        assert!(SqlError::late().to_error().to_string().contains("in time"));
        assert!(matches!(classify(sqlx::Error::RowNotFound), Error::Corrupt { .. }));
        assert!(matches!(classify(sqlx::Error::Encode("no".into())), Error::Invalid { .. }));
        assert!(matches!(classify(sqlx::Error::Tls("no".into())), Error::Denied { .. }));
    }
}
