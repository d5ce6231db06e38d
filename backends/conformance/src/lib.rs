//! The promises of every backend, as cases: one suite per port, one case per promise, each named like its promise.
//!
//! A backend runs the suites by saying how it is started empty:
//!
//! ```text
//! rollhook_conformance::stores!(block_on, Fresh::store().await);
//! ```
//!
//! where `Fresh` is the backend's [`Stores`], and `block_on` drives a future to its end on whatever runtime the backend
//! wants; [`block_on`] is one for backends that want none. Every case becomes a `#[test]` of its own, such as
//! `history::commit_keeps_keys`, on a store of its own.
//!
//! Drivers of clusters run [`rollouts!`] in the same way, with a [`Clusters`], and builders [`builds!`] with a
//! [`Builders`]; readers of branches run [`heads!`] with a [`Branches`].
//!
//! What a backend cannot do to itself, such as setting back its clock, it says with a [`Lack`]: a case that needs it is
//! reported as skipped, and never passes silently.
//!
//! Beside the cases: [`samples`] of apps and deploys; a [`ManualClock`]; a [`GitHost`] and an [`SshHost`] for builders to read from;
//! [`Faulty`], which makes any port fail where a test wants it to; a [`client`] of one store, for a backend's own tests; and
//! [`mod@model`], which compares the ledger on a store with a small model of both, over random sequences of changes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a case fails as tests do, by panicking")]

pub mod builds;
pub mod client;
pub mod heads;
pub mod history;
pub mod model;
pub mod rollouts;
pub mod samples;
pub mod threads;
pub mod tokens;

mod branches;
mod builders;
mod clock;
mod clusters;
mod executor;
mod faulty;
mod git_host;
mod macros;
mod report;
mod ssh_host;
mod stores;

pub use branches::Branches;
pub use builders::{Builders, Made};
pub use clock::ManualClock;
pub use clusters::{Clusters, Sample};
pub use executor::block_on;
pub use faulty::{Fault, Faulty, Plan};
pub use git_host::{GitHost, GitRepository};
pub use report::{Can, Lack, report};
pub use ssh_host::{SshHost, ssh_key};
pub use stores::{Handles, Stores};
