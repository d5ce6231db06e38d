//! The builder on a real control plane. Its Jobs, their pods and their failures are real objects that real controllers
//! work on; what the container does is played ([`actor`]), as simulated nodes run none.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod actor;
mod conformance;
mod failures;
mod harness;
mod logs;
mod lost_node;
mod permissions;
mod slots;
