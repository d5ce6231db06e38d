//! What a server knows of a source that it looks at.

use rollhook_core::{
    deploy::Revision,
    service::{PollOutcome, Polled},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The last look at an app's branch, as the server that was asked knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polling {
    /// When it was.
    #[serde(with = "crate::time")]
    pub at: Timestamp,
    /// Since when it has been as it was then.
    #[serde(with = "crate::time")]
    pub since: Timestamp,
    /// The commit that the branch is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The rollback since which that commit is held, so that it is not deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Revision>,
    /// Why the branch could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Polling {
    /// The wire form.
    pub fn of(polled: &Polled) -> Self {
        let (head, held_by, trouble) = match &polled.found {
            PollOutcome::Head(head) => (Some(head.to_string()), None, None),
            PollOutcome::Held(head, by) => (Some(head.to_string()), Some(*by), None),
            PollOutcome::Unreadable(why) => (None, None, Some(why.clone())),
        };
        Self { at: polled.at, since: polled.since, head, held_by, trouble }
    }
}
