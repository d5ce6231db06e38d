//! The outcome of a build, as it is recorded on its Job, and as far as the builder itself may report it.

use rollhook_core::{
    deploy::{Commit, Reason},
    image::ImageRef,
    ports::{BuildFailure, BuildState},
    text::escaped,
};
use serde::{Deserialize, Serialize};

use super::names::StoredSpec;
use crate::error::shortened;

/// The outcome of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Built { image: ImageRef, commit: Commit },
    Failed(StoredFailure),
}

/// A [`BuildFailure`] as it is written on a Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredFailure {
    pub(super) reason: Reason,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<Commit>,
    #[serde(default)]
    pub(super) log: Vec<String>,
}

impl StoredFailure {
    pub(super) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: Reason::new(reason), message: message.into(), commit: None, log: Vec::new() }
    }
}

impl Outcome {
    /// The outcome without the last lines of the log.
    pub(super) fn without_log(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(StoredFailure { log: Vec::new(), ..failure }),
            built @ Self::Built { .. } => built,
        }
    }
}

impl From<Outcome> for BuildState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Built { image, commit } => Self::Built { image, commit },
            Outcome::Failed(StoredFailure { reason, message, commit, log }) => {
                Self::Failed(BuildFailure { reason, message, commit, log })
            }
        }
    }
}

/// The fields of a termination message that are read.
#[derive(Deserialize)]
struct TerminationMessage {
    image: Option<String>,
    commit: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

/// The outcome that the builder's container reported when it ended. It runs code of the commit, so that a report counts
/// only within the spec: an image of the source's repository, by digest, of the commit that was asked for.
pub(super) fn reported(spec: &StoredSpec, exit_code: i32, message: Option<&str>) -> Outcome {
    let report: Option<TerminationMessage> = message.and_then(|text| serde_json::from_str(text).ok());
    let fail = |message: String| Outcome::Failed(StoredFailure::new(Reason::BUILD_FAILED, message));
    match (exit_code, report) {
        (0, Some(report)) => built(spec, &report).unwrap_or_else(fail),
        (0, None) => fail("The builder ended without saying which image it made.".to_owned()),
        (_, Some(TerminationMessage { reason: Some(reason), message, commit, .. })) => {
            let message =
                message.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "It did not say why.".to_owned());
            let commit = commit.and_then(|text| exact(spec, &text).ok());
            Outcome::Failed(StoredFailure { commit, ..StoredFailure::new(&reason, shortened(&escaped(&message))) })
        }
        (code, Some(_) | None) => {
            fail(format!("The builder ended with exit code {code} and did not say why; see the build's log."))
        }
    }
}

fn built(spec: &StoredSpec, report: &TerminationMessage) -> Result<Outcome, String> {
    let (Some(image), Some(commit)) = (&report.image, &report.commit) else {
        return Err("The builder ended without saying which image it made, and of which commit.".to_owned());
    };
    let wanted: Option<ImageRef> = spec.source.image_repository.as_str().parse().ok();
    let commit = exact(spec, commit)?;
    match image.parse::<ImageRef>() {
        Err(_) => Err("The builder named an image that cannot be read.".to_owned()),
        Ok(image) if image.digest().is_none() => Err("The builder named its image without a digest.".to_owned()),
        Ok(image) if wanted.map(|wanted| wanted.canonical_repository()) != Some(image.canonical_repository()) => {
            Err(format!("The builder named an image of another repository than {}.", spec.source.image_repository))
        }
        Ok(image) => Ok(Outcome::Built { image, commit }),
    }
}

/// The commit in full, if it is the one that was asked for.
fn exact(spec: &StoredSpec, text: &str) -> Result<Commit, String> {
    match text.parse::<Commit>() {
        Ok(commit) if commit.is_sha() && matches!(text.len(), 40 | 64) && spec.commit.may_be(&commit) => Ok(commit),
        Ok(_) | Err(_) => Err("The builder built another commit than was asked for.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;

    use super::*;

    const FULL: &str = "0123456789abcdef0123456789abcdef01234567";

    fn spec() -> StoredSpec {
        let app = samples::app("shop", "test", "api").id;
        StoredSpec { app, source: samples::git_source(), commit: FULL[..9].parse().unwrap(), slots: 2 }
    }

    fn failure(outcome: Outcome) -> StoredFailure {
        match outcome {
            Outcome::Failed(failure) => failure,
            Outcome::Built { image, .. } => panic!("built {image}"),
        }
    }

    #[test]
    fn image_of_the_repository_and_commit_by_digest_is_built() {
        let image = format!("registry.example.com/shop/api@{}", samples::digest(7));
        let message = format!(r#"{{"image":"{image}","commit":"{FULL}","further":1}}"#);
        let Outcome::Built { image: built, commit } = reported(&spec(), 0, Some(&message)) else { panic!("{message}") };
        assert_eq!((built.to_string(), commit.as_str()), (image, FULL));
    }

    #[test]
    fn any_other_report_is_a_failure() {
        let digest = samples::digest(7);
        let good = format!("registry.example.com/shop/api@{digest}");
        let other = FULL.replace('0', "f");
        for message in [
            None,
            Some(String::new()),
            Some("done".to_owned()),
            Some("[]".to_owned()),
            Some("{}".to_owned()),
            Some(format!(r#"{{"image":"{good}"}}"#)),
            Some(format!(r#"{{"commit":"{FULL}"}}"#)),
            Some(format!(r#"{{"image":"{good}","commit":"{other}"}}"#)),
            Some(format!(r#"{{"image":"{good}","commit":"{}"}}"#, &FULL[..9])),
            Some(format!(r#"{{"image":"registry.example.com/shop/api:v1","commit":"{FULL}"}}"#)),
            Some(format!(r#"{{"image":"registry.example.com/shop/web@{digest}","commit":"{FULL}"}}"#)),
            Some(format!(r#"{{"image":"a b","commit":"{FULL}"}}"#)),
            Some(format!(r#"{{"image":7,"commit":"{FULL}"}}"#)),
            Some(r#"{"reason":"commit-not-found","message":"no"}"#.to_owned()),
        ] {
            let failure = failure(reported(&spec(), 0, message.as_deref()));
            assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED, "{message:?}");
        }
        // An exit code says more than a message that contradicts it.
        let failure = failure(reported(&spec(), 3, Some(&format!(r#"{{"image":"{good}","commit":"{FULL}"}}"#))));
        assert!(failure.message.contains("exit code 3"), "{failure:?}");
    }

    #[test]
    fn message_of_the_builder_is_kept_with_control_characters_escaped() {
        let message =
            format!(r#"{{"reason":"commit-not-found","message":"no\u001b[31m such commit","commit":"{FULL}"}}"#);
        let failed = failure(reported(&spec(), 1, Some(&message)));
        assert_eq!(failed.reason.as_str(), Reason::COMMIT_NOT_FOUND);
        assert_eq!(failed.message, "no\\u{1b}[31m such commit");
        assert_eq!(failed.commit.unwrap().as_str(), FULL);
        let foreign = r#"{"reason":"../x y","message":" ","commit":"main"}"#;
        let failed = failure(reported(&spec(), 1, Some(foreign)));
        assert_eq!((failed.reason.as_str(), failed.commit), ("xy", None));
    }
}
