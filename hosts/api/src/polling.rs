//! The state of polling.

use rollhook_core::{
    deploy::Revision,
    service::{PollOutcome, Polled},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::openapi::schemas;

/// The last reading of an app's source by the server that answers: of its branch, or of the repository that it follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Polling {
    /// The time of the reading.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The time since which the result has been the same.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
    /// The commit that the branch is at, or the newest image of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The rollback that holds it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub held_by: Option<Revision>,
    /// The reason why the source could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Polling {
    /// Returns a poll's result as it is on the wire.
    pub fn of(polled: &Polled) -> Self {
        let (head, held_by, error) = match &polled.found {
            PollOutcome::Head(head) => (Some(head.to_string()), None, None),
            PollOutcome::Held(head, by) => (Some(head.to_string()), Some(*by), None),
            PollOutcome::Unreadable(why) => (None, None, Some(why.clone())),
        };
        Self { at: polled.at, since: polled.since, head, held_by, error }
    }
}
