//! What the fuzz targets share: the HTTP host's parsing, which is private there, and what is told to be clean.
//!
//! The host's modules are compiled in from their own files, so that a target runs what the server runs and the host need
//! not open anything for it. A module that is new there, and that one of these uses, must be named here.

#![allow(dead_code, reason = "the targets use a part of the host")]

#[path = "../../hosts/http/src/auth.rs"]
mod auth;
#[path = "../../hosts/http/src/body.rs"]
mod body;
#[path = "../../hosts/http/src/deploys.rs"]
mod deploys;
#[path = "../../hosts/http/src/events.rs"]
mod events;
#[path = "../../hosts/http/src/failure.rs"]
mod failure;
#[path = "../../hosts/http/src/headers.rs"]
mod headers;
#[path = "../../hosts/http/src/host.rs"]
mod host;
#[path = "../../hosts/http/src/limits.rs"]
mod limits;
#[path = "../../hosts/http/src/log_of_build.rs"]
mod log_of_build;
#[path = "../../hosts/http/src/manage.rs"]
mod manage;
#[path = "../../hosts/http/src/measured.rs"]
mod measured;
#[path = "../../hosts/http/src/metrics.rs"]
mod metrics;
#[path = "../../hosts/http/src/observe.rs"]
mod observe;
#[path = "../../hosts/http/src/query.rs"]
mod query;
#[path = "../../hosts/http/src/reply.rs"]
mod reply;
#[path = "../../hosts/http/src/router.rs"]
mod router;
#[path = "../../hosts/http/src/source.rs"]
mod source;
#[path = "../../hosts/http/src/webhook.rs"]
mod webhook;

mod clean;
pub mod server;

pub use clean::{TOKEN, assert_clean};
