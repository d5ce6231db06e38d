//! The command line as people run it: alone, and against servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

mod direct;
mod git_apps;
mod login;
mod remote;
mod runs;
mod server;
