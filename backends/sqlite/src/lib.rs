//! rollhook's stores on SQLite: apps, sealed tokens and history in one file.
//!
//! ```text
//!   admit ─┐                       ┌─ one BEGIN IMMEDIATE … COMMIT per batch
//!  record ─┼─▶ channel ─▶ writer ──┤  load → decide in memory → write back, each one statement for all
//!   claim ─┘                       └─ answers only after the commit
//!    find ─┐
//!    view ─┼─▶ channel ─▶ readers ─── one statement for all that wait
//!    page ─┘
//! ```
//!
//! One accept: [`History::admit`](rollhook_core::ports::History::admit) puts it into the writer's channel and waits. The
//! writer takes everything that has come while the last commit was written, reads the apps and keys concerned in one
//! statement each, decides in memory in the order of arrival, writes the results back in one statement per table, and
//! commits: so concurrent accepts share one flush of the disk. Only then are the answers sent. A caller that went away
//! holds nobody up, and a refused item leaves its neighbours alone.
//!
//! The file is in WAL mode with `synchronous=FULL`: what was answered survives a power loss. Several processes of one
//! machine may share it.

mod apps;
mod batch;
mod claims;
mod clock;
mod connection;
mod error;
mod history;
mod housekeeping;
mod job;
mod ledger;
mod reader;
mod rows;
mod schema;
mod store;
#[cfg(test)]
mod tests;
mod tokens;
mod views;
mod writer;

pub use clock::StoreClock;
pub use store::SqliteStore;
