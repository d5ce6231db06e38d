//! The reader of branches, on real git hosts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod bench;
mod conformance;
mod heads;
mod ssh;
