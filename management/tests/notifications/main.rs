//! Receivers are told of deploys from the history itself: at least once, in order, whatever fails or ends in between.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod bench;
mod failing;
mod managing;
mod records;
mod telling;
#[path = "../world/mod.rs"]
mod world;
