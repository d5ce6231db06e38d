//! Requests for promotions.

use rollhook_core::{
    app::{AppId, Environment, FullName, LABEL_MAX, Project},
    deploy::Revision,
    request::{Field, Refusal},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::{
    app::{field, object},
    openapi::schemas,
};

/// A request for a promotion: the body of `POST …/promote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promote {
    /// The environment to promote from.
    #[serde(deserialize_with = "object")]
    pub from: PromoteFrom,
    /// The revision that the caller believes to be current there; the call is refused if another one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub if_current: Option<Revision>,
    /// Whether the image is deployed without variables that the app there has and this one lacks: a promotion carries no
    /// configuration. Otherwise the call is refused (409 `variables-missing`), and the answer names them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub without_variables: bool,
}

/// The environment whose app of the same name is promoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromoteFrom {
    /// The promoted app's project.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub project: String,
    /// The promoted app's environment.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub environment: String,
}

impl Promote {
    /// Returns the app whose current image is to be deployed.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, to: &AppId) -> Result<FullName, Refusal> {
        let project: Project = field(Field::FromProject, self.from.project.parse())?;
        let environment: Environment = field(Field::FromEnvironment, self.from.environment.parse())?;
        let from = FullName { project, environment, name: to.name.clone() };
        field(Field::FromEnvironment, from.id())?;
        Ok(from)
    }
}
