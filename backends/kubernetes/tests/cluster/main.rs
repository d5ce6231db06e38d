//! The driver on a real control plane with simulated pods, whose behaviour their image's name tells.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod configuration;
mod conformance;
mod creation;
mod drift;
mod failures;
mod fence;
mod kinds;
mod neighbours;
mod outage;
mod permissions;
mod references;
mod releases;
mod restores;
mod stops;
mod stuck_pods;
mod terminating;
mod watch;
