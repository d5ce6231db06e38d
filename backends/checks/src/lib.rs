//! Measures whether a version serves its users: by requests of its own, by queries of Prometheus, and by asking a service.
//!
//! ```text
//!   Check.settings ─ settings.rs ─┬─ http.rs · status.rs ──────────────────────╮
//!                                 ├─ prometheus.rs · condition.rs · answer.rs ─┤
//!                                 ├─ webhook.rs ───────────────────────────────┤ rollhook_https (bounded)
//!   MeasureSpec ──── placeholders.rs · login.rs ───────────────────────────────╯     │
//!   Measured (pass · fail · none) ◄──── found.rs ◄──── route, Prometheus, service ◄──╯
//! ```
//!
//! # Instances
//!
//! A check of kind `http` may ask each instance in place of the route (`instances.rs`). Its person names a port, and the platform
//! the addresses: the rules for the addresses of URLs are not for these. What a person may see of the answers, and the bounds of
//! size and time, are those of any other check, and none of them has a login.
//!
//! # Silence
//!
//! A request that is not answered (its name does not resolve, the connection is refused or torn, no answer comes in time)
//! is no verdict, unless the check says `unreachable: fail`. Between this process and a route lie name servers, firewalls
//! and egress rules, and from here a version that is dead looks as they do when they fail: a fail would restore good
//! versions wherever the server cannot reach the route, at every deploy. Most routes have a proxy in front, which answers
//! 502, 503 or 504 for a version that is dead, and any answer is a verdict. Where none is, such as at a published port, the
//! person who sets the check knows, and says so.

mod answer;
mod condition;
mod found;
mod http;
mod instances;
mod login;
mod placeholders;
mod prometheus;
mod settings;
mod status;
mod verifier;
mod webhook;

pub use verifier::{AllowedAddresses, HttpVerifier};
