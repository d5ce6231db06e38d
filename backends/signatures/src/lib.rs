//! Verifies who signed an image: signatures and attestations of Sigstore, as cosign and GitHub write them.
//!
//! ```text
//!   verify(environment, image, requirement) ── verifier.rs
//!     rollhook_registry: referrers of the digest · tag sha256-….sig · tag sha256-….att
//!        └─► forms.rs (pure) ─► a signature as it says of itself, of which nothing is believed
//!              └─► judge.rs (pure): of this image? of what is demanded? by whom?
//!                    └─► trust.rs ── sigstore_verify: certificates, times, logs ── provider.rs: ring
//! ```
//!
//! # What is believed
//!
//! - **A key** vouches by itself: neither a log nor a time is asked for.
//! - **An identity** is in a certificate that lasts for minutes. It counts if an authority of the trust root has issued it, and if it held
//!   when the signature was made, which a timestamp authority or a log says. A trust root that names logs demands an entry in one; one
//!   that names logs of certificates demands that too.
//! - **An attestation** counts by its signer: what it says of its builder is the signer's word.
//!
//! Nothing is called but the image's registry, by the reader of `rollhook-registry` with its bounds; the trust root is a text. Those who
//! may write to the repository can hide signatures behind others, and never make one that counts.

mod forms;
mod judge;
mod provider;
#[cfg(test)]
mod recorded;
mod trust;
mod verifier;

pub use verifier::SignatureVerifier;
