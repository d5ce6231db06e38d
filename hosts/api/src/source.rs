//! What git apps are built from.

use rollhook_core::{
    request::{Field, Refusal, SourceChange},
    source::GitSource,
};
use serde::{Deserialize, Serialize};

use crate::app::field;

/// What a new git app is built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GitChoice {
    /// The repository's URL, `https://…` or `ssh://…`, without credentials.
    pub url: String,
    /// The branch whose pushes count; default `main`.
    pub branch: String,
    /// The Dockerfile's path within the context; default `Dockerfile`.
    pub dockerfile: String,
    /// The build context's path within the repository; default `.`.
    pub context: String,
    /// The repository that built images are pushed to.
    pub image_repository: String,
    /// The name of the credentials that the builder reads the source with.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// The source that is meant.
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
            credentials: field(Field::GitCredentials, self.credentials.as_deref().map(str::parse).transpose())?,
        })
    }
}

/// A change of some of a git app's source; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourcePatch {
    /// See [`GitChoice::url`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// See [`GitChoice::branch`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// See [`GitChoice::dockerfile`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// See [`GitChoice::context`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// See [`GitChoice::image_repository`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_repository: Option<String>,
    /// See [`GitChoice::credentials`]; an empty name takes them away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

impl SourcePatch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The change that is asked for.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self) -> Result<SourceChange, Refusal> {
        let credentials = self.credentials.as_deref().map(|name| (!name.is_empty()).then(|| name.parse()).transpose());
        Ok(SourceChange {
            url: field(Field::SourceUrl, self.url.as_deref().map(str::parse).transpose())?,
            branch: field(Field::SourceBranch, self.branch.as_deref().map(str::parse).transpose())?,
            dockerfile: field(Field::SourceDockerfile, self.dockerfile.as_deref().map(str::parse).transpose())?,
            context: field(Field::SourceContext, self.context.as_deref().map(str::parse).transpose())?,
            image_repository: field(
                Field::SourceImageRepository,
                self.image_repository.as_deref().map(str::parse).transpose(),
            )?,
            credentials: field(Field::SourceCredentials, credentials.transpose())?,
        })
    }
}
