//! `rollhook requirement …`.

use clap::{Args, Subcommand};
use rollhook_api::RequirementRequest;
use rollhook_core::app::{Environment, Project};
use rollhook_management::access::Realm;

use super::signers::{attestation, signer, with_key};

#[derive(Debug, Subcommand)]
pub(crate) enum RequirementCommand {
    /// Require signed images of all apps of a project, or of one of its environments; the apps cannot loosen it
    ///
    /// The requirement before is replaced. The running versions stay, and rollbacks to a digest that has succeeded are not verified.
    Set(NewRequirement),
    /// List the requirements on projects and environments
    List,
    /// End the requirement on a project or an environment; others stay
    Remove(RequirementRealm),
}

/// The apps that a requirement is on.
#[derive(Clone, Debug, Args)]
pub(crate) struct RequirementRealm {
    /// The project
    #[arg(short, long, env = "ROLLHOOK_PROJECT", hide_env_values = true)]
    pub(crate) project: Project,
    /// The project's environment
    #[arg(
        short,
        long,
        env = "ROLLHOOK_ENVIRONMENT",
        hide_env_values = true,
        required_unless_present = "whole_project"
    )]
    pub(crate) environment: Option<Environment>,
    /// All environments of the project, in place of one
    #[arg(long)]
    pub(crate) whole_project: bool,
}

impl RequirementRealm {
    /// Returns the environment, unless the whole project is meant, whatever the context or a variable names.
    pub(crate) fn one(&self) -> Option<Environment> {
        self.environment.clone().filter(|_| !self.whole_project)
    }

    /// Returns the realm.
    pub(crate) fn realm(&self) -> Realm {
        let project = self.project.clone();
        match self.one() {
            Some(environment) => Realm::Environment { project, environment },
            None => Realm::Project { project },
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct NewRequirement {
    #[command(flatten)]
    pub(crate) realm: RequirementRealm,
    /// Who must have signed an image before it is deployed: key=FILE, a public key; or issuer=URL,subject=PATTERN, an identity of
    /// keyless signing, exact or the beginning of a URL up to / or @ and *. Repeatable: one of them is enough
    #[arg(long, value_name = "SIGNER", value_parser = signer, required_unless_present = "require_attestation")]
    require_signature: Vec<String>,
    /// The attestation that an image must have before it is deployed: slsa-provenance,builder=PATTERN, with the words of its signer
    /// if that is none of the image's
    #[arg(long, value_name = "ATTESTATION", value_parser = attestation)]
    require_attestation: Option<String>,
}

impl NewRequirement {
    /// Returns the requirement, with the keys that the named files have.
    ///
    /// # Errors
    /// Why a key's file cannot be read.
    pub(crate) fn request(&self) -> Result<RequirementRequest, String> {
        let signers: Result<_, _> = self.require_signature.iter().map(|text| with_key(text)).collect();
        let attestation = self.require_attestation.as_deref().map(with_key).transpose()?;
        Ok(RequirementRequest { require_signature: signers?, require_attestation: attestation.unwrap_or_default() })
    }
}
