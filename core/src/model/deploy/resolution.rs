//! What a registry has said of a deploy's image before it was rolled out.

use serde::{Deserialize, Serialize};

use crate::{
    image::{ImageLabels, Platform},
    ports::FOUND_MAX,
    requirement::{Required, RequirementHash},
};

/// The most platforms of an image that an entry keeps.
const PLATFORMS_MAX: usize = 50;
/// The longest reason, in characters.
const WHY_MAX: usize = 500;

/// The resolution of a deploy's image: before anything is touched, its tag becomes a digest, and from then on that digest is
/// the deploy's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Resolution {
    /// The registry is still to be asked, or the source of a commit that is to be built; nothing begins before.
    Pending,
    /// The registry has the image; [`Deploy::digest`](super::Deploy::digest) is its digest.
    Resolved {
        /// The labels by which the image says where it comes from.
        #[serde(default, skip_serializing_if = "ImageLabels::is_empty")]
        labels: ImageLabels,
        /// The platforms that the image is for; empty if it names none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        platforms: Vec<Platform>,
        /// The signers of the image, and of its attestation, each as a line; empty where nothing was required.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        signed_by: Vec<String>,
        /// The requirements that the image meets; empty where nothing was required.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        meets: Vec<RequirementHash>,
    },
    /// The digest is not known, and the platform finds the image by its tag.
    Unresolved {
        /// The reason, a clause.
        why: String,
    },
}

impl Resolution {
    /// Returns the resolution of an image that was not resolved, for a reason that is no longer than an entry may hold.
    pub fn unresolved(why: &str) -> Self {
        let why = crate::text::escaped(why.trim().trim_end_matches('.'));
        Self::Unresolved { why: why.chars().take(WHY_MAX).collect() }
    }

    /// Returns the resolution of an image with these labels, platforms and signers, of which the entry keeps as much as it may hold,
    /// and with the requirements that it meets.
    pub fn resolved(labels: ImageLabels, platforms: &[Platform], signed_by: &[String], met: &[Required]) -> Self {
        let platforms = platforms.iter().take(PLATFORMS_MAX).cloned().collect();
        let meets = met.iter().map(|required| RequirementHash::of(&required.requirement)).collect();
        Self::Resolved { labels, platforms, signed_by: bounded_lines(signed_by), meets }
    }

    /// Returns why the image was not resolved, a clause; `None` if it was, or is still to be.
    pub fn gap(&self) -> Option<&str> {
        match self {
            Self::Unresolved { why } => Some(why),
            Self::Pending | Self::Resolved { .. } => None,
        }
    }
}

/// Returns lines about signatures as an entry shows them: they come from whoever wrote to the registry.
pub(crate) fn bounded_lines(lines: &[String]) -> Vec<String> {
    let (count, length) = FOUND_MAX;
    let shown = |line: &String| crate::text::escaped(line).chars().take(length).collect();
    lines.iter().take(count).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        deploy::{Actor, Deploy, Trigger},
        tests::queued,
    };

    #[test]
    fn reason_is_a_bounded_clause_without_control_characters() {
        assert_eq!(Resolution::unresolved(" It is away. ").gap(), Some("It is away"));
        assert_eq!(Resolution::unresolved("a\u{1b}[2Jb").gap(), Some("a\\u{1b}[2Jb"));
        let long = Resolution::unresolved(&"x".repeat(10_000));
        assert_eq!(long.gap().map(str::len), Some(WHY_MAX));
    }

    #[test]
    fn commit_to_show_is_the_posted_one_or_else_that_of_the_label() {
        let shown = |posted: Option<&str>, label: &str| {
            let labels = ImageLabels::default().or([("org.opencontainers.image.revision", label)]);
            let resolution = Some(Box::new(Resolution::resolved(labels, &[], &[], &[])));
            let commit = posted.map(|posted| posted.parse().unwrap());
            let deploy = Deploy { resolution, ..queued(3, Trigger::Registry, Actor::Service, commit) };
            deploy.shown_commit().map(|commit| commit.to_string())
        };
        assert_eq!(shown(None, "abc123f").as_deref(), Some("abc123f"));
        assert_eq!(shown(Some("4f1a77b"), "abc123f").as_deref(), Some("4f1a77b"));
        assert_eq!(shown(None, &"a".repeat(129)), None, "a label that is no commit");
        let silent = queued(3, Trigger::Registry, Actor::Service, None);
        assert_eq!((silent.shown_commit(), silent.labels()), (None, None));
        let resolution = Some(Box::new(Resolution::resolved(ImageLabels::default(), &[], &[], &[])));
        assert_eq!(Deploy { resolution, ..silent }.labels(), None, "an image without labels");
    }

    #[test]
    fn stored_form_has_labels_only_where_there_are_some() {
        let stored = |resolution: &Resolution| serde_json::to_string(resolution).unwrap();
        let labels = ImageLabels::default();
        assert_eq!(stored(&Resolution::resolved(labels, &[], &[], &[])), r#"{"kind":"resolved"}"#);
        let labels = ImageLabels::default().or([("org.opencontainers.image.version", "1.2")]);
        let arm = "linux/arm64".parse().unwrap();
        let resolved = Resolution::resolved(labels.clone(), &[arm], &[], &[]);
        let text = r#"{"kind":"resolved","labels":{"version":"1.2"},"platforms":["linux/arm64"]}"#;
        assert_eq!(stored(&resolved), text);
        assert_eq!(serde_json::from_str::<Resolution>(&stored(&resolved)).unwrap(), resolved);
        let signed = Resolution::resolved(labels, &[], &["ada\u{1b}".to_owned()], &[]);
        let text = r#"{"kind":"resolved","labels":{"version":"1.2"},"signed_by":["ada\\u{1b}"]}"#;
        assert_eq!((stored(&signed).as_str(), serde_json::from_str::<Resolution>(text).unwrap()), (text, signed));
    }
}
