//! The check of a signature with one key.

use openidconnect::{
    JsonWebKey,
    core::{CoreJsonWebKey, CoreJwsSigningAlgorithm},
};
use rollhook_management::keyless::{Algorithm, IdToken};

/// Returns whether this key made the token's signature. A key of another type than the algorithm needs, or one that its
/// issuer publishes for another use or algorithm, has made none.
pub(crate) fn fits(key: &CoreJsonWebKey, token: &IdToken) -> bool {
    let algorithm = match token.algorithm() {
        Algorithm::Rs256 => CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
        Algorithm::Rs512 => CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
        Algorithm::Ps256 => CoreJwsSigningAlgorithm::RsaSsaPssSha256,
        Algorithm::Es256 => CoreJwsSigningAlgorithm::EcdsaP256Sha256,
        Algorithm::Es384 => CoreJwsSigningAlgorithm::EcdsaP384Sha384,
        Algorithm::EdDsa => CoreJwsSigningAlgorithm::EdDsa,
    };
    key.verify_signature(&algorithm, token.signed().as_bytes(), &token.signature()).is_ok()
}
