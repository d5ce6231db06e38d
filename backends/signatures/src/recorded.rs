//! Signatures as cosign made them, recorded by `testbed/record.sh`. Their certificates lasted for 10 minutes.

use std::collections::BTreeMap;

use rollhook_core::{
    image::Digest,
    requirement::{PublicKey, Requirement, Signer},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    forms::{self, Candidate, ENVELOPE, SIMPLE_SIGNING, Unreadable},
    judge::{Demand, Verdict, verdict},
    trust::Trust,
};

pub(crate) const IDENTITY: &str =
    "issuer=https://issuer.test,subject=https://git.test/shop/api/.ci/release.yml@refs/tags/v1";
pub(crate) const ROOT_TIMES: &str = include_str!("recorded/root-times.json");
pub(crate) const ROOT_LOG: &str = include_str!("recorded/root-log.json");

/// A signature as its registry has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) image: Digest,
    pub(crate) media_type: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) body: String,
}

macro_rules! recorded {
    ($($name:ident = $file:literal,)*) => {
        impl Recorded {
            $(pub(crate) fn $name() -> Self {
                serde_json::from_str(include_str!(concat!("recorded/", $file, ".json"))).unwrap()
            })*
        }
    };
}

recorded! {
    key_3 = "key-3",
    attest_key_3 = "attest-key-3",
    times_3 = "times-3",
    log_3 = "log-3",
    attest_times_3 = "attest-times-3",
    key_2 = "key-2",
    attest_key_2 = "attest-key-2",
    log_2 = "log-2",
    attest_log_2 = "attest-log-2",
}

impl Recorded {
    pub(crate) fn read(&self) -> Result<Candidate, Unreadable> {
        let body = self.body.as_bytes();
        match self.media_type.as_str() {
            SIMPLE_SIGNING => forms::simple(body, &self.annotations),
            ENVELOPE => forms::envelope(body, &self.annotations),
            _ => forms::bundle(body),
        }
    }

    /// Returns it with its JSON text changed.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut body = serde_json::from_str(&self.body).unwrap();
        change(&mut body);
        Self { body: body.to_string(), ..self.clone() }
    }

    /// Returns the verdict about the first demand of a requirement, for the image that it was made for.
    pub(crate) fn verdict(&self, requirement: &Requirement, root: &str) -> Verdict {
        self.verdict_for(&self.image, requirement, root)
    }

    pub(crate) fn verdict_for(&self, image: &Digest, requirement: &Requirement, root: &str) -> Verdict {
        let trust = Trust::new(Some(root)).unwrap();
        verdict(&self.read().unwrap(), image, Demand::of(requirement)[0], &trust)
    }
}

pub(crate) fn key() -> Signer {
    Signer::Key(include_str!("recorded/cosign.pub").parse::<PublicKey>().unwrap())
}

pub(crate) fn other_key() -> Signer {
    Signer::Key(include_str!("recorded/other.pub").parse::<PublicKey>().unwrap())
}

pub(crate) fn identity() -> Signer {
    IDENTITY.parse().unwrap()
}

/// Returns the requirement of a signature by one of these.
pub(crate) fn signed_by(signers: &[Signer]) -> Requirement {
    Requirement::new(signers.to_vec(), None).unwrap()
}

/// Returns the requirement of an attestation in these words, by this signer.
pub(crate) fn attested(words: &str, signer: Signer) -> Requirement {
    let mut attestation: rollhook_core::requirement::Attestation = words.parse().unwrap();
    attestation.signer = Some(signer);
    Requirement::new(Vec::new(), Some(attestation)).unwrap()
}
