//! The driver on a real Docker engine.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod bed;
mod builds;
mod conformance;
mod fence;
mod images;
mod inheritance;
mod made_with;
mod releases;
mod variables;
