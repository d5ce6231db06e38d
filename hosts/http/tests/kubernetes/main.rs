//! The real server on a real API server, whose nodes and pods are simulated.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

#[path = "../calls/mod.rs"]
mod calls;
#[path = "../kills/mod.rs"]
mod kills;
#[path = "../values/mod.rs"]
mod values;

mod at_rest;
mod configuration;
mod deploys;
mod drift;
mod failures;
mod first_look;
mod identity;
mod order;
mod rollback;
mod store;
mod twins;
