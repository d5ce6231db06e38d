//! rollhook's HTTP host: parses calls, hands them to the core, renders the answers.
//!
//! ```text
//!   accept ─▶ telemetry (id, log, metrics) ─▶ catch panics ─▶ router
//!                                                             │ method → limits → body → auth → content
//!              webhook · apps · deploys · events · answer ◀─╯
//!                  │         │
//!                  │         ▼
//!                  │   rollhook_api's operations
//!                  ▼         ▼
//!                 core's Deployer, whose `run` is one task beside
//! ```
//!
//! One webhook call: `router` finds the route and refuses other methods; `limits` refuses a source that failed too
//! often, unless the core recognises the credentials; `body` reads at most 1 MiB within 10 s (25 MiB for a git host's
//! push); `auth` takes the credentials out of the headers, and the core
//! checks them over the raw body; only then the body is parsed, by `webhook` for CI and by `rollhook_git_hosts` for git
//! hosts and registries. (The body of a call without a credential is looked at for the event of a registry that can send
//! none; such an event reads and writes nothing.) The core accepts, which stores the entry, and `answer` renders it, or waits for the entry's end if the caller
//! prefers that. Every failure on the way is one `error_reply::ErrorReply`, rendered as a problem in one place,
//! `telemetry`.
//!
//! An operator's call takes the same way; `route` has one line for each endpoint, and most are an operation of
//! `rollhook_api`, which has method, path, request, answer and what the call does.
//!
//! A browser's call goes to `console`, which applies the same limits and hands it to `rollhook_console`.
//!
//! The binary is [`run`]; a test or bench embeds [`Server`].

mod answer;
mod answers;
mod apps;
mod args;
mod auth;
mod body;
mod budget;
mod build_log;
mod call;
mod callers;
mod client_ip;
mod configuration;
mod connections;
mod console;
mod core_dumps;
mod deploys;
mod disks;
mod error_reply;
mod events;
mod headers;
mod healthcheck;
mod instrumented;
mod limits;
mod lines;
mod log;
mod login;
mod metrics;
mod open_files;
mod places;
mod probes;
mod query;
mod readiness;
mod reply;
mod report;
mod route;
mod router;
mod run;
mod runs;
mod server;
mod state;
mod stream;
mod streams;
mod target;
mod telemetry;
mod webhook;

pub use args::{Args, RateLimit};
pub use client_ip::{Cidr, InvalidCidr};
pub use run::{Failure, exit_code, run};
pub use server::{Config, Server};
