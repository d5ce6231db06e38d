//! The operator's settings of builds in the cluster, checked when they are parsed.

use std::{fmt, num::NonZeroU16, path::PathBuf, str::FromStr, time::Duration};

use rollhook_core::{
    app::{InvalidName, Namespace},
    image::ImageRef,
    source::AllowedSources,
};

/// The default namespace of builds.
pub const NAMESPACE: &str = "rollhook-builds";

/// The settings of builds in a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The builder's image.
    pub image: PinnedImage,
    /// The namespace of builds; nothing else should be in it.
    pub namespace: Namespace,
    /// The number of builds at once in the whole cluster, of all apps and replicas.
    pub slots: NonZeroU16,
    /// The processor time that a build may use.
    pub cpu: Quantity,
    /// The memory that a build may use; all of it is reserved.
    pub memory: Quantity,
    /// The means by which BuildKit gets its privileges; `None` chooses the safest that the cluster has.
    pub profile: Option<Profile>,
    /// The directory with the credentials that sources name: one file each.
    pub credentials: Option<PathBuf>,
    /// The file in docker's format with the credentials that images are pushed with.
    pub registry_config: Option<PathBuf>,
    /// The registries, `HOST[:PORT]`, that are used without encryption or with a certificate of an unknown authority.
    pub insecure_registries: Vec<String>,
    /// The sources that may be read.
    pub sources: AllowedSources,
    /// The time after which a build that does not start fails, as its image cannot be pulled or its pod cannot be made.
    /// A build that no node has room for has five times as long, so that nodes can be added.
    pub patience: Duration,
}

impl Settings {
    /// The default settings with this image: two builds at once, each with two processors and 4 GiB; no credentials,
    /// the sources of other machines.
    pub fn new(image: PinnedImage, namespace: Namespace) -> Self {
        Self {
            image,
            namespace,
            slots: NonZeroU16::MIN.saturating_add(1),
            cpu: Quantity("2".to_owned()),
            memory: Quantity("4Gi".to_owned()),
            profile: None,
            credentials: None,
            registry_config: None,
            insecure_registries: Vec::new(),
            sources: AllowedSources::default(),
            patience: Duration::from_secs(120),
        }
    }
}

/// The means by which a build gets the privileges over its own mounts and processes that BuildKit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Root of a user namespace of the pod's own, without privileges outside of it.
    UserNamespace,
    /// An ordinary user, with rootlesskit.
    Rootless,
    /// Root of the node: anyone who may change a Dockerfile owns the machine. Used only if an operator chooses it.
    Privileged,
}

impl Profile {
    /// The profile's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserNamespace => "userns",
            Self::Rootless => "rootless",
            Self::Privileged => "privileged",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An image by digest, so that only the image that the operator has chosen ever runs with credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedImage(ImageRef);

impl fmt::Display for PinnedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PinnedImage {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let fail = |rule| {
            let given = text.chars().take(256).collect();
            Err(InvalidName { what: "builder image", given, rule })
        };
        match text.parse::<ImageRef>() {
            Ok(image) if image.digest().is_some() => Ok(Self(image)),
            Ok(_) => {
                fail("must name its digest, REPOSITORY@sha256:…, so that it cannot become another image unnoticed")
            }
            Err(invalid) => fail(invalid.rule),
        }
    }
}

/// An amount of processors or memory as Kubernetes writes it, such as `500m`, `2`, `4Gi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity(String);

impl Quantity {
    /// The amount as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Quantity {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len() - unit.len()];
        let known = matches!(unit, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti");
        if known && number.parse::<f64>().is_ok_and(|number| number > 0.0) && number.starts_with(|c| c != '.') {
            return Ok(Self(text.to_owned()));
        }
        let rule = "must be a number above 0, with a unit if it needs one: 500m, 2, 512Mi, 4Gi";
        Err(InvalidName { what: "amount", given: text.chars().take(32).collect(), rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builder_image_needs_a_digest() {
        let digest = "a".repeat(64);
        for text in ["r.example.com/builder@sha256:", "r.example.com/builder:v1@sha256:"] {
            let text = format!("{text}{digest}");
            assert_eq!(text.parse::<PinnedImage>().unwrap().to_string(), text);
        }
        for text in ["r.example.com/builder:v1", "builder", "", "A B@sha256:1"] {
            let invalid = text.parse::<PinnedImage>().unwrap_err().to_string();
            assert!(invalid.contains("builder image"), "{invalid}");
        }
    }

    #[test]
    fn amount_is_a_number_with_a_known_unit() {
        for text in ["1", "0.5", "500m", "4Gi", "512Mi", "2G"] {
            assert_eq!(text.parse::<Quantity>().unwrap().as_str(), text);
        }
        for text in ["", "0", "-1", "Gi", "4 Gi", "4GB", ".5", "1.2.3", "1e9", "NaN"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
