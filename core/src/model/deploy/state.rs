//! Where a deploy stands, and what was seen of it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Reason, Revision},
    source::Fingerprint,
    time::{Timestamp, millis},
};

/// What was seen of a failed rollout, taken before anything was put right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The container, or what else the platform calls the part that failed.
    pub container: Option<String>,
    /// The instance it was seen in.
    pub pod: Option<String>,
    /// The container's state in one line, such as "waiting: ImagePullBackOff" or "terminated: exit code 1".
    pub state: Option<String>,
    /// The last events, oldest first, at most 10, each one line.
    pub events: Vec<String>,
    /// The last lines that the container logged, oldest first, at most 50 of at most 500 characters.
    pub log: Vec<String>,
}

/// Time that a deadline does not count, such as that in which the cluster could not be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outage {
    /// Since when it lasts, where it does now.
    pub since: Option<Timestamp>,
    /// What is over of it.
    #[serde(with = "millis", rename = "past_ms")]
    pub past: Duration,
}

impl Outage {
    /// All of it up to `now`.
    pub fn total(&self, now: Timestamp) -> Duration {
        self.past + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The same, lasting on from `now` or over by then.
    #[must_use]
    pub fn set(self, lasts: bool, now: Timestamp) -> Self {
        match (self.since, lasts) {
            (None, true) => Self { since: Some(now), ..self },
            (Some(_), false) => Self { since: None, past: self.total(now) },
            (None, false) | (Some(_), true) => self,
        }
    }
}

/// Time in which a build could not go on, for no reason of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paused {
    /// The builder could not be reached.
    pub away: Outage,
    /// It waited until the builder had room for it.
    pub waiting: Outage,
}

/// Where a deploy stands; each variant holds what is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum State {
    /// Accepted and waiting for its turn.
    Queued,
    /// Its commit is being built (git apps), or is built, where there is an image, and waits to be rolled out.
    Building {
        /// Since when.
        since: Timestamp,
        /// The source that it is built from.
        #[serde(default)]
        source: Fingerprint,
        /// Time that its deadline does not count.
        #[serde(default)]
        paused: Paused,
    },
    /// The cluster is being brought to it.
    RollingOut {
        /// Since when.
        since: Timestamp,
        /// Time in which the cluster was out of reach.
        outage: Outage,
    },
    /// It was observed running, and stayed so.
    Succeeded {
        /// A remark, such as "0 replicas: no pod runs".
        note: Option<String>,
    },
    /// It ended without running.
    Failed {
        /// The code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
        /// What was seen.
        evidence: Option<Evidence>,
    },
    /// A newer revision took its place.
    Superseded {
        /// The newer one.
        by: Revision,
        /// Whether that one is a rollback.
        rollback: bool,
    },
    /// Somebody ended it.
    Cancelled {
        /// The code.
        reason: Reason,
        /// Who, and what that means.
        message: String,
    },
}

/// A state without its contents: the word that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted.
    Queued,
    /// Being built.
    Building,
    /// Being rolled out.
    RollingOut,
    /// Runs, or ran.
    Succeeded,
    /// Ended without running.
    Failed,
    /// Ended because of a newer one.
    Superseded,
    /// Ended by somebody.
    Cancelled,
}

impl Status {
    /// The word that the history shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Building => "building",
            Self::RollingOut => "rolling_out",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing follows it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Superseded | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// The state's word.
    pub const fn status(&self) -> Status {
        match self {
            Self::Queued => Status::Queued,
            Self::Building { .. } => Status::Building,
            Self::RollingOut { .. } => Status::RollingOut,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::Failed,
            Self::Superseded { .. } => Status::Superseded,
            Self::Cancelled { .. } => Status::Cancelled,
        }
    }
}
