//! What the checks go on to say of a version after its deploy has succeeded.

use rollhook_core::{
    deploy::{self, Revision, WatchEnd, WatchRestore},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CheckOutcome;
use crate::openapi::schemas;

/// The watch over a version after its deploy has succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Watch {
    /// When it began.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
    /// When it is over; once it has ended, when it ended.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub until: Timestamp,
    /// Whether it has ended.
    pub ended: bool,
    /// Why it ended before its time, as a clause; absent if a check ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the checks have measured within it; kept of the app's newest watch alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckOutcome>,
    /// The first fail of a check that decides nothing: the version would have been restored then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_restore: Option<CheckFail>,
}

/// The fail of a check in a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFail {
    /// When it was decided.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The check's name.
    pub check: String,
    /// What was measured, in a sentence.
    pub message: String,
}

/// The revocation of a deploy's verification: a check failed while the version was watched. Restores and rollbacks do not
/// return to it by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// The fail.
    #[serde(flatten)]
    pub fail: CheckFail,
    /// The revision of the restore, once it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub restore: Option<Revision>,
    /// Why nothing is restored, as a clause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<String>,
}

impl CheckFail {
    fn of(fail: &deploy::CheckFail) -> Self {
        Self { at: fail.at, check: fail.check.to_string(), message: fail.message.clone() }
    }
}

impl Watch {
    pub(super) fn of(watch: &deploy::Watch) -> Self {
        let reason = match &watch.end {
            Some(WatchEnd::Early { why }) => Some(why.clone()),
            Some(WatchEnd::Over | WatchEnd::Revoked { .. }) | None => None,
        };
        Self {
            since: watch.since(),
            until: watch.until,
            ended: !watch.is_under_way(),
            reason,
            checks: CheckOutcome::of(&watch.measured),
            would_restore: watch.would_restore.as_ref().map(CheckFail::of),
        }
    }
}

impl Revoked {
    pub(super) fn of(watch: &deploy::Watch) -> Option<Self> {
        let (fail, restore) = watch.revoked()?;
        let (restore, not_restored) = match restore {
            WatchRestore::Owed => (None, None),
            WatchRestore::Made { revision } => (Some(*revision), None),
            WatchRestore::Nothing { why } => (None, Some(why.clone())),
        };
        Some(Self { fail: CheckFail::of(fail), restore, not_restored })
    }
}
