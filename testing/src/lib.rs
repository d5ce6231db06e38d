//! The test kit: what tests of several packages share. A development dependency only.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@server`] | the `rollhook-server` binary as a process: started, signalled, killed, restarted in its place |
//! | [`client`] | the HTTP client: [`Call`], [`Reply`], and [`Connection`] for many calls |
//! | [`mod@cli`] | the `rollhook` binary as people run it |
//! | [`beds`] | lent clusters, nodes and PostgreSQL servers, and what tests start on them |
//! | [`documents`] | the README and the book: their pages, and the commands that they show |
//! | [`fixtures`] | a git host, an sshd, a receiver, an ingress, a Prometheus, registries of images, signers, payload bodies |
//! | [`pipeline`] | the jobs that `webhook enable` prints, run as CI systems run them |
//! | [`until()`], [`until_async`] | bounded waiting |
//! | [`usually_or_long`] | the extent of tests that `.ci/test long` extends |
//! | [`skip`], [`test_name!`](crate::test_name) | tests that cannot run on this machine |
//!
//! Programs under test come from cargo, which gives their paths to the tests of their packages; tests of other packages
//! find them beside themselves, and build what is missing or old ([`process::program`]).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

pub mod beds;
pub mod cli;
pub mod client;
pub mod documents;
pub mod fixtures;
pub mod pipeline;
pub mod process;
pub mod server;

mod skipped;
mod waiting;

pub use cli::{Cli, Ended};
pub use client::{Call, Connection, Reply, events};
pub use fixtures::image;
pub use server::{App, Server, Start, free_address};
pub use skipped::{name_of, skip};
pub use waiting::{Awaited, until, until_async};

/// Returns how much of something a test does: the first value usually, the second one in the long form of the test
/// command.
pub fn usually_or_long<T>(usually: T, long: T) -> T {
    if std::env::var_os("ROLLHOOK_LONG").is_some() { long } else { usually }
}
