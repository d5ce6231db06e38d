//! How a build ended, as it is kept on its Job; and what a builder may say of that itself.

use rollhook_core::{
    deploy::{Commit, Reason},
    image::ImageRef,
    ports::{BuildFailure, BuildState},
    text::escaped,
};
use serde::{Deserialize, Serialize};

use super::names::About;
use crate::error::shortened;

/// How a build ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Built { image: ImageRef, commit: Commit },
    Failed(Failure),
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<Commit>,
    #[serde(default)]
    pub(super) log: Vec<String>,
}

impl Failure {
    pub(super) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: Reason::new(reason), message: message.into(), commit: None, log: Vec::new() }
    }
}

impl End {
    /// The same, without what the build said last.
    pub(super) fn without_log(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(Failure { log: Vec::new(), ..failure }),
            built @ Self::Built { .. } => built,
        }
    }
}

impl From<End> for BuildState {
    fn from(end: End) -> Self {
        match end {
            End::Built { image, commit } => Self::Built { image, commit },
            End::Failed(Failure { reason, message, commit, log }) => {
                Self::Failed(BuildFailure { reason, message, commit, log })
            }
        }
    }
}

/// A termination message; what else it may hold is not looked at.
#[derive(Deserialize)]
struct Said {
    image: Option<String>,
    commit: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

/// What the builder's container said when it ended. It runs what the commit says, so that it is believed only as far as
/// it is within the order: an image of the source's repository, by digest, of the commit that was asked for.
pub(super) fn told(about: &About, exit_code: i32, message: Option<&str>) -> End {
    let said: Option<Said> = message.and_then(|text| serde_json::from_str(text).ok());
    let fail = |what: String| End::Failed(Failure::new(Reason::BUILD_FAILED, what));
    match (exit_code, said) {
        (0, Some(said)) => built(about, &said).unwrap_or_else(fail),
        (0, None) => fail("The builder ended without saying which image it made.".to_owned()),
        (_, Some(Said { reason: Some(reason), message, commit, .. })) => {
            let message =
                message.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "It did not say why.".to_owned());
            let commit = commit.and_then(|text| exact(about, &text).ok());
            End::Failed(Failure { commit, ..Failure::new(&reason, shortened(&escaped(&message))) })
        }
        (code, Some(_) | None) => {
            fail(format!("The builder ended with exit code {code} and did not say why; see the build's log."))
        }
    }
}

fn built(about: &About, said: &Said) -> Result<End, String> {
    let (Some(image), Some(commit)) = (&said.image, &said.commit) else {
        return Err("The builder ended without saying which image it made, and of which commit.".to_owned());
    };
    let wanted: Option<ImageRef> = about.source.image_repository.as_str().parse().ok();
    let commit = exact(about, commit)?;
    match image.parse::<ImageRef>() {
        Err(_) => Err("The builder named an image that is none.".to_owned()),
        Ok(image) if image.digest().is_none() => Err("The builder named its image without a digest.".to_owned()),
        Ok(image) if wanted.map(|wanted| wanted.canonical_repository()) != Some(image.canonical_repository()) => {
            Err(format!("The builder named an image of another repository than {}.", about.source.image_repository))
        }
        Ok(image) => Ok(End::Built { image, commit }),
    }
}

/// The commit in full, where it is the one that was ordered.
fn exact(about: &About, text: &str) -> Result<Commit, String> {
    match text.parse::<Commit>() {
        Ok(commit) if commit.is_sha() && matches!(text.len(), 40 | 64) && about.commit.may_be(&commit) => Ok(commit),
        Ok(_) | Err(_) => Err("The builder built another commit than was asked for.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;

    use super::*;

    const FULL: &str = "0123456789abcdef0123456789abcdef01234567";

    fn about() -> About {
        let app = samples::app("shop", "test", "api").id;
        About { app, source: samples::git_source(), commit: FULL[..9].parse().unwrap(), places: 2 }
    }

    fn failure(end: End) -> Failure {
        match end {
            End::Failed(failure) => failure,
            End::Built { image, .. } => panic!("built {image}"),
        }
    }

    #[test]
    fn an_image_of_the_repository_and_commit_by_digest_is_built() {
        let image = format!("registry.example.com/shop/api@{}", samples::digest(7));
        let message = format!(r#"{{"image":"{image}","commit":"{FULL}","further":1}}"#);
        let End::Built { image: built, commit } = told(&about(), 0, Some(&message)) else { panic!("{message}") };
        assert_eq!((built.to_string(), commit.as_str()), (image, FULL));
    }

    #[test]
    fn nothing_else_is_believed() {
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
            let failure = failure(told(&about(), 0, message.as_deref()));
            assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED, "{message:?}");
        }
        // An exit code says more than a message that contradicts it.
        let failure = failure(told(&about(), 3, Some(&format!(r#"{{"image":"{good}","commit":"{FULL}"}}"#))));
        assert!(failure.message.contains("exit code 3"), "{failure:?}");
    }

    #[test]
    fn a_failure_is_told_in_the_builders_words_made_harmless() {
        let message =
            format!(r#"{{"reason":"commit-not-found","message":"no\u001b[31m such commit","commit":"{FULL}"}}"#);
        let told = failure(told(&about(), 1, Some(&message)));
        assert_eq!(told.reason.as_str(), Reason::COMMIT_NOT_FOUND);
        assert_eq!(told.message, "no\\u{1b}[31m such commit");
        assert_eq!(told.commit.unwrap().as_str(), FULL);
        let foreign = r#"{"reason":"../x y","message":" ","commit":"main"}"#;
        let told = failure(super::told(&about(), 1, Some(foreign)));
        assert_eq!((told.reason.as_str(), told.commit), ("xy", None));
    }
}
