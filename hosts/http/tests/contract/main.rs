//! The contract of the server over HTTP, and its log, against the real binary: one program for all that needs no other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

#[path = "../calls/mod.rs"]
mod calls;

mod access;
mod bounds;
mod checks;
mod configuration;
mod connections;
mod description;
mod disguises;
mod dumps;
mod github;
mod images;
mod instances;
mod keyless;
mod limits;
mod logs;
mod manage;
mod notifications;
mod protocol;
mod registry_events;
mod releases;
mod replay;
mod runs;
mod secrecy;
mod secrets;
mod start;
mod streams;
mod traces;
mod webhook;
