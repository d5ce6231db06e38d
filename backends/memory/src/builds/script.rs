//! The scripts of simulated builds.

use std::time::Duration;

use rollhook_core::{deploy::Commit, image::ImageRef, source::ImageRepository};

use crate::sha256;

/// The course of a simulated build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildScript {
    pub(super) outcome: Outcome,
    /// The time that the build takes; `None`: the builder's delay.
    time: Option<Duration>,
    ends: bool,
    /// The time from a cancellation to the end.
    pub(super) cancelling: Duration,
    /// The time until there is a build slot.
    pub(super) waiting: Duration,
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
        Self { outcome, time: None, ends: true, cancelling: Duration::ZERO, waiting: Duration::ZERO }
    }

    /// Returns a build that ends with an image.
    pub const fn succeeds() -> Self {
        Self::new(Outcome::Built)
    }

    /// Returns a build that fails.
    pub const fn fails() -> Self {
        Self::new(Outcome::Failed)
    }

    /// Returns a build whose source lacks the commit.
    pub const fn not_found() -> Self {
        Self::new(Outcome::NotFound)
    }

    /// Returns a build whose source has several such commits.
    pub const fn ambiguous() -> Self {
        Self::new(Outcome::Ambiguous)
    }

    /// Returns a build that ends only when it is cancelled.
    pub const fn hangs() -> Self {
        Self { ends: false, ..Self::succeeds() }
    }

    /// The same, in this time instead of the builder's.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// The same, but it goes on for this long after it is cancelled.
    #[must_use]
    pub fn dying_for(self, cancelling: Duration) -> Self {
        Self { cancelling, ..self }
    }

    /// The same, but it waits this long for a build slot.
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

    pub(super) fn duration(&self, delay: Duration) -> Option<Duration> {
        self.ends.then(|| self.waiting + self.time.unwrap_or(delay))
    }
}

/// Returns the commit that a short one stands for, as there is no source to ask.
pub(super) fn in_full(commit: &Commit) -> Commit {
    let given = commit.as_str().to_ascii_lowercase();
    if given.len() >= 40 {
        return commit.clone();
    }
    let full = format!("{given}{}", sha256(&given));
    full.get(..40).and_then(|full| full.parse().ok()).unwrap_or_else(|| commit.clone())
}

/// Returns the image that a build of the commit pushes.
#[expect(clippy::expect_used, reason = "a repository with 64 hexadecimal digits behind it is an image by digest")]
pub(super) fn image(repository: &ImageRepository, commit: &Commit) -> ImageRef {
    let digest = sha256(&format!("{repository} {commit}"));
    format!("{repository}:{commit}@sha256:{digest}").parse().expect("an image by digest")
}
