//! Tokens and configurations in the Secrets of a real API server: their makers, the cost of reads, and the replacement of their
//! key. The promises of every store are tested in `tests/store`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod call_counter;
mod configurations;
mod costs;
mod place;
mod secrets;
