//! What an image says of itself.

use serde::{Deserialize, Serialize};

use crate::{app::AppUrl, deploy::Commit, text::with_fields};

/// The labels of an image by which its builder says where it comes from. They are the builder's words, and prove nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ImageLabels {
    /// The commit: `org.opencontainers.image.revision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The URL of the source: `org.opencontainers.image.source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The version: `org.opencontainers.image.version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The URL of a page about the image: `org.opencontainers.image.url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

with_fields!(ImageLabels);

impl ImageLabels {
    /// The most characters of a label; a longer one is left out, as a part of it would say something else.
    pub const LENGTH_MAX: usize = 500;

    /// Returns the labels with those of a document for what is still missing. Others of the document are left out, as are
    /// empty and long ones.
    #[must_use]
    pub fn or<'a>(mut self, document: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        for (name, value) in document {
            let place = match name.strip_prefix("org.opencontainers.image.") {
                Some("revision") => &mut self.revision,
                Some("source") => &mut self.source,
                Some("version") => &mut self.version,
                Some("url") => &mut self.url,
                Some(_) | None => continue,
            };
            let value = value.trim();
            let length = value.chars().count();
            if place.is_none() && (1..=Self::LENGTH_MAX).contains(&length) {
                *place = Some(value.to_owned());
            }
        }
        self
    }

    /// Returns the commit that the image was built from, as it says; `None` if the label is missing, or is no commit.
    pub fn commit(&self) -> Option<Commit> {
        self.revision.as_ref()?.parse().ok()
    }

    /// Returns the address that a label links to; `None` if it is none of the web: the builder may write anything.
    pub fn link(label: &str) -> Option<AppUrl> {
        label.parse().ok()
    }

    /// Returns whether the image says nothing of where it comes from.
    pub const fn is_empty(&self) -> bool {
        self.revision.is_none() && self.source.is_none() && self.version.is_none() && self.url.is_none()
    }

    /// Returns the labels with those of another image for what is still missing.
    #[must_use]
    pub fn or_those(self, other: Self) -> Self {
        Self {
            revision: self.revision.or(other.revision),
            source: self.source.or(other.source),
            version: self.version.or(other.version),
            url: self.url.or(other.url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_first_document_that_has_them() {
        let long = "x".repeat(ImageLabels::LENGTH_MAX + 1);
        let labels = ImageLabels::default()
            .or([("org.opencontainers.image.revision", "abc"), ("org.opencontainers.image.url", &*long)])
            .or([
                ("org.opencontainers.image.revision", "def"),
                ("org.opencontainers.image.version", " 1.2 "),
                ("org.opencontainers.image.source", " "),
                ("org.opencontainers.image.title", "api"),
                ("version", "7"),
            ]);
        assert_eq!((labels.revision.as_deref(), labels.version.as_deref()), (Some("abc"), Some("1.2")));
        assert_eq!((labels.source, labels.url), (None, None));
    }

    #[test]
    fn labels_link_to_addresses_of_the_web_alone() {
        let source = "https://git.example.com/shop/api";
        assert_eq!(ImageLabels::link(source).map(|url| url.to_string()).as_deref(), Some(source));
        for other in ["javascript:alert(1)", "git@git.example.com:shop/api", "https://ada:secret@a.example"] {
            assert_eq!(ImageLabels::link(other), None, "{other}");
        }
    }
}
