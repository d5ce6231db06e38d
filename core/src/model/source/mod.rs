//! Git sources: every part is safe to hand to git and to a builder once it is parsed.
//!
//! Each part ends up in the arguments of a program. So no part may begin with a hyphen, be a path that leads out of the
//! repository, or hold a secret; a source refers to the builder's credentials by name alone.

mod url;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::{app::InvalidName, image::ImageRef};

pub use url::GitUrl;

/// The greatest length of a part of a source, in bytes.
const PART_MAX: usize = 255;

fn invalid(what: &'static str, given: &str, rule: &'static str) -> InvalidName {
    InvalidName { what, given: given.chars().take(PART_MAX + 1).collect(), rule }
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text of this part.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                $check(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_type! {
    /// A branch's name, as `git check-ref-format --branch` takes it, without `refs/heads/`.
    Branch, branch
}
text_type! {
    /// A path within a repository: relative, `/` between its parts, and never out of it; `.` is the repository itself.
    RelativePath, relative
}
text_type! {
    /// The repository that built images are pushed to, such as `registry.example.com/shop/api`.
    ImageRepository, repository
}
text_type! {
    /// The name of credentials that the builder knows; their content is never seen here.
    CredentialsName, credentials
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
        let mut hash = sha2::Sha256::new();
        let credentials = self.credentials.as_ref().map_or("", CredentialsName::as_str);
        let parts = [&self.url.0, &self.branch.0, &self.dockerfile.0, &self.context.0, &self.image_repository.0];
        for part in parts.map(String::as_str).into_iter().chain([credentials]) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        Fingerprint(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// A short text that identifies the settings of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

/// Checks the rules of `git check-ref-format`: rejects names that git would refuse, or read as an option.
fn branch(text: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(invalid("branch", text, rule));
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
    let fail = |rule| Err(invalid("path", text, rule));
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
        Ok(_) => Err(invalid("image repository", text, "must be without a tag and a digest: builds give it those")),
        Err(why) => Err(invalid("image repository", text, why.rule)),
    }
}

fn credentials(text: &str) -> Result<String, InvalidName> {
    let valid = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if text.is_empty() || text.len() > 63 || !text.bytes().all(valid) || text.starts_with('-') || text.ends_with('-') {
        let rule =
            "must be lower-case letters, digits and hyphens, at most 63 (the name of credentials, never a secret)";
        // An invalid name may be the secret itself.
        return Err(invalid("credentials", "…", rule));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
