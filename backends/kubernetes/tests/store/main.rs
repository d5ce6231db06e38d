//! The store on a real API server.
//!
//! Each test begins on an empty API server of its own: a replica finds every app with work, wherever in the cluster.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod archive;
mod claims;
mod conformance;
mod cost;
mod foreign_owner;
mod harness;
mod leftovers;
mod permissions;
mod records;
mod stale;
