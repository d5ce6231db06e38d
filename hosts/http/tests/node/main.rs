//! The real server on a real kubelet: real containers, and builds of git apps as Jobs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod builds;
mod checks;
mod containers;
mod following;
mod migration;
mod releases;
mod resolving;
mod signed;
mod twins;
mod workloads;
