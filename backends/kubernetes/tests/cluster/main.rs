//! The driver on a real control plane with simulated pods, whose behaviour their image's name tells.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod away;
mod conformance;
mod created;
mod fence;
mod kinds;
mod others;
mod permissions;
mod stuck;
mod trouble;
mod watch;
