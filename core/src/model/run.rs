//! Runs of a command by hand: one command of a person with an app's current image.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    app::InvalidName,
    deploy::{Actor, Outage, Reason},
    image::ImageRef,
    text::{numbered, words},
    time::{Timestamp, millis},
};

numbered! {
    /// The number of a run by hand: positive, per app, ascending, never reused. It is no revision.
    RunNumber, "run"
}

/// The most characters of the message of an end.
const MESSAGE_MAX: usize = 1_000;
/// The most characters of an ended run's command: the audit has more of it.
const COMMAND_MAX: usize = 200;

/// A run of a command by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The number.
    pub number: RunNumber,
    /// The image, pinned by its digest where that is known.
    pub image: ImageRef,
    /// The program and its arguments; of an ended run, the first 200 characters of them.
    pub command: Vec<String>,
    /// The person who started it.
    pub actor: Actor,
    /// The time that it may take.
    #[serde(with = "millis", rename = "deadline_ms")]
    pub deadline: Duration,
    /// The time of the accept.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The number of changes.
    pub step: u32,
    /// The idempotency key of the call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RunKey>,
    /// The person who asked for its end, and the time of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<RunCancel>,
    /// The state.
    pub state: RunState,
}

/// The idempotency key of the call that made a run, and the call, as hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKey {
    /// The hash of the key and its header.
    pub key: String,
    /// The hash of the call.
    pub request: String,
}

/// A person's request to end a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCancel {
    /// The person.
    pub by: Actor,
    /// The time.
    pub at: Timestamp,
}

/// The state of a run by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum RunState {
    /// The run is being made ready; the command has not begun.
    Preparing {
        /// The time in which the platform could not be reached.
        #[serde(default)]
        outage: Outage,
    },
    /// The command may have begun.
    Running {
        /// The time in which the platform could not be reached.
        #[serde(default)]
        outage: Outage,
    },
    /// The command ended with exit code 0.
    Succeeded,
    /// The command ended otherwise, or could not begin.
    Failed(RunFailure),
    /// A person ended it.
    Cancelled(RunFailure),
    /// Whether the command ran to its end is not known; it is not run again.
    Unknown(RunFailure),
}

/// The end of a run that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// Whether the command may have begun.
    pub began: bool,
    /// The command's exit code, if it ended with one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The code of the failure.
    pub reason: Reason,
    /// A sentence that a person can act on.
    pub message: String,
}

/// The status of a run by hand: its state without its contents, the word that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The run is being made ready.
    Preparing,
    /// The command may have begun.
    Running,
    /// The command ended with exit code 0.
    Succeeded,
    /// The command ended otherwise, or could not begin.
    Failed,
    /// A person ended it.
    Cancelled,
    /// Whether the command ran to its end is not known.
    Unknown,
}

words! { RunStatus:
    Preparing = "preparing",
    Running = "running",
    Succeeded = "succeeded",
    Failed = "failed",
    Cancelled = "cancelled",
    Unknown = "unknown",
}

impl RunState {
    /// The state's status.
    pub const fn status(&self) -> RunStatus {
        match self {
            Self::Preparing { .. } => RunStatus::Preparing,
            Self::Running { .. } => RunStatus::Running,
            Self::Succeeded => RunStatus::Succeeded,
            Self::Failed(_) => RunStatus::Failed,
            Self::Cancelled(_) => RunStatus::Cancelled,
            Self::Unknown(_) => RunStatus::Unknown,
        }
    }

    /// The end, unless the command succeeded or the run has not ended.
    pub const fn failure(&self) -> Option<&RunFailure> {
        match self {
            Self::Failed(failure) | Self::Cancelled(failure) | Self::Unknown(failure) => Some(failure),
            Self::Preparing { .. } | Self::Running { .. } | Self::Succeeded => None,
        }
    }
}

impl Run {
    /// The status.
    pub const fn status(&self) -> RunStatus {
        self.state.status()
    }

    /// Returns whether the run has ended.
    pub const fn is_ended(&self) -> bool {
        !matches!(self.state, RunState::Preparing { .. } | RunState::Running { .. })
    }

    /// Returns whether the command may have begun.
    pub const fn may_have_begun(&self) -> bool {
        match &self.state {
            RunState::Preparing { .. } => false,
            RunState::Running { .. } | RunState::Succeeded => true,
            RunState::Failed(end) | RunState::Cancelled(end) | RunState::Unknown(end) => end.began,
        }
    }

    /// The command's exit code, if it ended with one that is known.
    pub const fn exit_code(&self) -> Option<i32> {
        match &self.state {
            RunState::Succeeded => Some(0),
            RunState::Failed(end) | RunState::Cancelled(end) | RunState::Unknown(end) => end.exit_code,
            RunState::Preparing { .. } | RunState::Running { .. } => None,
        }
    }

    /// The time in which the platform could not be reached, of a run that has not ended.
    pub fn outage(&self) -> Outage {
        match self.state {
            RunState::Preparing { outage } | RunState::Running { outage } => outage,
            RunState::Succeeded | RunState::Failed(_) | RunState::Cancelled(_) | RunState::Unknown(_) => {
                Outage::default()
            }
        }
    }

    /// Returns the time at which the run is ended unless it is over by then; an outage that lasts at `now` moves it on.
    pub fn ends_by(&self, now: Timestamp) -> Timestamp {
        self.created_at.after(self.deadline + self.outage().total(now))
    }

    /// Returns the run in its next state.
    #[must_use]
    pub fn moved(&self, state: RunState) -> Self {
        Self { state, step: self.step.saturating_add(1), ..self.clone() }
    }

    /// Returns the run with texts of a bounded length.
    pub(crate) fn bounded(mut self) -> Self {
        if let RunState::Failed(end) | RunState::Cancelled(end) | RunState::Unknown(end) = &mut self.state {
            end.message = end.message.chars().take(MESSAGE_MAX).collect();
        }
        if self.is_ended() {
            let mut left = COMMAND_MAX;
            self.command.retain_mut(|word| {
                if left == 0 {
                    return false;
                }
                let length = word.chars().count();
                if length > left {
                    *word = word.chars().take(left).chain(['…']).collect();
                }
                left = left.saturating_sub(length + 1);
                true
            });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> Run {
        Run {
            number: RunNumber::FIRST,
            image: "registry.example.com/api:v1".parse().unwrap(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            actor: Actor::person("alice"),
            deadline: Duration::from_secs(3600),
            created_at: Timestamp::from_millis(1),
            updated_at: Timestamp::from_millis(1),
            step: 0,
            key: None,
            cancelled: None,
            state: RunState::Preparing { outage: Outage::default() },
        }
    }

    #[test]
    fn ended_run_keeps_the_begin_of_its_command() {
        let long = "x".repeat(500);
        let unfinished = run(&["bin/fix", &long, "more"]);
        assert_eq!(unfinished.clone().bounded(), unfinished);
        let ended = unfinished.moved(RunState::Succeeded).bounded();
        assert_eq!(ended.command, ["bin/fix".to_owned(), format!("{}…", "x".repeat(192))]);
        let short = run(&["bin/fix", ""]).moved(RunState::Succeeded);
        assert_eq!(short.clone().bounded(), short);
    }

    #[test]
    fn state_is_stored_by_its_status() {
        let stored = |run: &Run| serde_json::to_value(run).unwrap()["state"].clone();
        let begun = run(&["true"]);
        assert_eq!(stored(&begun)["status"], "preparing");
        let failure = RunFailure { began: true, exit_code: Some(3), reason: Reason::new("x"), message: "y".to_owned() };
        let failed = begun.moved(RunState::Failed(failure));
        assert_eq!(stored(&failed)["exit_code"], 3);
        assert_eq!(serde_json::from_value::<Run>(serde_json::to_value(&failed).unwrap()).unwrap(), failed);
    }

    #[test]
    fn number_is_positive() {
        assert_eq!("12".parse::<RunNumber>().unwrap().get(), 12);
        for wrong in ["", "0", "-1", "+1", "1x", "99999999999999999999999"] {
            assert!(wrong.parse::<RunNumber>().is_err(), "{wrong}");
        }
    }
}
