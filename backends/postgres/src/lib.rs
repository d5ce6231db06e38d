//! rollhook's stores on PostgreSQL: apps, sealed tokens and configurations, history and records, for several replicas at
//! once.
//!
//! ```text
//!   commit ──────▶ writes ──── one statement per call: lock the apps in order → compare versions → write → NOTIFY
//!   heartbeat, write ──▶ writes
//!   load, page, list, work, get ──▶ reads
//!   find, read ──▶ lookups ─── one statement for all that wait
//! ```
//!
//! One accept: [`HistoryStore::commit`](rollhook_core::ports::HistoryStore::commit) brings the states, idempotency keys
//! and ended deploys of some apps. They are handed to the server as one statement, which locks the rows of these apps
//! in the order of their uids, compares each row's version with the one that the commit was made on, looks for keys
//! that are in use, and writes what is left. A refused commit leaves its neighbours alone, and so does one whose app
//! another transaction keeps locked for more than a second. The database knows no rule of the history: nothing in it is
//! a procedure or a trigger.
//!
//! Every statement is a transaction of its own, sent by the simple protocol. So nothing is left in a session, and a
//! pooler in transaction mode may stand between; a caller or a process that goes away leaves no transaction open and no
//! lock held; and a statement that began is finished by the server whoever waits for it.
//!
//! Times come from the server (`rollhook.clock`). What other processes committed is heard by `LISTEN` where that works,
//! and found by polling anyway.

mod address;
mod commit;
mod configurations;
mod connections;
mod error;
mod history;
mod housekeeping;
mod keys;
mod listen;
mod literal;
mod lookup;
#[cfg(feature = "management")]
mod records;
mod schema;
mod statement;
mod store;
mod tokens;

pub use store::PostgresStore;
