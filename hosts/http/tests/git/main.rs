//! Git apps from end to end: a real git host, and the real server with a build command.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod apps;
mod hosts;
mod polling;
