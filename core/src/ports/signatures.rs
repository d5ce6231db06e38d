//! The port that verifies who signed an image.

use async_trait::async_trait;

use crate::{app::Namespace, error::Result, image::ImageRef, requirement::Requirement};

/// The most lines about what was found, and the most characters of one.
pub const FOUND_MAX: (usize, usize) = (10, 300);

/// The answer about an image and a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The image has what is required.
    Signed {
        /// The signer, and the attestation's with its builder: each as a line that people read.
        by: Vec<String>,
    },
    /// The image has less.
    NotSigned {
        /// The signatures and attestations that were found, and why each does not count; empty: there are none. At most
        /// [`FOUND_MAX`] lines, in one line each.
        found: Vec<String>,
    },
}

/// Verifies the signatures of images at their registries; without effects. A call is made for an environment, with the logins that
/// it may use. What it answers holds for the digest, whatever is signed later: a signature is never taken back here.
///
/// - `signed_image_is_signed`: by each signer of the requirement alone, whichever of the known forms the signature has.
/// - `signature_of_another_counts_for_nothing`: another key, issuer or subject is `NotSigned`, and `found` names it.
/// - `signature_of_another_image_counts_for_nothing`: one that lies beside this image, but was made for another digest.
/// - `image_without_signatures_is_not_signed`: with nothing found.
/// - `unreadable_signature_counts_for_nothing`: it is found, and a good one beside it counts.
/// - `attestation_is_that_of_its_builder`: of another builder or another kind it is `NotSigned`.
/// - `attestation_is_no_signature`: and a signature is no attestation.
/// - `image_has_a_digest`: a reference without one is `Invalid`.
/// - `away_is_unavailable`: `Unavailable` if the registry is away, does not answer in a bounded time, or fails: no verdict.
/// - `busy_is_unavailable_with_its_time`: `Unavailable` if there were too many calls, with the time that the registry asks for, if
///   it does ([`Error::retry_after`](crate::Error::retry_after)).
/// - `closed_repository_is_denied`: `Denied` if the login is missing or wrong.
/// - `answers_are_bounded`: an answer without an end, or of other bytes than its digest says, ends the call, and makes no signature.
///   So do very many signatures: those who may write to the repository can hide one, and never make one.
#[async_trait]
pub trait ImageVerifier: Send + Sync {
    /// Returns `Ok` if this verifier can decide a requirement. Has no effect, and calls nobody.
    ///
    /// # Errors
    /// The reason why it cannot, as a sentence, such as a key of an algorithm that it does not know.
    fn check(&self, requirement: &Requirement) -> std::result::Result<(), String>;

    /// Returns whether an image has what is required. The image has a digest, which is the one that is verified; without one it
    /// is `Invalid`.
    async fn verify(&self, environment: &Namespace, image: &ImageRef, requirement: &Requirement) -> Result<Verified>;
}
