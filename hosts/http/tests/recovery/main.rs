//! The real binary killed, stopped, and without its store: what it has accepted is there afterwards, and ends.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod crash;
mod crash_points;
mod drain;
mod durability;
mod outage;
