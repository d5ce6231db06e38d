//! Following: the rule by which the newest image of an app is found among the tags of its repository.

use std::{cmp::Reverse, fmt, str::FromStr};

use regex_lite::{Regex, RegexBuilder};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::{
    app::InvalidName,
    image::{ImageRef, Tag},
    text::text_conversions,
};

/// The longest rule, in bytes.
const RULE_MAX: usize = 256;
/// The memory that a compiled pattern may take, in bytes.
const PATTERN_MEMORY: usize = 1 << 20;
/// The group of a pattern that captures the number.
const GROUP: &str = "n";

/// The rule of an app that follows its repository. Tags are ordered by their versions or numbers, never by the alphabet and
/// never by time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Follow {
    /// The image that one tag points to: `tag:main`.
    Tag(Tag),
    /// The highest version that meets a requirement, of the tags that are versions: `semver:^1.4`.
    Version(VersionReq),
    /// The highest number that a pattern captures in a tag: `regex:release-(?<n>\d+)`.
    Number(Pattern),
}

/// A regular expression that matches a whole tag, and captures a number as its group `n`.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

/// How new a tag is, among those that one rule follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The only tag that the rule follows.
    Only,
    /// By its version.
    Version(Version),
    /// By its number, of any length.
    Number(Number),
}

/// A number of any length.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    length: usize,
    digits: String,
}

/// Why a rule does not follow a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfollowed {
    /// The tag is another one.
    Other,
    /// The tag is no whole version, such as `1.4.2` or `v1.4.2`.
    NoVersion,
    /// The tag is a version before a release, which the requirement does not ask for.
    Prerelease,
    /// The tag is a version that does not meet the requirement.
    Unmet,
    /// The pattern does not match it.
    NoMatch,
    /// The pattern matches it, and captures no number.
    NoNumber,
}

/// The newest image of a repository by a rule, at the time of a reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The rule.
    pub rule: Follow,
    /// The repository, without a tag and a digest.
    pub repository: ImageRef,
    /// The image, with its tag and its digest; `None`: the repository has no tag that the rule follows.
    pub newest: Option<ImageRef>,
}

/// An image that a registry says was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedImage {
    /// The path of the repository, such as `shop/api`, with or without the registry's host.
    pub repository: String,
    /// The tag; `None`: it was pushed by its digest, or the registry does not say.
    pub tag: Option<Tag>,
}

impl PushedImage {
    /// Returns whether it may be an image of this repository that the rule follows. A path is the end of a repository's full name:
    /// registries leave the host out.
    pub fn may_be(&self, rule: &Follow, repository: &ImageRef) -> bool {
        let (full, path) = (repository.canonical_repository(), self.repository.trim_matches('/').to_ascii_lowercase());
        let is_end =
            |full: &str, end: &str| full.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        let is_same = !path.is_empty() && is_end(&full, &path);
        is_same && self.tag.as_ref().is_none_or(|tag| rule.rank(tag).is_ok())
    }
}

impl Follow {
    /// Returns how new a tag is.
    ///
    /// # Errors
    /// The reason why the rule does not follow it.
    pub fn rank(&self, tag: &Tag) -> Result<Rank, Unfollowed> {
        match self {
            Self::Tag(followed) if followed == tag => Ok(Rank::Only),
            Self::Tag(_) => Err(Unfollowed::Other),
            Self::Version(wanted) => {
                let text = tag.as_str();
                let version = Version::parse(text.strip_prefix('v').unwrap_or(text));
                let version = version.map_err(|_| Unfollowed::NoVersion)?;
                if wanted.matches(&version) {
                    return Ok(Rank::Version(version));
                }
                let release = Version::new(version.major, version.minor, version.patch);
                let is_prerelease = !version.pre.is_empty() && wanted.matches(&release);
                Err(if is_prerelease { Unfollowed::Prerelease } else { Unfollowed::Unmet })
            }
            Self::Number(pattern) => {
                let found = pattern.regex.captures(tag.as_str()).ok_or(Unfollowed::NoMatch)?;
                let number = found.name(GROUP).and_then(|found| Number::of(found.as_str()));
                number.map(Rank::Number).ok_or(Unfollowed::NoNumber)
            }
        }
    }

    /// Returns the newest of these tags, if the rule follows any. Of tags with the same version or number it is the shortest,
    /// and of those the first by the alphabet, so that every reading finds the same one.
    pub fn newest<'t>(&self, tags: impl IntoIterator<Item = &'t Tag>) -> Option<&'t Tag> {
        let ranked = tags.into_iter().filter_map(|tag| Some((self.rank(tag).ok()?, tag)));
        ranked.max_by_key(|(rank, tag)| (rank.clone(), Self::among_equals(tag))).map(|(_, tag)| tag)
    }

    /// Returns the order of a tag among those of the same rank: the highest is the one that is followed.
    pub(crate) fn among_equals(tag: &Tag) -> impl Ord + use<> {
        (Reverse(tag.as_str().len()), Reverse(tag.clone()))
    }

    /// Returns whether one image can be newer than another by its tag: one tag that moves has no order.
    pub(crate) const fn is_ordered(&self) -> bool {
        !matches!(self, Self::Tag(_))
    }

    /// Returns how new an image is, if the rule follows its tag.
    pub fn rank_of(&self, image: &ImageRef) -> Option<Rank> {
        self.rank(&image.tag()?.parse().ok()?).ok()
    }
}

impl Followed {
    /// Returns how new the image is; `None` if there is none.
    pub fn rank(&self) -> Option<Rank> {
        self.rule.rank_of(self.newest.as_ref()?)
    }
}

impl Number {
    fn of(digits: &str) -> Option<Self> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let digits = digits.trim_start_matches('0');
        is_number.then(|| Self { length: digits.len(), digits: digits.to_owned() })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A part of a tag is no reason to deploy it.
        let whole = format!("^(?:{text})$");
        // Alone as well: a bracket too many would close the one around it.
        let regex = Regex::new(text).and_then(|_| RegexBuilder::new(&whole).size_limit(PATTERN_MEMORY).build());
        let regex = regex.map_err(|_| "is no regular expression, or too large a one")?;
        if !regex.capture_names().flatten().any(|name| name == GROUP) {
            return Err(r"must capture a number as its group n, such as release-(?<n>\d+)");
        }
        Ok(Self { text: text.to_owned(), regex })
    }
}

impl fmt::Display for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "tag:{tag}"),
            Self::Version(wanted) => write!(f, "semver:{wanted}"),
            Self::Number(pattern) => write!(f, "regex:{}", pattern.text),
        }
    }
}

impl FromStr for Follow {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let fail = |rule| InvalidName::new("rule", text, rule);
        if text.len() > RULE_MAX || text != crate::text::escaped(text) {
            return Err(fail("must be at most 256 printable characters"));
        }
        let kinds = r"must be tag:TAG, semver:REQUIREMENT or regex:PATTERN, such as semver:^1.4";
        let (kind, rule) = text.split_once(':').ok_or_else(|| fail(kinds))?;
        match kind {
            "tag" => rule.parse().map(Self::Tag).map_err(|_| fail("must name a tag, such as tag:main")),
            "semver" if rule.is_empty() => Err(fail("must name the versions, such as semver:^1.4 or semver:*")),
            "semver" => rule
                .parse()
                .map(Self::Version)
                .map_err(|_| fail("must be a requirement of versions, such as ^1.4, ~1.4.2 or >=1.4, <3")),
            "regex" => rule.parse().map(Self::Number).map_err(fail),
            _ => Err(fail(kinds)),
        }
    }
}

text_conversions!(Follow, InvalidName, |follow| follow.to_string());

impl fmt::Display for Unfollowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "another tag",
            Self::NoVersion => "no whole version",
            Self::Prerelease => "a version before its release",
            Self::Unmet => "does not meet the requirement",
            Self::NoMatch => "does not match the pattern",
            Self::NoNumber => "the pattern captures no number",
        })
    }
}

#[cfg(test)]
mod tests;
