//! The signatures that an image must have before it is deployed.

mod key;
mod pattern;
mod required;
mod words;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use key::PublicKey;
pub use pattern::TextPattern;
pub use required::{
    Required, RequirementCopies, RequirementCopy, RequirementHash, RequirementScope, ScopedRequirement,
};
use words::Words;

use crate::text::{self, quoted, text_conversions, words};

/// The most signers of a requirement.
pub const SIGNERS_MAX: usize = 8;
/// The most of a requirement that a message shows, in characters.
const SUMMARY_MAX: usize = 1_000;
/// The longest text of an issuer, a subject or a builder, in bytes.
pub const TEXT_MAX: usize = 1_024;

/// The error of a text that is no requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {rule}", quoted(given))]
pub struct InvalidRequirement {
    /// The beginning of the rejected text.
    pub given: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl InvalidRequirement {
    /// Returns the error of a text, of which it keeps the beginning.
    fn new(given: &str, rule: &'static str) -> Self {
        Self { given: given.chars().take(256).collect(), rule }
    }
}

/// The signer of an image: the words are `key=PEM` or `issuer=URL,subject=PATTERN`. `Display` shows a key by its fingerprint; the
/// serialized form has the key itself, and is read again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Signer {
    /// The owner of a key.
    Key(PublicKey),
    /// An identity that a provider of identities vouched for when it signed.
    Identity {
        /// The provider's URL.
        issuer: String,
        /// The identity, such as the URL of a workflow or an email address.
        subject: TextPattern,
    },
}

/// The kind of an attestation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttestationKind {
    /// How the image was built: provenance of SLSA, version 0.2 or 1.
    SlsaProvenance,
}

words! { AttestationKind:
    SlsaProvenance = "slsa-provenance",
}

/// A signed statement that an image must have: the words are `slsa-provenance,builder=PATTERN`, and those of its signer, if that
/// is another one than the image's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Attestation {
    /// The kind of the statement.
    pub kind: AttestationKind,
    /// The builder that it names; `None`: any.
    pub builder: Option<TextPattern>,
    /// Its signer; `None`: one of those who may sign the image.
    pub signer: Option<Signer>,
}

/// The demands on an image: a signature of one of the signers if any are named, and the attestation if one is. It demands at
/// least one of both, and each has a signer: anybody can write an attestation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Requirement(Fields);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Fields {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signers: Vec<Signer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attestation: Option<Attestation>,
}

impl Requirement {
    /// Returns the requirement of a signature by one of the signers, if there are any, and of an attestation, if there is one.
    ///
    /// # Errors
    /// If it demands nothing, has too many signers, or an attestation that nobody signs.
    pub fn new(signers: Vec<Signer>, attestation: Option<Attestation>) -> Result<Self, InvalidRequirement> {
        Fields { signers, attestation }.try_into()
    }

    /// Returns a requirement, or none, with the given parts in the place of its own; `None` if it demands nothing then.
    ///
    /// # Errors
    /// As [`Requirement::new`].
    pub fn changed(
        before: Option<Self>,
        signers: Option<Vec<Signer>>,
        attestation: Option<Option<Attestation>>,
    ) -> Result<Option<Self>, InvalidRequirement> {
        let before = before.map_or(Fields { signers: Vec::new(), attestation: None }, |before| before.0);
        let signers = signers.unwrap_or(before.signers);
        let attestation = attestation.unwrap_or(before.attestation);
        if signers.is_empty() && attestation.is_none() {
            return Ok(None);
        }
        Self::new(signers, attestation).map(Some)
    }

    /// The signers of the image; empty: it needs no signature.
    pub fn signers(&self) -> &[Signer] {
        &self.0.signers
    }

    /// The attestation that the image must have.
    pub fn attestation(&self) -> Option<&Attestation> {
        self.0.attestation.as_ref()
    }

    /// The signers of the attestation; empty if none is demanded.
    pub fn attesters(&self) -> &[Signer] {
        match &self.0.attestation {
            Some(Attestation { signer: Some(signer), .. }) => std::slice::from_ref(signer),
            Some(Attestation { signer: None, .. }) => &self.0.signers,
            None => &[],
        }
    }
}

impl Requirement {
    /// Returns the requirement as it is stored, with its keys, as one text.
    pub(crate) fn stored_text(&self) -> String {
        let signers = self.signers().iter().cloned().map(String::from);
        let attestation = self.attestation().cloned().map(String::from);
        signers.chain([String::new()]).chain(attestation).collect::<Vec<_>>().join("\n")
    }

    /// Returns the requirement in words that a message has room for.
    pub fn summary(&self) -> String {
        let mut words = self.to_string();
        text::cut(&mut words, SUMMARY_MAX);
        words
    }
}

impl TryFrom<Fields> for Requirement {
    type Error = InvalidRequirement;

    fn try_from(fields: Fields) -> Result<Self, InvalidRequirement> {
        let Fields { signers, attestation } = &fields;
        let invalid = |rule| Err(InvalidRequirement::new("", rule));
        if signers.len() > SIGNERS_MAX {
            return invalid("at most 8 signers may be named");
        }
        match attestation {
            None if signers.is_empty() => invalid("a requirement names a signer or an attestation"),
            Some(attestation) if signers.is_empty() && attestation.signer.is_none() => {
                invalid("an attestation needs a signer: key=FILE, or issuer=URL,subject=PATTERN")
            }
            Some(_) | None => Ok(Self(fields)),
        }
    }
}

impl From<Requirement> for Fields {
    fn from(requirement: Requirement) -> Self {
        requirement.0
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signers: Vec<String> = self.signers().iter().map(ToString::to_string).collect();
        let signature = (!signers.is_empty()).then(|| format!("signed by {}", signers.join(" or ")));
        let attestation = self.attestation().map(|attestation| format!("attested as {attestation}"));
        let parts: Vec<String> = signature.into_iter().chain(attestation).collect();
        f.write_str(&parts.join(", "))
    }
}

impl FromStr for Signer {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        let mut words = Words::read(text)?;
        let signer = words.signer()?;
        words.end()?;
        signer.ok_or_else(|| InvalidRequirement::new(text, "must be key=FILE, or issuer=URL,subject=PATTERN"))
    }
}

impl FromStr for Attestation {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        let text = text.trim();
        let (kind, rest) = text.split_once([',', ' ']).unwrap_or((text, ""));
        if kind != AttestationKind::SlsaProvenance.as_str() {
            return Err(InvalidRequirement::new(text, "must begin with slsa-provenance"));
        }
        let mut words = Words::read(rest)?;
        let builder = words.take("builder").map(|builder| builder.parse()).transpose()?;
        let signer = words.signer()?;
        words.end()?;
        Ok(Self { kind: AttestationKind::SlsaProvenance, builder, signer })
    }
}

impl Signer {
    /// Returns the words of the signer with its key as this text.
    fn text(&self, key: impl Fn(&PublicKey) -> String) -> String {
        match self {
            Self::Key(public) => format!("key={}", key(public)),
            Self::Identity { issuer, subject } => format!("issuer={issuer},subject={subject}"),
        }
    }
}

impl Attestation {
    fn text(&self, signer: impl Fn(&Signer) -> String) -> String {
        let builder = self.builder.as_ref().map(|builder| format!("builder={builder}"));
        let words = [Some(self.kind.to_string()), builder, self.signer.as_ref().map(signer)];
        words.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(PublicKey::fingerprint))
    }
}

impl fmt::Display for Attestation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(ToString::to_string))
    }
}

text_conversions!(Signer, InvalidRequirement, |signer| signer.text(|key| key.as_pem().to_owned()));
text_conversions!(Attestation, InvalidRequirement, |attestation| { attestation.text(|signer| signer.clone().into()) });

#[cfg(test)]
mod tests;
