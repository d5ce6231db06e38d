//! The form in which SQL stores keep states, deploys, idempotency keys and records, so that SQLite and PostgreSQL
//! agree.
//!
//! ```text
//!   AppCommit ── CommitRows::encode ──▶ columns ── state, deploy, key_use ──▶ AppState, Deploy, KeyUse
//! ```
//!
//! States and deploys are JSON documents; beside them stand the columns that a store's queries need. [`Hints`] tells
//! the watchers of a store what was committed.

mod hints;
#[cfg(feature = "management")]
mod records;
mod rows;
#[cfg(test)]
mod tests;

pub use hints::Hints;
#[cfg(feature = "management")]
pub use records::{RecordRow, place_columns, record_version};
pub use rows::{
    CommitRows, DeployRow, KeyRow, PutRows, StateRow, deploy, deploy_with_evidence, header_number, key_use, listed,
    state,
};

use rollhook_core::Error;

/// Adds the place of the database, such as its file or its host, to the text of an error.
#[must_use]
pub fn located(place: &str, mut error: Error) -> Error {
    if let Error::Denied { what, .. }
    | Error::Invalid { what, .. }
    | Error::Unavailable { what, .. }
    | Error::Corrupt { what, .. } = &mut error
    {
        *what = format!("{place}: {what}");
    }
    error
}
