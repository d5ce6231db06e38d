//! Image references, as the distribution project's grammar spells them and container runtimes read them
//! (`ParseNormalizedNamed` of its package `reference`); ports are at most 65535, and digests sha256 or sha512. A first part
//! with capitals and without a dot or port, which runtimes take for a host that no network has, is refused.

mod labels;
mod platform;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use labels::ImageLabels;
pub use platform::{Platform, ends_as_for_another_platform, is_for_another_platform};

use super::host;
use crate::text::{checked_text, text_conversions};

/// The error of a text that is not an image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {rule}", crate::text::quoted(given))]
pub struct InvalidImage {
    /// The rejected text.
    pub given: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

checked_text! {
    /// A content digest, `sha256:` and 64 lower-case hexadecimal digits (or `sha512:` and 128).
    Digest, InvalidImage, digest
}

checked_text! {
    /// A tag of an image, such as `v1.2`: at most 128 letters, digits, `_`, `.` and `-`.
    Tag, InvalidImage, |text| {
        check_tag(text).map_err(|rule| InvalidImage { given: text.to_owned(), rule })?;
        Ok(text.to_owned())
    }
}

impl Tag {
    /// Returns whether the tag is that of an image's signatures, which are stored beside it: `sha256-` and a digest, with or without
    /// an ending.
    pub fn is_of_signatures(&self) -> bool {
        let digest = self.as_str().strip_prefix("sha256-").and_then(|rest| rest.get(..64));
        digest.is_some_and(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

/// A reference to an image: `[host[:port]/]path[:tag][@digest]`.
///
/// Two references to the same repository may be spelt differently (`nginx` is `docker.io/library/nginx`); a reference
/// keeps the given spelling, and comparisons use the full one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef {
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The longest path of a repository in bytes, without its host.
pub const PATH_MAX: usize = 255;
/// The length of an image's id, which a name alone must not look like.
const ID_LENGTH: usize = 64;
/// The longest tag in bytes.
pub const TAG_MAX: usize = 128;

impl ImageRef {
    /// The repository in the given spelling, such as `registry.example.com/api` or `nginx`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if the reference has one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the reference has one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The repository in full: `nginx` is `docker.io/library/nginx`.
    pub fn canonical_repository(&self) -> String {
        canonical(&self.repository)
    }

    /// The host of the registry, with its port if it has one: `docker.io` if the reference names none.
    pub fn registry(&self) -> String {
        let full = self.canonical_repository();
        full.split_once('/').map_or_else(|| full.clone(), |(host, _)| host.to_owned())
    }

    /// Returns the reference with `:latest` if it has neither a tag nor a digest, as container runtimes read it.
    #[must_use]
    pub fn or_latest(mut self) -> Self {
        if self.tag.is_none() && self.digest.is_none() {
            self.tag = Some("latest".to_owned());
        }
        self
    }

    /// Returns the reference of this tag of the repository, without a digest.
    #[must_use]
    pub fn tagged(mut self, tag: Tag) -> Self {
        self.tag = Some(tag.0);
        self.digest = None;
        self
    }

    /// Returns the reference of the repository alone, without a tag and a digest.
    #[must_use]
    pub fn bare(mut self) -> Self {
        (self.tag, self.digest) = (None, None);
        self
    }

    /// Returns the reference pinned to these bits: `repository:tag@digest`.
    #[must_use]
    pub fn pinned(mut self, digest: Digest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// Returns the reference without its digest if it has a tag; else as it is.
    #[must_use]
    pub fn unpinned(mut self) -> Self {
        if self.tag.is_some() {
            self.digest = None;
        }
        self
    }

    /// Returns whether both mean the same bits, as far as is known: by digest if both are known, else by name and tag.
    ///
    /// `digest` and `other_digest` are the observed digests, beside those that the references carry.
    pub fn same_bits(&self, digest: Option<&Digest>, other: &Self, other_digest: Option<&Digest>) -> bool {
        if self.canonical_repository() != other.canonical_repository() {
            return false;
        }
        match (digest.or(self.digest.as_ref()), other_digest.or(other.digest.as_ref())) {
            (Some(one), Some(two)) => one == two,
            (Some(_) | None, None) | (None, Some(_)) => self.tag_or_latest() == other.tag_or_latest(),
        }
    }

    fn tag_or_latest(&self) -> Option<&str> {
        self.tag.as_deref().or(self.digest.is_none().then_some("latest"))
    }
}

fn canonical(repository: &str) -> String {
    match repository.split_once('/') {
        Some((host, rest)) if is_host(host) => match host {
            "index.docker.io" | "docker.io" if !rest.contains('/') => format!("docker.io/library/{rest}"),
            "index.docker.io" => format!("docker.io/{rest}"),
            _ => repository.to_owned(),
        },
        Some(_) => format!("docker.io/{repository}"),
        None => format!("docker.io/library/{repository}"),
    }
}

/// Returns whether a first component is a registry's host rather than a part of the path.
fn is_host(component: &str) -> bool {
    component == "localhost" || component.contains(['.', ':', '['])
}

/// Checks for `[a-z0-9]+` runs joined by one of `.`, `_`, `__` or any number of `-`.
fn check_path_component(component: &str) -> Result<(), &'static str> {
    if component.is_empty() {
        return Err("the path must not have an empty part");
    }
    if component.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("the repository must be in lower case, but for a registry's host with a dot or a port");
    }
    let is_alphanumeric = |c: char| matches!(c, 'a'..='z' | '0'..='9');
    let is_joiner = |between: &str| matches!(between, "." | "_" | "__") || between.bytes().all(|byte| byte == b'-');
    let valid = component.starts_with(is_alphanumeric)
        && component.ends_with(is_alphanumeric)
        && component.split(is_alphanumeric).all(is_joiner);
    if valid {
        return Ok(());
    }
    Err("each part of the path must be lower-case letters and digits, joined by '.', '_', '__' or '-'")
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let checked = host::check(host, |name| name.split('.').all(is_label))?;
    if host.starts_with('[') && checked.contains('.') {
        return Err("an IPv6 address must be written without an IPv4 address in it");
    }
    Ok(())
}

fn check_repository(repository: &str) -> Result<(), &'static str> {
    if repository.is_empty() {
        return Err("must not be empty");
    }
    let path = match repository.split_once('/') {
        Some((host, path)) if is_host(host) => {
            check_host(host)?;
            path
        }
        Some(_) | None => repository,
    };
    path.split('/').try_for_each(check_path_component)?;
    // In full: a path on Docker Hub may begin with `library/` that is not written.
    let full = canonical(repository);
    if full.split_once('/').is_some_and(|(_, path)| path.len() > PATH_MAX) {
        return Err("the path of the repository must be at most 255 characters");
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let rule =
        "the tag must be letters, digits, '_', '.' and '-', not starting with '.' or '-', at most 128 characters";
    let valid = !tag.is_empty()
        && tag.len() <= TAG_MAX
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if valid { Ok(()) } else { Err(rule) }
}

fn parse(text: &str) -> Result<ImageRef, &'static str> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.parse::<Digest>().map_err(|invalid| invalid.rule)?)),
        None => (text, None),
    };
    // A colon after the last slash starts the tag; one before it belongs to the host's port.
    let path_start = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match rest[path_start..].find(':') {
        Some(colon) => (&rest[..path_start + colon], Some(&rest[path_start + colon + 1..])),
        None => (rest, None),
    };
    check_repository(repository)?;
    if text.len() == ID_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err("must be a name; 64 hexadecimal digits are the id of an image");
    }
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    Ok(ImageRef { repository: repository.to_owned(), tag: tag.map(str::to_owned), digest })
}

impl FromStr for ImageRef {
    type Err = InvalidImage;

    fn from_str(text: &str) -> Result<Self, InvalidImage> {
        parse(text).map_err(|rule| InvalidImage { given: text.to_owned(), rule })
    }
}

fn digest(text: &str) -> Result<String, InvalidImage> {
    let is_hex = |hex: &str| hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match text.split_once(':') {
        Some(("sha256", hex)) if hex.len() == 64 && is_hex(hex) => Ok(text.to_owned()),
        Some(("sha512", hex)) if hex.len() == 128 && is_hex(hex) => Ok(text.to_owned()),
        Some(_) | None => Err(InvalidImage {
            given: text.to_owned(),
            rule: "the digest must be sha256: and 64 lower-case hexadecimal digits, or sha512: and 128",
        }),
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

text_conversions!(ImageRef, InvalidImage, |image| image.to_string());

/// The image repositories that a webhook may deploy from; empty: any.
///
/// An entry is a repository (`registry.example.com/shop/api`) or, ending in `/*`, everything below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Repositories(Vec<String>);

impl Repositories {
    /// The repositories in the given spelling.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Returns whether an image of this repository may be deployed.
    pub fn allow(&self, image: &ImageRef) -> bool {
        let repository = image.canonical_repository();
        self.0.is_empty()
            || self.0.iter().any(|entry| match entry.strip_suffix("/*") {
                Some(path) => below(path, &repository),
                None => canonical(entry) == repository,
            })
    }
}

/// Returns whether a full repository lies below a path, which may be a bare host.
fn below(path: &str, repository: &str) -> bool {
    let host = path.split('/').next().unwrap_or_default();
    let full = if is_host(host) { path.to_owned() } else { format!("docker.io/{path}") };
    repository.strip_prefix(&full).is_some_and(|rest| rest.starts_with('/'))
}

impl TryFrom<Vec<String>> for Repositories {
    type Error = InvalidImage;

    fn try_from(entries: Vec<String>) -> Result<Self, InvalidImage> {
        for entry in &entries {
            let path = entry.strip_suffix("/*").unwrap_or(entry);
            let host_alone = path.len() < entry.len() && !path.contains('/') && is_host(path);
            let checked = if host_alone { check_host(path) } else { check_repository(path) };
            checked.map_err(|rule| InvalidImage { given: entry.clone(), rule })?;
        }
        Ok(Self(entries))
    }
}

impl From<Repositories> for Vec<String> {
    fn from(repositories: Repositories) -> Self {
        repositories.0
    }
}

/// Returns whether a registry's answer to a pull is definite: there is no such image, none for this platform, or it is denied (the
/// codes of the OCI distribution specification, and the sentences of container engines for them). Any other failure may pass: no
/// answer, too many requests, a login that has ended or is still being made.
pub fn is_refused_for_good(answer: &str) -> bool {
    const DEFINITE: [&str; 7] = [
        "manifest unknown",
        "manifest_unknown",
        "name unknown",
        "name_unknown",
        "repository does not exist",
        "access denied",
        "access forbidden",
    ];
    // Names of images say nothing.
    let is_name = |word: &&str| word.contains('/') || word.starts_with('"');
    let words: Vec<&str> = answer.split_whitespace().filter(|word| !is_name(word)).collect();
    let answer = words.join(" ").to_lowercase();
    // Other things are not found as well, such as a layer that the node has just cleaned up.
    let is_unresolved = answer.contains("failed to resolve reference") && answer.contains("not found");
    let is_definite = is_unresolved || DEFINITE.iter().any(|code| answer.contains(code));
    (is_definite || platform::lacks_platform(&answer)) && !answer.contains("toomanyrequests")
}

#[cfg(test)]
mod tests;
