//! The platforms that images are for.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{app::InvalidName, text::text_conversions};

/// A platform that an image runs on, as registries name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Platform {
    /// The operating system, such as `linux`.
    os: String,
    /// The architecture of the processor, such as `arm64`.
    architecture: String,
    /// The variant of the architecture, such as `v8`.
    variant: Option<String>,
}

impl Platform {
    /// The most characters of each part.
    pub const PART_MAX: usize = 64;

    /// Returns the platform; `None` if a part of it is no name.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Option<Self> {
        let named = |part: &str| {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            (!part.is_empty() && part.len() <= Self::PART_MAX && part.bytes().all(valid)).then(|| part.to_owned())
        };
        let variant = variant.filter(|variant| !variant.is_empty());
        let variant = variant.map(|variant| named(variant).ok_or(())).transpose().ok()?;
        Some(Self { os: named(os)?, architecture: named(architecture)?, variant })
    }

    /// The operating system.
    pub fn os(&self) -> &str {
        &self.os
    }

    /// The architecture.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The variant, if there is one.
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let mut parts = text.splitn(3, '/');
        let (os, architecture) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self::new(os, architecture, parts.next())
            .ok_or_else(|| InvalidName::new("platform", text, "must be OS/ARCHITECTURE, or OS/ARCHITECTURE/VARIANT"))
    }
}

text_conversions!(Platform, InvalidName, |platform| platform.to_string());

/// Returns whether the answer to a pull says that the image has nothing for the platform of the machine.
pub(super) fn lacks_platform(answer: &str) -> bool {
    const SAID: [&str; 6] = [
        "no match for platform",
        "no matching manifest for",
        "no image found in image index for",
        "no image found in manifest list for",
        "does not match the specified platform",
        "does not provide the specified platform",
    ];
    let answer = answer.to_lowercase();
    SAID.iter().any(|said| answer.contains(said))
}

/// Returns whether a container engine says by this line that an image is not for the platform of its machine: it has nothing for it,
/// or its program is for another processor.
pub fn is_for_another_platform(said: &str) -> bool {
    lacks_platform(said) || said.to_lowercase().contains("exec format error")
}

/// Returns whether this line of a container's log is its engine's, and says that its program is for another processor. A program may
/// write of its own helpers.
pub fn ends_as_for_another_platform(line: &str) -> bool {
    let line = line.to_lowercase();
    let is_of_engine = line.starts_with("exec ") || line.contains("exec user process caused");
    is_of_engine && line.contains("exec format error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_is_written_as_registries_name_it() {
        let text = |os, architecture, variant| Platform::new(os, architecture, variant).map(|named| named.to_string());
        assert_eq!(text("linux", "arm64", Some("v8")).as_deref(), Some("linux/arm64/v8"));
        assert_eq!(text("linux", "amd64", Some("")).as_deref(), Some("linux/amd64"));
        for (os, architecture, variant) in [
            ("", "amd64", None),
            ("linux", "", None),
            ("linux", "a/b", None),
            ("li\u{1b}nux", "amd64", None),
            ("linux", "arm", Some("v 7")),
            ("linux", &*"x".repeat(65), None),
        ] {
            assert_eq!(text(os, architecture, variant), None, "{os} {architecture} {variant:?}");
        }
        let text = "\"linux/arm/v7\"";
        let read: Platform = serde_json::from_str(text).unwrap();
        assert_eq!((serde_json::to_string(&read).unwrap().as_str(), read.variant()), (text, Some("v7")));
        assert!(["linux", "linux/", "a/b/c/d"].iter().all(|text| text.parse::<Platform>().is_err()));
    }

    #[test]
    fn engines_say_that_an_image_is_for_other_machines() {
        for line in [
            "failed to pull and unpack image \"r.example.com/api:v1\": no match for platform in manifest: not found",
            "no matching manifest for linux/amd64 in the manifest list entries",
            "image with reference r.example.com/api:v1 was found but does not match the specified platform: wanted linux/amd64",
            "no image found in image index for architecture amd64, variant \"\", OS linux",
        ] {
            assert!(lacks_platform(line) && is_for_another_platform(line), "{line}");
        }
        assert!(!is_for_another_platform("manifest unknown") && !is_for_another_platform(""));
    }

    #[test]
    fn program_for_another_processor_is_told_from_one_that_starts_such_a_program() {
        for line in [
            "exec /bin/api: exec format error",
            "standard_init_linux.go:228: exec user process caused: exec format error",
        ] {
            assert!(ends_as_for_another_platform(line) && is_for_another_platform(line), "{line}");
            assert!(!lacks_platform(line), "{line}");
        }
        assert!(!ends_as_for_another_platform("OSError: [Errno 8] Exec format error: 'helper'"));
    }
}
