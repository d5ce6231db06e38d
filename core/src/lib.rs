//! Deploy, history and rollback logic of rollhook, a deployment webhook service.
//!
//! ```text
//!   hosts (HTTP, CLI, your platform)
//!        │  authorize → submit
//!        ▼
//!   service::Deployer ── decide (pure) ── drive: step ⇄ perform
//!        │ only through
//!        ▼
//!   ports: Apps · Tokens · History · Rollouts · Builds · Clock
//!        ▲
//!   backends (memory, SQLite, Kubernetes, yours)
//! ```
//!
//! One deploy: a host reads a bounded body and hands it with the caller's credentials to
//! [`service::Deployer::authorize`], which alone can make an [`service::Authorized`]. With it,
//! [`service::Deployer::submit`] decides and writes one atomic admission. Whoever runs [`service::Deployer::run`] claims
//! the app, and drives the entry by asking [`decide`] for the next step and performing it, until a terminal status is
//! recorded.
//!
//! Nothing in this crate spawns, sleeps or reads a clock by itself, so that the whole engine runs under any runtime and
//! under simulated time.

pub mod app;
pub mod decide;
pub mod delivery;
pub mod deploy;
pub mod error;
pub mod image;
pub mod ports;
pub mod request;
pub mod service;
pub mod source;
pub mod text;
pub mod time;
pub mod token;

pub use error::{Error, Result};
