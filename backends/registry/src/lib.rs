//! Reads images and tags at registries, by the pull part of the OCI distribution specification, and by what Docker's
//! registries did before it.
//!
//! ```text
//!   resolve(environment, image) ── registry.rs
//!     as whom? ── access.rs: the operator's login; or anyone, and then the platform's logins
//!     HEAD manifests/TAG ─► digest ─► known? ── known.rs (bounded)        ─► Resolved
//!                              │ no
//!     GET manifests/DIGEST ────┴─► manifest.rs (pure) ─► GET blobs/CONFIG ─► platforms, labels
//!   tags(environment, repository) ── tags.rs (pure: pages, cursors)
//!   referrers(environment, image) ── artifacts.rs: GET referrers/DIGEST, or the tag that is made of it ─► signatures and the like
//!        │
//!   client.rs ── one call: redirects, logins, pauses, bounds ── rollhook_https (addresses, encryption)
//!     challenge.rs (pure) · tokens.rs ── WWW-Authenticate: Bearer and Basic ── rollhook_registry_logins
//!     failure.rs ── the one place that classifies
//! ```
//!
//! # What is kept
//!
//! Nothing of a tag: each call asks the registry, by `HEAD`, which counts as no pull. What has a digest is read once, its
//! bytes are checked against it, and its platforms and labels are kept by repository and digest; an environment sees them once
//! the registry has answered that `HEAD` with that environment's own login. Tokens of registries are kept for an environment, a
//! repository and a login, until they end or are refused; and so is what the registry wants for them, so that the next call is let in at once.
//!
//! # Addresses
//!
//! Anyone who may deploy names a registry. No call reaches this machine, a link-local address or a cloud's metadata
//! service, or goes without encryption, unless the operator has named the host as an insecure one; the same holds for where
//! a registry leads, by a redirect or by naming the server of its tokens. A registry that is none of the insecure ones leads
//! to no insecure one either. A login goes to the registry, and to the server of tokens that it names; no redirect takes it
//! elsewhere.

mod access;
mod artifacts;
mod challenge;
mod client;
mod failure;
mod known;
mod manifest;
mod registry;
mod settings;
mod tags;
mod tokens;

pub use artifacts::{Artifact, Part};
pub use registry::HttpRegistry;
pub use rollhook_registry_logins::{LoginFiles, PlatformLogins};
pub use settings::RegistrySettings;
