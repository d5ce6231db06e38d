//! The real server on a real kubelet: real containers, and builds of git apps as Jobs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

#[path = "../away/mod.rs"]
mod away;

mod builds;
mod checks;
mod containers;
mod following;
mod migration;
mod registry_away;
mod releases;
mod resolving;
mod signed;
mod twins;
mod workloads;
