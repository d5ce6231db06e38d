//! Deploy, history and rollback logic of rollhook, a deployment webhook service.
//!
//! ```text
//!   hosts (HTTP, CLI, your platform)
//!        │  authorize → submit
//!        ▼
//!   service::Deployer ── ledger (pure: accept, record) ── engine (pure: step) ⇄ perform
//!        │ only through
//!        ▼
//!   ports: TokenStore · HistoryStore · ConfigurationStore · RolloutDriver · BuildTrigger · BranchReader · Clock · Rng
//!        ▲
//!   backends (memory, SQLite, PostgreSQL, Kubernetes, yours)
//! ```
//!
//! One deploy: a host reads a bounded body and hands it with the caller's credentials to
//! [`service::Deployer::authorize`], which makes a [`service::Authorized`] (for callers that the host has judged,
//! [`service::Deployer::allow`] does). With it,
//! [`service::Deployer::submit`] has the [`ledger`] decide, and commits the change once. The replica that runs
//! [`service::Deployer::run`] and holds the app's lease drives the deploy: it asks for the next step and performs it,
//! until a terminal status is recorded.
//!
//! Nothing in this crate spawns, sleeps or reads a clock by itself, so that the whole engine runs under any runtime and
//! under simulated time.

#[doc(hidden)]
pub mod engine;
pub mod ledger;
mod model;
pub mod ports;
pub mod rate;
pub mod service;
pub mod slots;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use model::{
    action, app, check, configuration, delivery, deploy, disk, error, follow, image, instance, lock, network, replica,
    request, requirement, run, source, text, time, token, trace,
};
