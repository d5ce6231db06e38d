//! The ports in memory: their suites, the scripts of the simulated cluster, and the faults that a decorator adds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod builds;
mod cluster;
mod faults;
mod instances;
mod registry;
mod releases;
mod rollouts;
#[path = "../../../conformance/tests/simulated/mod.rs"]
mod simulated;
#[path = "../../../conformance/tests/simulated/registry.rs"]
mod simulated_registry;
#[path = "../../../conformance/tests/simulated/verifier.rs"]
mod simulated_verifier;
mod stores;
mod verifier;
