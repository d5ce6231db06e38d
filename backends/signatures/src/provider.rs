//! The algorithms under `sigstore-verify`: ring's, which TLS has as well. Of a digest alone ring verifies nothing; that is done by
//! the crates `p256` and `p384`, which signing in has in the tree.

use std::sync::Once;

use p256::ecdsa::signature::hazmat::PrehashVerifier;
use ring::{digest, signature};
use sigstore_verify::{
    crypto::{CryptoProvider, Error, HashContext, KeyAlgorithm, Result, SigningScheme, install_default_provider},
    types::HashAlgorithm,
};

/// The algorithms of ring.
#[derive(Debug)]
struct Ring;

struct Context(digest::Context);

/// Has `sigstore-verify` use these algorithms, unless the process has named others for it.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _other_is_installed = install_default_provider(&Ring);
    });
}

/// Returns whether signatures by such a key can be verified.
pub(crate) fn knows(key: KeyAlgorithm) -> bool {
    algorithm(key.default_signing_scheme()).is_some()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum grows; an algorithm that is not known here verifies nothing"
)]
fn algorithm(scheme: SigningScheme) -> Option<&'static dyn signature::VerificationAlgorithm> {
    Some(match scheme {
        SigningScheme::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &signature::ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &signature::ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &signature::ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &signature::ED25519,
        SigningScheme::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    })
}

impl HashContext for Context {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        let hash = if algorithm == HashAlgorithm::Sha2256 {
            &digest::SHA256
        } else if algorithm == HashAlgorithm::Sha2384 {
            &digest::SHA384
        } else if algorithm == HashAlgorithm::Sha2512 {
            &digest::SHA512
        } else {
            return Err(Error::UnsupportedAlgorithm(algorithm.to_string()));
        };
        Ok(Box::new(Context(digest::Context::new(hash))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signed: &[u8]) -> Result<()> {
        let algorithm = algorithm(scheme).ok_or_else(|| unknown(scheme))?;
        signature::UnparsedPublicKey::new(algorithm, key).verify(data, signed).map_err(|_| wrong(scheme))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "as above; Fulcio's certificates of cosign are of ECDSA")]
    fn verify_prehashed(&self, scheme: SigningScheme, key: &[u8], digest: &[u8], signed: &[u8]) -> Result<()> {
        let is_valid = match scheme {
            SigningScheme::EcdsaP256Sha256 | SigningScheme::EcdsaP256Sha384 => {
                let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(key);
                let signed = p256::ecdsa::Signature::from_der(signed);
                key.and_then(|key| key.verify_prehash(digest, &signed?)).is_ok()
            }
            SigningScheme::EcdsaP384Sha256 | SigningScheme::EcdsaP384Sha384 => {
                let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(key);
                let signed = p384::ecdsa::Signature::from_der(signed);
                key.and_then(|key| key.verify_prehash(digest, &signed?)).is_ok()
            }
            _ => return Err(unknown(scheme)),
        };
        if is_valid { Ok(()) } else { Err(wrong(scheme)) }
    }
}

fn unknown(scheme: SigningScheme) -> Error {
    Error::UnsupportedAlgorithm(scheme.name().to_owned())
}

fn wrong(scheme: SigningScheme) -> Error {
    Error::Verification(format!("the signature ({}) is another key's, or of something else", scheme.name()))
}
