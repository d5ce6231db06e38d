//! Calls servers that people name: issuers of id_tokens, providers of sign-ins, receivers of
//! notifications, apps that are checked, registries of images. Messages to them are signed as Standard Webhooks says.
//!
//! No call reaches this machine, a link-local address or a cloud's metadata service, goes without encryption, or is led
//! elsewhere by a redirect, unless the operator allows local addresses.

mod fetch;
mod hosts;
mod retry;
mod signed;

pub use fetch::{Body, BodyStart, Fetch, FetchError, check_values, holding};
pub use hosts::covers;
pub use retry::retry_after;
pub use signed::SignedCall;
