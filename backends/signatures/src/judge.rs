//! The verdict about one signature: pure.

use rollhook_core::{
    image::Digest,
    requirement::{Attestation, AttestationKind, Requirement, Signer},
    text::escaped,
};
use sigstore_verify::types::Statement;

use crate::{
    forms::{Candidate, Claim},
    trust::{Identity, Trust, has_signed},
};

/// The kind that the statement of a signature names.
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";
/// The kinds that statements of provenance name, of SLSA's version 1 and of 0.2, and where each names its
/// builder.
const PROVENANCES: [(&str, &str); 2] =
    [("https://slsa.dev/provenance/v1", "/runDetails/builder/id"), ("https://slsa.dev/provenance/v0.2", "/builder/id")];
/// The most characters of a text of a stranger.
const TEXT_MAX: usize = 200;

/// A thing that a requirement demands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand<'a> {
    /// A signature by one of the signers.
    Signature(&'a [Signer]),
    /// An attestation by one of the signers.
    Attestation(&'a Attestation, &'a [Signer]),
}

impl<'a> Demand<'a> {
    /// Returns what a requirement demands.
    pub(crate) fn of(requirement: &'a Requirement) -> Vec<Self> {
        let signers = requirement.signers();
        let signature = (!signers.is_empty()).then_some(Self::Signature(signers));
        let attestation = requirement.attestation().map(|it| Self::Attestation(it, requirement.attesters()));
        signature.into_iter().chain(attestation).collect()
    }

    /// Returns whether a statement of this kind can meet the demand.
    pub(crate) fn is_about(self, predicate: &str) -> bool {
        match self {
            Self::Signature(_) => predicate == SIGNATURE,
            Self::Attestation(Attestation { kind: AttestationKind::SlsaProvenance, .. }, _) => {
                PROVENANCES.iter().any(|(kind, _)| *kind == predicate)
            }
        }
    }

    /// The word for what meets it.
    fn noun(self) -> &'static str {
        match self {
            Self::Signature(_) => "signature",
            Self::Attestation(..) => "attestation",
        }
    }

    fn signers(self) -> &'a [Signer] {
        match self {
            Self::Signature(signers) | Self::Attestation(_, signers) => signers,
        }
    }
}

/// The verdict about a signature and a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The signature meets the demand, by the one that the line names.
    Meets(String),
    /// The signature is of the demanded kind, and does not count, as the line says.
    Fails(String),
    /// The signature is of another kind.
    Other,
}

/// Returns the verdict about a signature of an image with this digest.
pub(crate) fn verdict(candidate: &Candidate, digest: &Digest, demand: Demand<'_>, trust: &Trust) -> Verdict {
    let is_about = match (&candidate.claim, demand) {
        (Claim::Image(_), Demand::Signature(_)) => true,
        (Claim::Image(_), Demand::Attestation(..)) => false,
        (Claim::Statement(statement), demand) => demand.is_about(&statement.predicate_type),
    };
    if !is_about {
        return Verdict::Other;
    }
    match signer(candidate, digest, demand, trust) {
        Ok(by) => Verdict::Meets(by),
        Err(why) => Verdict::Fails(format!("a {} {why}", demand.noun()).replacen("a a", "an a", 1)),
    }
}

/// Returns the line that names who meets a demand by a signature that is about it.
fn signer(candidate: &Candidate, digest: &Digest, demand: Demand<'_>, trust: &Trust) -> Result<String, String> {
    if !candidate.claim.is_of(digest) {
        return Err("of another image".to_owned());
    }
    let built = match (&candidate.claim, demand) {
        (Claim::Statement(statement), Demand::Attestation(attestation, _)) => built(statement, attestation)?,
        _ => String::new(),
    };
    let by = match by_key(candidate, demand.signers()) {
        Some(by) => by,
        None if candidate.bundle.signing_certificate().is_none() => {
            return Err("by another key, or one that does not hold".to_owned());
        }
        None => by_identity(&trust.identity(candidate, digest)?, demand.signers())?,
    };
    Ok(format!("{} by {by}{built}", demand.noun()))
}

/// Returns the signer whose key has made a signature.
fn by_key(candidate: &Candidate, signers: &[Signer]) -> Option<String> {
    let made = |signer: &&Signer| matches!(signer, Signer::Key(key) if has_signed(key, candidate));
    signers.iter().find(made).map(ToString::to_string)
}

/// Returns the words of an identity, if it is one of the signers.
fn by_identity(found: &Identity, signers: &[Signer]) -> Result<String, String> {
    let is_it = |signer: &&Signer| matches!(signer, Signer::Identity { issuer, subject } if *issuer == found.issuer && subject.matches(&found.subject));
    let named = format!("issuer={},subject={}", shown(&found.issuer, TEXT_MAX), shown(&found.subject, TEXT_MAX));
    if signers.iter().any(|signer| is_it(&signer)) { Ok(named) } else { Err(format!("by {named}")) }
}

/// Returns the end of the line that names the builder of a statement, if it is the one that is demanded.
fn built(statement: &Statement, attestation: &Attestation) -> Result<String, String> {
    let place = PROVENANCES.iter().find(|(kind, _)| *kind == statement.predicate_type);
    let builder = place.and_then(|(_, place)| statement.predicate.pointer(place)?.as_str());
    match (&attestation.builder, builder) {
        (None, None) => Ok(String::new()),
        (Some(_), None) => Err("that names no builder".to_owned()),
        (Some(wanted), Some(builder)) if !wanted.matches(builder) => {
            Err(format!("of the builder {}", shown(builder, TEXT_MAX)))
        }
        (Some(_) | None, Some(builder)) => Ok(format!(", built by {}", shown(builder, TEXT_MAX))),
    }
}

/// Returns a text of a stranger as it may be shown, cut after so many characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    let mark = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{mark}", escaped(&cut))
}

#[cfg(test)]
mod tests;
