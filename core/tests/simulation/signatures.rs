//! The signatures of images, which lie beside them at the registry.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::Namespace,
    image::{Digest, ImageRef},
    ports::{ImageVerifier, Verified},
    requirement::{Requirement, Signer},
};

use crate::{broken::Promise, recording_ports::RecordingPorts};

/// Who signs images: the first one most of them, and the second one fewer.
const SIGNERS: [&str; 2] = ["ada", "eve"];

fn signer(name: &str) -> Signer {
    format!("issuer=https://id.example.com,subject={name}@example.com").parse().unwrap()
}

/// The requirement that images are signed by one of the two.
pub(crate) fn signed_by(number: u8) -> Requirement {
    Requirement::new(vec![signer(SIGNERS[usize::from(number)])], None).unwrap()
}

/// Whether an image was signed at its push by whom the requirement names.
pub(crate) fn is_signed(digest: &Digest, requirement: &Requirement) -> bool {
    let last = digest.as_str().chars().next_back().and_then(|digit| digit.to_digit(16)).unwrap();
    if *requirement == signed_by(0) { !last.is_multiple_of(4) } else { !last.is_multiple_of(2) }
}

#[async_trait]
impl ImageVerifier for RecordingPorts {
    fn check(&self, _: &Requirement) -> std::result::Result<(), String> {
        Ok(())
    }

    async fn verify(&self, _: &Namespace, image: &ImageRef, requirement: &Requirement) -> Result<Verified> {
        let answers = self.environment.registry.answers();
        if matches!(answers, Err(Error::Denied { .. })) {
            self.environment.rules.lock().unwrap().signatures_are_denied(image);
        }
        let answer = answers.and_then(|()| {
            let digest = image.digest().ok_or_else(|| Error::invalid("an image without a digest"))?;
            let is_signed = self.environment.rules.lock().unwrap().is_signed_by_now(digest, requirement);
            let is_taken_for_signed = is_signed || self.environment.promise == Some(Promise::Signature);
            Ok(match is_taken_for_signed {
                true => Verified::Signed { by: vec![requirement.summary()] },
                false => Verified::NotSigned { found: Vec::new() },
            })
        });
        self.log_answer(&format!("verify {image}: {answer:?}"), &answer);
        answer
    }
}
