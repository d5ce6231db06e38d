//! Stops and starts: what a deploy does to the number of an app's instances.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Actor, Revision};
use crate::{text::words, time::Timestamp};

/// The change of the number of an app's instances by a deploy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The number stays as it is.
    #[default]
    Keep,
    /// No instance is left, and the number before is kept with the target.
    Stop,
    /// The number before the stop is put back.
    Start,
}

words! { Scale:
    Keep = "keep",
    Stop = "stop",
    Start = "start",
}

impl Scale {
    /// Returns whether the number stays as it is.
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// The stop of an app that is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The revision that stopped the app.
    pub since: Revision,
    /// The party that caused the stop.
    pub by: Actor,
    /// The time of the stop's end.
    pub at: Timestamp,
}
