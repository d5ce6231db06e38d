//! Whom this machine trusts to say who signed: certificate authorities, logs and timestamp authorities.

use rollhook_core::{
    image::Digest,
    requirement::{PublicKey, Requirement, Signer},
    text::json_values,
};
use sigstore_verify::{
    VerificationPolicy, Verifier,
    crypto::{KeyAlgorithm, SigningScheme, verify_signature},
    trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot},
    types::{Artifact, DerPublicKey, KindVersion, SignatureBytes, SignatureContent},
};

use crate::{
    forms::{Candidate, Claim, sha256},
    provider,
};

/// The most JSON values of a trust root.
const VALUES_MAX: usize = 50_000;

/// The trust root of identities. What it names is demanded: each signature has an entry in a log if it names logs, and each
/// certificate was logged if it names logs of certificates.
pub(crate) struct Trust {
    verifier: Verifier,
    has_logs: bool,
    has_certificate_logs: bool,
}

/// An identity that has signed, as its provider vouched for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) issuer: String,
    pub(crate) subject: String,
}

impl Trust {
    /// Returns the trust in what a trust root names; `None`: in the public instance of Sigstore, as it was when this program was
    /// built.
    ///
    /// # Errors
    /// The fault of the trust root, as the end of a sentence.
    pub(crate) fn new(root: Option<&str>) -> Result<Self, String> {
        provider::install();
        let text = root.unwrap_or(SIGSTORE_PRODUCTION_TRUSTED_ROOT);
        if json_values(text.as_bytes()) > VALUES_MAX {
            return Err(format!("has more than {VALUES_MAX} values"));
        }
        let root = TrustedRoot::from_json(text).map_err(|error| format!("cannot be read: {error}"))?;
        if root.certificate_authorities.is_empty() {
            return Err("names no certificate authority".to_owned());
        }
        if root.tlogs.is_empty() && root.timestamp_authorities.is_empty() {
            return Err(
                "names neither a log nor a timestamp authority: nothing says when a signature was made".to_owned()
            );
        }
        let verifier = Verifier::new(&root).map_err(|error| format!("cannot be used: {error}"))?;
        Ok(Self { verifier, has_logs: !root.tlogs.is_empty(), has_certificate_logs: !root.ctlogs.is_empty() })
    }

    /// Returns the identity that made a signature of an image with this digest, at a time at which its certificate held.
    ///
    /// # Errors
    /// The reason why none is proven, as the end of a sentence about the signature.
    pub(crate) fn identity(&self, candidate: &Candidate, digest: &Digest) -> Result<Identity, String> {
        let mut policy = VerificationPolicy::any_identity();
        if !self.has_certificate_logs {
            policy = policy.skip_sct();
        }
        if !self.has_logs || candidate.has_promise_alone {
            // An entry that is there is verified all the same, by the promise of its log.
            policy = policy.skip_tlog_unsafe();
        }
        if self.has_logs && candidate.has_promise_alone && !has_promise(candidate) {
            return Err("has no entry in a log".to_owned());
        }
        let artifact = match &candidate.claim {
            Claim::Image(_) => Artifact::from_blob(&candidate.signed),
            Claim::Statement(_) => Artifact::from_digest(sha256(digest).ok_or("names no digest")?),
        };
        let result = self.verifier.verify(artifact, &candidate.bundle, &policy);
        let result = result.map_err(|error| format!("does not hold: {error}"))?;
        let subject = result.identity().map(|identity| identity.as_str().to_owned());
        match (result.certificate_verified(), result.issuer(), subject) {
            (true, Some(issuer), Some(subject)) => Ok(Identity { issuer: issuer.to_owned(), subject }),
            _ => Err("has a certificate that names no identity".to_owned()),
        }
    }
}

/// Returns whether a signature has an entry in a log whose promise `sigstore-verify` verifies for the time that it names.
fn has_promise(candidate: &Candidate) -> bool {
    candidate.bundle.verification_material.tlog_entries.iter().any(|entry| {
        let is_of_first_version = entry.kind_version != KindVersion::HashedRekordV002;
        is_of_first_version && entry.inclusion_promise.is_some() && entry.integrated_time.is_some()
    })
}

/// Returns whether a key has made a signature. Neither a log nor a time is asked for: the key alone is what is trusted.
pub(crate) fn has_signed(key: &PublicKey, candidate: &Candidate) -> bool {
    let signature: &SignatureBytes = match &candidate.bundle.content {
        SignatureContent::MessageSignature(message) => &message.signature,
        SignatureContent::DsseEnvelope(envelope) => &envelope.signature.sig,
        _ => return false,
    };
    let der = DerPublicKey::from_bytes(key.as_der());
    let schemes = KeyAlgorithm::from_spki(&der).map(schemes).unwrap_or_default();
    schemes.iter().any(|scheme| verify_signature(&der, &candidate.signed, signature, *scheme).is_ok())
}

/// Returns the ways in which cosign signs with a key: the first versions have SHA-256 whatever the key is.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum grows; a key that is not known here has signed nothing")]
fn schemes(key: KeyAlgorithm) -> &'static [SigningScheme] {
    match key {
        KeyAlgorithm::EcdsaP256 => &[SigningScheme::EcdsaP256Sha256],
        KeyAlgorithm::EcdsaP384 => &[SigningScheme::EcdsaP384Sha384, SigningScheme::EcdsaP384Sha256],
        KeyAlgorithm::Ed25519 => &[SigningScheme::Ed25519],
        KeyAlgorithm::Rsa => &[SigningScheme::RsaPkcs1Sha256],
        _ => &[],
    }
}

/// Returns `Ok` if the signers of a requirement can be told.
///
/// # Errors
/// The reason why not, as a sentence.
pub(crate) fn check(requirement: &Requirement) -> Result<(), String> {
    provider::install();
    let keys = requirement.signers().iter().chain(requirement.attesters()).filter_map(|signer| match signer {
        Signer::Key(key) => Some(key),
        Signer::Identity { .. } => None,
    });
    for key in keys {
        let algorithm = KeyAlgorithm::from_spki(&DerPublicKey::from_bytes(key.as_der()));
        if !algorithm.is_ok_and(provider::knows) {
            return Err(format!(
                "The key {} is of an algorithm that is not known here: ECDSA with P-256 or P-384, Ed25519 and RSA are.",
                key.fingerprint()
            ));
        }
    }
    Ok(())
}
