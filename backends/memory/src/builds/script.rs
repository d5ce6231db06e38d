//! What a build of a commit does.

use std::time::Duration;

use rollhook_core::{deploy::Commit, image::ImageRef, source::ImageRepository};
use sha2::{Digest as _, Sha256};

/// What a build of a commit does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildScript {
    outcome: Outcome,
    /// How long it takes; none: the builder's delay.
    time: Option<Duration>,
    ends: bool,
    dying: Duration,
    waiting: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Built,
    Failed,
    NotFound,
    Ambiguous,
}

impl Outcome {
    pub(super) fn last_words(&self) -> &'static str {
        match self {
            Self::Built => "built\n",
            Self::Failed => "step 3 of 4: make\nmake: *** [all] broken: Error 1\n",
            Self::NotFound => "no such commit\n",
            Self::Ambiguous => "more than one such commit\n",
        }
    }
}

impl BuildScript {
    const fn new(outcome: Outcome) -> Self {
        Self { outcome, time: None, ends: true, dying: Duration::ZERO, waiting: Duration::ZERO }
    }

    /// Ends with an image.
    pub const fn succeeds() -> Self {
        Self::new(Outcome::Built)
    }

    /// Ends without one.
    pub const fn fails() -> Self {
        Self::new(Outcome::Failed)
    }

    /// The source does not have the commit.
    pub const fn not_found() -> Self {
        Self::new(Outcome::NotFound)
    }

    /// The source has several such commits.
    pub const fn ambiguous() -> Self {
        Self::new(Outcome::Ambiguous)
    }

    /// Never ends by itself.
    pub const fn hangs() -> Self {
        Self { ends: false, ..Self::succeeds() }
    }

    /// The same, within this time in place of the builder's.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// The same, but that it takes this long to end once it is told to.
    #[must_use]
    pub fn dying_for(self, dying: Duration) -> Self {
        Self { dying, ..self }
    }

    /// The same, but that the builder has no room for it for this long.
    #[must_use]
    pub fn waiting_for(self, waiting: Duration) -> Self {
        Self { waiting, ..self }
    }

    pub(super) fn by_name(commit: &str) -> Self {
        match commit.get(..3) {
            Some("404") => Self::not_found(),
            Some("300") => Self::ambiguous(),
            Some("500") => Self::fails(),
            Some("888") => Self::hangs(),
            Some(_) | None => Self::succeeds(),
        }
    }

    pub(super) fn time(&self, delay: Duration) -> Option<Duration> {
        self.ends.then(|| self.waiting + self.time.unwrap_or(delay))
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }

    pub(super) fn waiting(&self) -> Duration {
        self.waiting
    }

    pub(super) fn dying(&self) -> Duration {
        self.dying
    }
}

/// The commit that a short one stands for here, where there is no source to ask.
pub(super) fn in_full(commit: &Commit) -> Commit {
    let given = commit.as_str().to_ascii_lowercase();
    if given.len() >= 40 {
        return commit.clone();
    }
    let full = format!("{given}{}", hex(&Sha256::digest(&given)));
    full.get(..40).and_then(|full| full.parse().ok()).unwrap_or_else(|| commit.clone())
}

/// The image that a build of the commit pushes.
#[expect(clippy::expect_used, reason = "a repository with 64 hexadecimal digits behind it is an image by digest")]
pub(super) fn image(repository: &ImageRepository, commit: &Commit) -> ImageRef {
    let digest = hex(&Sha256::digest(format!("{repository} {commit}")));
    format!("{repository}:{commit}@sha256:{digest}").parse().expect("an image by digest")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
