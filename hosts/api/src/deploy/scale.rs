//! Stops and starts: the request, and the stop of an app that is stopped.

use rollhook_core::{
    deploy::{self, Revision},
    lock::{LockReason, REASON_MAX},
    request::{Field, Refusal},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{app::optional, openapi::schemas};

/// A request to stop or start an app: the body of `POST …/stop` and `POST …/start`, which may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScalePost {
    /// The revision that the caller believes to be current; the call is refused if another one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub if_current: Option<Revision>,
    /// The reason for doing so in spite of a lock: an admin's. The audit keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = REASON_MAX))]
    pub break_glass: Option<String>,
}

impl ScalePost {
    /// Returns the reason for doing so in spite of a lock.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn break_glass(&self) -> Result<Option<LockReason>, Refusal> {
        optional(Field::BreakGlass, self.break_glass.as_deref())
    }
}

/// The stop of an app that is stopped: no instance runs, and deploys change its image alone, until it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The revision that stopped the app.
    #[schemars(with = "u64")]
    pub since: Revision,
    /// The person or service that caused the stop.
    pub by: String,
    /// The time since which the app is stopped.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
}

impl Stopped {
    /// Returns the stop as it is on the wire.
    pub fn of(stopped: &deploy::Stopped) -> Self {
        Self { since: stopped.since, by: stopped.by.to_string(), at: stopped.at }
    }

    /// Returns what people are told of it where a deploy is accepted.
    pub fn stays(&self) -> String {
        format!(
            "The app was stopped by revision {} of {}: this changes its image, and starts nothing.",
            self.since, self.by
        )
    }
}
