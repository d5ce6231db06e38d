//! The management plane's rules as scenarios. They are one program: what they share is compiled once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod access;
mod bounds;
mod configuring;
mod doors;
mod keyless;
mod locks;
mod notifications;
mod report;
mod requirements;
mod reviewed_access;
mod sessions;
mod world;
