//! Texts that identities and builders are compared with.

use std::{fmt, str::FromStr};

use super::{InvalidRequirement, TEXT_MAX};

/// A text, or the beginning of one that ends in `*`: all that begin with it. The beginning goes past the host of a URL, and ends
/// with `/` or `@`, so that `https://git.example.com/shop/*` does not mean `https://git.example.com/shop-of-another/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextPattern(String);

impl TextPattern {
    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether a text is one that the pattern means.
    pub fn matches(&self, text: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => text.strip_prefix(beginning).is_some_and(|rest| !rest.is_empty()),
            None => self.0 == text,
        }
    }
}

/// Returns a text of a requirement, if it is one.
pub(super) fn checked(text: &str) -> Result<String, InvalidRequirement> {
    let is_graphic = |character: char| !character.is_whitespace() && !character.is_control();
    if text.is_empty() || text.len() > TEXT_MAX || !text.chars().all(is_graphic) {
        return Err(InvalidRequirement::new(text, "must be 1 to 1024 characters without spaces"));
    }
    Ok(text.to_owned())
}

/// Returns whether the beginning of a URL goes past its host, and ends where a part of it does.
fn is_beginning(text: &str) -> bool {
    let path = text.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    path.is_some_and(|(host, path)| !host.is_empty() && !path.is_empty()) && text.ends_with(['/', '@'])
}

impl FromStr for TextPattern {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        let pattern = checked(text)?;
        match text.split_once('*') {
            None => Ok(Self(pattern)),
            Some((beginning, "")) if is_beginning(beginning) => Ok(Self(pattern)),
            Some(_) => Err(InvalidRequirement::new(
                text,
                "* may stand at the end alone, after a / or @ behind the host of a URL: https://git.example.com/shop/*",
            )),
        }
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
