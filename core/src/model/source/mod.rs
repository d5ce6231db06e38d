//! Git sources: every part is safe to hand to git and to a builder once it is parsed.
//!
//! Each part ends up in the arguments of a program. So no part may begin with a hyphen, be a path that leads out of the
//! repository, or hold a secret; a source refers to the builder's credentials by name alone.

mod allowed;
mod log;
mod url;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    app::{InvalidName, label},
    image::ImageRef,
    text::{checked_text, hash_of, hex},
};

pub use allowed::{AllowedSources, HostPattern, METADATA_NETWORKS, SourceRefused, is_local_address};
pub use log::{BranchLog, LoggedCommit};
pub use url::{GitUrl, URL_MAX};

/// The greatest length of a branch or path, in bytes.
pub const PART_MAX: usize = 255;

checked_text! {
    /// A branch's name, as `git check-ref-format --branch` takes it, without `refs/heads/`.
    Branch, InvalidName, branch
}
checked_text! {
    /// A path within a repository: relative, `/` between its parts, and never out of it; `.` is the repository itself.
    RelativePath, InvalidName, relative
}
checked_text! {
    /// The repository that built images are pushed to, such as `registry.example.com/shop/api`.
    ImageRepository, InvalidName, repository
}
checked_text! {
    /// The name of credentials that the builder knows; their content is never seen here.
    CredentialsName, InvalidName, credentials
}

/// The git repository and build settings of a git app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitSource {
    /// The repository's URL, without credentials.
    pub url: GitUrl,
    /// The branch whose pushes count.
    pub branch: Branch,
    /// The Dockerfile's path within the context.
    pub dockerfile: RelativePath,
    /// The build context's path within the repository.
    pub context: RelativePath,
    /// The repository that built images are pushed to.
    pub image_repository: ImageRepository,
    /// The credentials that the source is read with; `None` if it is public, or the builder has its own way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsName>,
}

impl GitSource {
    /// Returns the fingerprint of the source, which differs whenever any part of it does.
    pub fn fingerprint(&self) -> Fingerprint {
        let parts = [
            self.url.as_str(),
            self.branch.as_str(),
            self.dockerfile.as_str(),
            self.context.as_str(),
            self.image_repository.as_str(),
            self.credentials.as_ref().map_or("", CredentialsName::as_str),
        ];
        Fingerprint(hex(&hash_of(parts)[..8]))
    }
}

/// A short text that identifies the settings of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

/// Checks the rules of `git check-ref-format`: rejects names that git would refuse, or read as an option.
fn branch(text: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName::new("branch", text, rule));
    if text.is_empty() || text.len() > PART_MAX {
        return fail("must be 1 to 255 characters");
    }
    if text.starts_with('-') {
        return fail("must not begin with a hyphen");
    }
    if text == "@" || text == "HEAD" || text.starts_with("refs/") {
        return fail("must be a branch's own name, such as main");
    }
    let forbidden = |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    if text.contains(forbidden) || text.contains("..") || text.contains("@{") || text.ends_with('.') {
        return fail("must be a name that git takes: no spaces, ~ ^ : ? * [ \\ and no .. or @{");
    }
    if text.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock")) {
        return fail("must have parts that are not empty, do not begin with a dot or end in .lock");
    }
    Ok(text.to_owned())
}

fn relative(text: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName::new("path", text, rule));
    if text.is_empty() || text.len() > PART_MAX {
        return fail("must be 1 to 255 characters");
    }
    if text.starts_with(['/', '-', '~']) || text.contains('\\') || text.contains(char::is_control) {
        return fail("must be a relative path that begins with none of / - ~ and holds no backslash");
    }
    let text = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
    if text == "." || text.is_empty() {
        return Ok(".".to_owned());
    }
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return fail("must stay within the repository: no empty parts, . or ..");
    }
    if text.split('/').any(|part| part.eq_ignore_ascii_case(".git")) {
        return fail("must not lead into .git");
    }
    Ok(text.to_owned())
}

fn repository(text: &str) -> Result<String, InvalidName> {
    let parsed: Result<ImageRef, _> = text.parse();
    match parsed {
        Ok(image) if image.tag().is_none() && image.digest().is_none() => Ok(text.to_owned()),
        Ok(_) => {
            Err(InvalidName::new("image repository", text, "must be without a tag and a digest: builds give it those"))
        }
        Err(why) => Err(InvalidName::new("image repository", text, why.rule)),
    }
}

fn credentials(text: &str) -> Result<String, InvalidName> {
    let rule = "must be lower-case letters, digits and hyphens, at most 63 (the name of credentials, never a secret)";
    // An invalid name may be the secret itself.
    label("credentials", text).map_err(|_| InvalidName::new("credentials", "…", rule))
}

#[cfg(test)]
mod tests;
