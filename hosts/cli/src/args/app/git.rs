//! The flags that say what a git app is built from.

use clap::Args;
use rollhook_api::{GitChoice, SourcePatch};
use rollhook_core::source::{Branch, ImageRepository, RelativePath};

/// The source of a git app.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "An app that is built from git")]
pub(crate) struct Git {
    /// The repository, https://… or ssh://…, without credentials
    // Kept as text until it is used: clap repeats what it cannot parse, and a URL may hold a password by mistake.
    #[arg(long, value_name = "URL")]
    git: Option<String>,
    /// The branch whose pushes count [new apps: main]
    #[arg(long)]
    branch: Option<Branch>,
    /// The repository that built images are pushed to; where Docker builds them, their name on the machine
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<ImageRepository>,
    /// The Dockerfile's path within the context [new apps: Dockerfile]
    #[arg(long, value_name = "PATH")]
    dockerfile: Option<RelativePath>,
    /// The build context's path within the repository [new apps: .]
    #[arg(long, value_name = "PATH")]
    context: Option<RelativePath>,
    /// The name of the credentials that the builder reads the repository with; empty for none
    #[arg(long, value_name = "NAME")]
    credentials: Option<String>,
}

impl Git {
    /// Returns the change that the flags ask for.
    pub(crate) fn patch(&self) -> SourcePatch {
        SourcePatch {
            url: self.git.clone(),
            branch: self.branch.as_ref().map(ToString::to_string),
            dockerfile: self.dockerfile.as_ref().map(ToString::to_string),
            context: self.context.as_ref().map(ToString::to_string),
            image_repository: self.image_repository.as_ref().map(ToString::to_string),
            credentials: self.credentials.clone(),
        }
    }

    /// Returns a new app's source, or `None` for an image app.
    ///
    /// # Errors
    /// If there are parts of a source without its URL, or no repository for its images.
    pub(crate) fn choice(&self) -> Result<Option<GitChoice>, &'static str> {
        let given = self.patch();
        let Some(url) = given.url.clone() else {
            return if given.is_empty() { Ok(None) } else { Err("--git: say which repository the app is built from.") };
        };
        let Some(image_repository) = given.image_repository else {
            return Err(
                "--image-repository: say where built images are pushed to, or with Docker what they are named.",
            );
        };
        let default = GitChoice::default();
        Ok(Some(GitChoice {
            url,
            branch: given.branch.unwrap_or(default.branch),
            dockerfile: given.dockerfile.unwrap_or(default.dockerfile),
            context: given.context.unwrap_or(default.context),
            image_repository,
            credentials: given.credentials.filter(|name| !name.is_empty()),
        }))
    }
}
