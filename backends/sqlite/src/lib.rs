//! rollhook's stores on SQLite: apps, their archives, sealed tokens and configurations, and records in one file.
//!
//! ```text
//!   commit, put, write ─▶ channel ─▶ writer ─── one BEGIN IMMEDIATE … COMMIT for all calls that wait
//!     load, find, read ─▶ channel ─▶ reader ─┐
//!     page, list, work ─▶ channel ─▶ reader ─┴─ one snapshot for all calls that wait
//! ```
//!
//! One commit: [`HistoryStore::commit`](rollhook_core::ports::HistoryStore::commit) encodes its apps' rows and puts
//! them into the writer's channel. The writer takes every call that has come while the last transaction was written,
//! checks each app's version and keys, writes the rows, and commits: concurrent calls share one flush of the disk. The
//! answers are sent after that, and hints to those who watch. A conflict of one app leaves the others of the
//! transaction alone.
//!
//! The file is in WAL mode with `synchronous=FULL`: a commit that was answered survives a power loss. Several processes
//! of one machine may share the file; the writer checks for their commits several times a second.

mod call;
mod commit;
mod configurations;
mod connection;
mod error;
mod heartbeat;
mod history;
mod housekeeping;
mod keys;
mod reader;
#[cfg(feature = "management")]
mod records;
mod schema;
mod store;
#[cfg(test)]
mod tests;
mod tokens;
mod writer;

pub use store::SqliteStore;
