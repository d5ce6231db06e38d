//! Verifies id_tokens by the keys that their issuers publish (OpenID Connect Discovery 1.0).
//!
//! ```text
//!   verify(issuer, token)
//!      │  keys.rs: is the key known, may the issuer be called?     pure
//!      ▼
//!   rollhook_https: {issuer}/.well-known/openid-configuration → jwks_uri   bounded in time, size and addresses
//!      ▼
//!   signature.rs: the key of the token's id, for the token's algorithm
//! ```
//!
//! The keys of one issuer, and whether a token is signed by one of them, are [`IssuerKeys`]; another backend reads the keys
//! of its own issuer in its own way. A verifier calls an issuer once a minute at most after a call that succeeded, and once in five seconds after one that
//! failed, whatever tokens come in.

mod issuer_keys;
mod keys;
mod provider_answers;
mod sign_in;
mod signature;
#[cfg(test)]
mod tests;
mod verifier;

pub use issuer_keys::{IssuerKeys, KeySet};
pub use rollhook_https::{Fetch, FetchError};
pub use sign_in::{OidcSignIn, SignInClient};
pub use verifier::OidcVerifier;
