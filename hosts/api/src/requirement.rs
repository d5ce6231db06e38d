//! Requirements on the images of projects and environments.

use std::fmt;

use rollhook_core::{
    app::App,
    request::{Field, Refusal},
    requirement::{Attestation, InvalidRequirement, Requirement, RequirementScope, SIGNERS_MAX, Signer},
    time::Timestamp,
};
use rollhook_management::requirements::RealmRequirement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    app::{field, invalid},
    openapi::schemas,
};

/// A requirement on images: the body of `PUT /api/v1/requirements/…`. It names a signer, an attestation, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RequirementRequest {
    /// The signers of whom one must have signed an image: `key=` and a public key as PEM text, or `issuer=URL,subject=PATTERN`, an
    /// identity of keyless signing.
    #[schemars(extend("maxItems" = SIGNERS_MAX))]
    pub require_signature: Vec<String>,
    /// The attestation that an image must have: `slsa-provenance`, with `builder=PATTERN` if it must name that builder, and with the
    /// words of its signer if that is none of the image's. Empty for none.
    pub require_attestation: String,
}

impl RequirementRequest {
    /// Returns the requirement.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<Requirement, Refusal> {
        let name = if self.require_signature.is_empty() { Field::RequireAttestation } else { Field::RequireSignature };
        let signers = signers(Field::RequireSignature, &self.require_signature)?;
        let attestation = attestation(Field::RequireAttestation, &self.require_attestation)?;
        if signers.is_empty() && attestation.is_none() {
            let rule = "a requirement names a signer or an attestation; DELETE ends it";
            return Err(invalid(Field::RequireSignature, rule));
        }
        Requirement::new(signers, attestation).map_err(|error: InvalidRequirement| invalid(name, error.rule))
    }
}

/// Reads signers.
pub(crate) fn signers(name: Field, texts: &[String]) -> Result<Vec<Signer>, Refusal> {
    if texts.len() > SIGNERS_MAX {
        return Err(invalid(name, &format!("at most {SIGNERS_MAX} signers may be named")));
    }
    let signers: Result<_, InvalidRequirement> = texts.iter().map(|text| text.parse()).collect();
    field(name, signers)
}

/// Reads an attestation; `None` for an empty text.
pub(crate) fn attestation(name: Field, text: &str) -> Result<Option<Attestation>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    field::<_, InvalidRequirement>(name, text.parse().map(Some))
}

/// A requirement in the words that set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demands {
    /// The signers of whom one must have signed an image, each as `key=PEM` or `issuer=URL,subject=PATTERN`; empty: no signature is
    /// required.
    #[serde(default)]
    pub require_signature: Vec<String>,
    /// The attestation that an image must have, such as `slsa-provenance,builder=PATTERN`; empty for none.
    #[serde(default)]
    pub require_attestation: String,
}

impl Demands {
    /// Returns a requirement as it is on the wire.
    pub fn of(requirement: Option<&Requirement>) -> Self {
        let attestation = requirement.and_then(Requirement::attestation);
        Self {
            require_signature: requirement.iter().flat_map(|some| some.signers()).cloned().map(String::from).collect(),
            require_attestation: attestation.cloned().map(String::from).unwrap_or_default(),
        }
    }

    /// Returns the signers in words, keys by their fingerprints; `None` if there are none.
    pub fn signers(&self) -> Option<String> {
        let shown = |text: &String| text.parse::<Signer>().map_or_else(|_| text.clone(), |signer| signer.to_string());
        let shown: Vec<String> = self.require_signature.iter().map(shown).collect();
        (!shown.is_empty()).then(|| shown.join(" or "))
    }

    /// Returns the attestation in words, its signer by the fingerprint of the key; `None` if there is none.
    pub fn attestation(&self) -> Option<String> {
        let text = &self.require_attestation;
        let shown = text.parse::<Attestation>().map_or_else(|_| text.clone(), |attestation| attestation.to_string());
        (!text.is_empty()).then_some(shown)
    }
}

/// The demands in words, keys by their fingerprints.
impl fmt::Display for Demands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signers = self.signers().map(|signers| format!("signed by {signers}"));
        let attestation = self.attestation().map(|attestation| format!("attested as {attestation}"));
        f.write_str(&signers.into_iter().chain(attestation).collect::<Vec<_>>().join(", "))
    }
}

/// A requirement that an app's images must meet beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequirementOnApp {
    /// The apps that it is on: those of the `project`, or of the `environment`.
    #[schemars(schema_with = "schemas::requirement_scope")]
    pub on: String,
    /// The requirement.
    #[serde(flatten)]
    pub demands: Demands,
}

impl RequirementOnApp {
    /// Returns the requirements of an app's project and environment as they are on the wire, the widest first.
    pub fn all(app: &App) -> Vec<Self> {
        let shown = |(scope, requirement): (RequirementScope, &Requirement)| Self {
            on: scope.to_string(),
            demands: Demands::of(Some(requirement)),
        };
        app.requirements.in_force().map(shown).collect()
    }
}

/// The requirement on a project, or on one of its environments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequirementOnRealm {
    /// The project.
    pub project: String,
    /// The environment; absent: all of the project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The requirement.
    #[serde(flatten)]
    pub demands: Demands,
    /// The party that set it.
    pub by: String,
    /// The time at which it was set.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// Notes for the caller that has just set it, such as that some apps are built here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl RequirementOnRealm {
    /// Returns a requirement as it is on the wire.
    pub fn of(set: &RealmRequirement) -> Self {
        Self {
            project: set.realm.project().map(ToString::to_string).unwrap_or_default(),
            environment: set.realm.environment().map(ToString::to_string),
            demands: Demands::of(Some(&set.requirement)),
            by: set.by.to_string(),
            at: set.at,
            notes: set.notes.clone(),
        }
    }
}

/// The requirements on the projects and environments that the caller may set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequirementList {
    /// The requirements, those that were set last first.
    pub requirements: Vec<RequirementOnRealm>,
}
