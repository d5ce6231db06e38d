//! The store on a real API server.
//!
//! It is one of their own: a replica finds whatever has work, wherever in the cluster that is, and each test begins with
//! none.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod archive;
mod conformance;
mod cost;
mod foreign_owner;
mod harness;
mod leftovers;
mod permissions;
mod stale;
