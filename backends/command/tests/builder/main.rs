//! Builds on this machine, from real sources and by real programs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod bench;
mod builds;
mod confinement;
mod conformance;
mod job;
mod sizes;
mod slots;
mod ssh;
