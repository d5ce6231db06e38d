//! Tokens in the Secrets of a real API server: whose they are, what reads of them cost, and how their key is replaced.
//! What every store promises of tokens is tested beside the Kubernetes store's other promises.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../bed/mod.rs"]
mod bed;

mod call_counter;
mod costs;
mod place;
mod secrets;
