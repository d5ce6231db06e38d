//! rollhook's stores on PostgreSQL: apps, sealed tokens and history, for several replicas at once.
//!
//! ```text
//!   admit ─┐                        ┌─ SELECT … FROM rollhook.write(…): one statement, one transaction, one round trip
//!  record ─┴─▶ channel ─▶ 2 writers ─┤   lock the apps in order → decide → write → NOTIFY, for all calls that waited
//!                                   └─ answers only after the commit
//!    find ───▶ channel ─▶ reader ─── one statement for all that wait
//!    view ───▶ channel ─▶ reader ─── one statement for all that wait
//!    hash ───▶ channel ─▶ reader ─── one statement for all that wait
//!   claim ─┐
//!  enable ─┴─▶ channel ─▶ one statement each
//! ```
//!
//! One accept: [`History::admit`](rollhook_core::ports::History::admit) puts it into the writers' channel and waits. A
//! writer takes everything that has come while the others' commits were written to disk, and hands it to the server as one
//! call of the function `rollhook.write`, which the migration made. The function locks the heads of the apps concerned in
//! the order of their numbers, and decides under the locks, in the order of arrival: key, guard, newest revision, number of
//! unfinished entries. Only after the commit are the answers sent. A refused item leaves its neighbours alone,
//! and so does one whose app somebody else keeps locked: it is told so after a second.
//!
//! Every statement is a transaction of its own, sent by the simple protocol. So nothing is left in a session, and a pooler
//! in transaction mode may stand between; a caller or a process that goes away leaves no transaction open and no lock held;
//! and a statement that began is finished by the server whoever waits for it.
//!
//! Times come from the server (`rollhook.clock`). A claim is a row: an app's owner is an incarnation, whose sign of life is
//! another row; taking free apps passes over those that are locked. What others wrote is heard by `LISTEN` where that
//! works, and found by polling anyway.

mod address;
mod apps;
mod ask;
mod claims;
mod error;
mod history;
mod housekeeping;
mod job;
mod keys;
mod lane;
mod link;
mod listen;
mod literal;
mod lookup;
mod operator;
mod rows;
mod schema;
mod store;
mod tokens;
mod views;
mod write;

pub use store::PostgresStore;
