//! Deploys to the containers of one machine, by the real server on a real Docker engine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

#[path = "../away/mod.rs"]
mod away;
#[path = "../kills/mod.rs"]
mod kills;
#[path = "../values/mod.rs"]
mod values;

mod at_rest;
mod bench;
mod builds;
mod checks;
mod configuration;
mod console;
mod deploys;
mod disk;
mod faults;
mod following;
mod load;
mod made_with;
mod migration;
mod pulls;
mod registration;
mod registry;
mod registry_away;
mod resolving;
mod signed;
mod stops;
mod workloads;
