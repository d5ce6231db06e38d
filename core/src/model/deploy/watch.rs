//! The watch over a version after its deploy has succeeded: what its app's checks go on to measure, and what follows.

use serde::{Deserialize, Serialize};

use super::{Revision, Verification};
use crate::{
    check::{Check, CheckName},
    text,
    time::Timestamp,
};

/// The most characters of each sentence of a watch.
const TEXT_MAX: usize = 1_000;

/// The watch over a version after its deploy has succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Watch {
    /// The deploy.
    pub revision: Revision,
    /// The begin of its rollout.
    pub rollout_began: Timestamp,
    /// When the watch is over; once it has ended, when it ended.
    pub until: Timestamp,
    /// The number of changes since it began.
    pub step: u32,
    /// What the checks have measured within the watch.
    pub measured: Verification,
    /// The first fail of a check that decides nothing: the version would have been restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_restore: Option<CheckFail>,
    /// How the watch ended; `None` while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<WatchEnd>,
}

/// The fail of a check in a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFail {
    /// When it was decided.
    pub at: Timestamp,
    /// The check.
    pub check: CheckName,
    /// What was measured, in a sentence.
    pub message: String,
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WatchEnd {
    /// The time of the watch was over.
    Over,
    /// The watch ended before its time.
    Early {
        /// The reason, as a clause.
        why: String,
    },
    /// A check failed: the verification of the deploy is revoked.
    Revoked {
        /// The fail.
        fail: CheckFail,
        /// The restore of the version before.
        restore: WatchRestore,
    },
}

/// The restore that follows a revoked verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WatchRestore {
    /// The restore is to be accepted.
    Owed,
    /// The restore was accepted.
    Made {
        /// The restore's revision.
        revision: Revision,
    },
    /// Nothing is restored.
    Nothing {
        /// The reason, as a clause.
        why: String,
    },
}

impl Watch {
    /// Returns a watch by these checks that begins now.
    pub fn begin(
        revision: Revision,
        checks: &[Check],
        (began, since, until): (Timestamp, Timestamp, Timestamp),
    ) -> Self {
        let measured = Verification::begin(checks, since);
        Self { revision, rollout_began: began, until, step: 0, measured, would_restore: None, end: None }
    }

    /// When the watch began.
    pub const fn since(&self) -> Timestamp {
        self.measured.since
    }

    /// Returns whether the watch has not ended.
    pub const fn is_under_way(&self) -> bool {
        self.end.is_none()
    }

    /// The fail by which the verification was revoked, and the restore that follows.
    pub const fn revoked(&self) -> Option<(&CheckFail, &WatchRestore)> {
        match &self.end {
            Some(WatchEnd::Revoked { fail, restore }) => Some((fail, restore)),
            Some(WatchEnd::Over | WatchEnd::Early { .. }) | None => None,
        }
    }

    /// Returns whether a restore is to be accepted.
    pub fn owes_restore(&self) -> bool {
        self.revoked().is_some_and(|(_, restore)| *restore == WatchRestore::Owed)
    }

    /// Returns the watch in its next state.
    #[must_use]
    pub fn moved(&self) -> Self {
        Self { step: self.step.saturating_add(1), ..self.clone() }
    }

    /// Returns the watch as it ended.
    #[must_use]
    pub fn ended(&self, end: WatchEnd, at: Timestamp) -> Self {
        // One that was away for long ends later than it was to.
        Self { end: Some(end), until: at.max(self.since()), ..self.moved() }
    }

    /// Returns the watch with what a state may hold of it: texts come from outside.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        self.measured = self.measured.bounded();
        let fails = self.would_restore.iter_mut().map(|fail| &mut fail.message);
        let end = match &mut self.end {
            Some(WatchEnd::Revoked { fail, restore: WatchRestore::Nothing { why } }) => {
                text::cut(why, TEXT_MAX);
                Some(&mut fail.message)
            }
            Some(WatchEnd::Revoked { fail, .. }) => Some(&mut fail.message),
            Some(WatchEnd::Early { why }) => Some(why),
            Some(WatchEnd::Over) | None => None,
        };
        fails.chain(end).for_each(|message| text::cut(message, TEXT_MAX));
        self
    }

    /// Returns the watch without what was measured, as states keep those before the newest.
    #[must_use]
    pub fn without_measurements(mut self) -> Self {
        self.measured.checks = Vec::new();
        self
    }
}
