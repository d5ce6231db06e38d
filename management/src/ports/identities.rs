//! The port that verifies id_tokens.

use async_trait::async_trait;

use rollhook_core::error::Result;

use crate::keyless::{IdToken, Issuer};

/// Verifies the signatures of id_tokens by the keys that their issuers publish. The service judges the claims, and asks
/// for issuers that the named app trusts alone.
///
/// Security: a key counts for the issuer that publishes it, and no key or address that a token names is used. An issuer
/// is called at a bounded rate, whatever tokens come in.
#[async_trait]
pub trait IdentityVerifier: Send + Sync {
    /// Returns whether the issuer can be called at all, as far as its text says.
    ///
    /// # Errors
    /// The reason why it cannot, as the end of a sentence that begins with the issuer.
    fn check(&self, issuer: &Issuer) -> Result<(), String>;

    /// Returns whether the token was signed by the key of its id that the issuer publishes.
    ///
    /// # Errors
    /// If the issuer's keys are not known and cannot be read now.
    async fn verify(&self, issuer: &Issuer, token: &IdToken) -> Result<bool>;

    /// Returns whether [`verify`](Self::verify) is worth a call, without one: the token is signed by a key that is
    /// known, or by one that is unknown and may be read now.
    fn recognizes(&self, issuer: &Issuer, token: &IdToken) -> bool;
}
