//! What the fuzz targets share: the HTTP host's parsing, which is private there, and what is told to be clean.
//!
//! The host's modules are compiled in from their own files, so that a target runs what the server runs and the host
//! need not open anything for it. A module that is new there, and that one of these uses, must be named here.

#![allow(dead_code, reason = "the targets use a part of the host")]

#[path = "../../hosts/http/src/auth.rs"]
mod auth;
#[path = "../../hosts/http/src/body.rs"]
mod body;
#[path = "../../hosts/http/src/budget.rs"]
mod budget;
#[path = "../../hosts/http/src/callers.rs"]
mod callers;
#[path = "../../hosts/http/src/error_reply.rs"]
mod error_reply;
#[path = "../../hosts/http/src/headers.rs"]
mod headers;
#[path = "../../hosts/http/src/reply.rs"]
mod reply;
#[path = "../../hosts/http/src/target.rs"]
mod target;

mod clean;
pub mod server;

pub use clean::{TOKEN, assert_clean};
