//! The sources of git apps.

use rollhook_core::{
    app::LABEL_MAX,
    request::{Field, Refusal, SourceChange},
    source::{GitSource, PART_MAX, URL_MAX},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    app::{field, optional},
    openapi::schemas,
};

/// The source of a new git app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url", "image_repository"]))]
pub struct GitChoice {
    /// The repository's URL, `https://…` or `ssh://…`, without credentials.
    #[schemars(extend("maxLength" = URL_MAX))]
    pub url: String,
    /// The branch whose pushes are deployed.
    #[schemars(extend("maxLength" = PART_MAX))]
    pub branch: String,
    /// The Dockerfile's path within the context.
    #[schemars(extend("maxLength" = PART_MAX))]
    pub dockerfile: String,
    /// The build context's path within the repository.
    #[schemars(extend("maxLength" = PART_MAX))]
    pub context: String,
    /// The repository that built images are pushed to.
    #[schemars(extend("pattern" = schemas::repository()))]
    pub image_repository: String,
    /// The name of the credentials that the builder reads the source with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub credentials: Option<String>,
}

impl Default for GitChoice {
    fn default() -> Self {
        Self {
            url: String::new(),
            branch: "main".to_owned(),
            dockerfile: "Dockerfile".to_owned(),
            context: ".".to_owned(),
            image_repository: String::new(),
            credentials: None,
        }
    }
}

impl GitChoice {
    /// Returns the source.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self) -> Result<GitSource, Refusal> {
        Ok(GitSource {
            url: field(Field::GitUrl, self.url.parse())?,
            branch: field(Field::GitBranch, self.branch.parse())?,
            dockerfile: field(Field::GitDockerfile, self.dockerfile.parse())?,
            context: field(Field::GitContext, self.context.parse())?,
            image_repository: field(Field::GitImageRepository, self.image_repository.parse())?,
            credentials: optional(Field::GitCredentials, self.credentials.as_deref())?,
        })
    }
}

/// A change of a git app's source; absent members stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourcePatch {
    /// The repository's URL, `https://…` or `ssh://…`, without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = URL_MAX))]
    pub url: Option<String>,
    /// The branch whose pushes are deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = PART_MAX))]
    pub branch: Option<String>,
    /// The Dockerfile's path within the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = PART_MAX))]
    pub dockerfile: Option<String>,
    /// The build context's path within the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = PART_MAX))]
    pub context: Option<String>,
    /// The repository that built images are pushed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::repository()))]
    pub image_repository: Option<String>,
    /// The name of the credentials that the builder reads the source with; an empty name removes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = LABEL_MAX))]
    pub credentials: Option<String>,
}

impl SourcePatch {
    /// Returns whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the change.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self) -> Result<SourceChange, Refusal> {
        let credentials = self.credentials.as_deref().map(|name| (!name.is_empty()).then(|| name.parse()).transpose());
        Ok(SourceChange {
            url: optional(Field::SourceUrl, self.url.as_deref())?,
            branch: optional(Field::SourceBranch, self.branch.as_deref())?,
            dockerfile: optional(Field::SourceDockerfile, self.dockerfile.as_deref())?,
            context: optional(Field::SourceContext, self.context.as_deref())?,
            image_repository: optional(Field::SourceImageRepository, self.image_repository.as_deref())?,
            credentials: field(Field::SourceCredentials, credentials.transpose())?,
        })
    }
}
