//! The states of a deploy, and the evidence of a failed one.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Commit, Reason, Revision, Sequence},
    source::Fingerprint,
    text::{self, words},
    time::{Timestamp, millis},
};

/// The evidence of a failed rollout, taken before anything is put right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The container that failed, or the platform's own kind of part.
    pub container: Option<String>,
    /// The instance that failed.
    pub pod: Option<String>,
    /// The container's state in one line, such as "waiting: ImagePullBackOff" or "terminated: exit code 1".
    pub state: Option<String>,
    /// The last events, oldest first, at most 10, each one line.
    pub events: Vec<String>,
    /// The last lines that the container logged, oldest first, at most 50 of at most 500 characters.
    pub log: Vec<String>,
    /// The workloads of a target that has several, that which failed first; empty for a target that has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadEvidence>,
}

/// The state of one of several workloads when their deploy failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadEvidence {
    /// The workload's name for people, such as `Deployment/worker`.
    pub name: String,
    /// The workload's state.
    pub state: WorkloadEnd,
    /// The same in a line for people, such as what it waited for.
    pub message: String,
}

/// How far a deploy that failed had come on one of several workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadEnd {
    /// The deploy failed on it.
    Failed,
    /// The deploy was complete on it.
    Complete,
    /// The deploy, a restore or another return to an earlier version, had brought it back.
    Restored,
    /// The deploy had begun on it, and was not complete.
    Unfinished,
    /// The deploy had not come to it.
    NotTouched,
}

words! { WorkloadEnd:
    Failed = "failed",
    Complete = "complete",
    Restored = "restored",
    Unfinished = "unfinished",
    NotTouched = "not touched",
}

/// The most characters of each text of an entry's evidence.
const TEXT_MAX: usize = 500;
/// The most lines of events, and the most bytes of all as JSON writes them.
const EVENTS_MAX: (usize, usize) = (10, 4 << 10);
/// The same of the log.
const LOG_MAX: (usize, usize) = (100, 24 << 10);
/// The most bytes of all workloads as JSON writes them, and the most characters of what is said of each.
const WORKLOADS_MAX: (usize, usize) = (8 << 10, 200);

impl Evidence {
    /// Returns the evidence with the states of several workloads alone; `None` if the target has one.
    #[must_use]
    pub fn of_workloads(&self) -> Option<Self> {
        let workloads = self.workloads.clone();
        (!workloads.is_empty()).then(|| Self { workloads, ..Self::default() })
    }

    /// Returns the evidence with what an entry may hold of it: its texts come from outside, and every failed entry keeps them. Of
    /// the events and the log, the last lines stay, and of the workloads the first ones.
    #[must_use]
    pub(super) fn bounded(mut self) -> Self {
        for fact in [&mut self.container, &mut self.pod, &mut self.state].into_iter().flatten() {
            text::cut(fact, TEXT_MAX);
        }
        keep_last(&mut self.events, EVENTS_MAX);
        keep_last(&mut self.log, LOG_MAX);
        let mut sum = 0_usize;
        self.workloads.retain_mut(|workload| {
            text::cut(&mut workload.name, TEXT_MAX);
            text::cut(&mut workload.message, WORKLOADS_MAX.1);
            sum = sum.saturating_add(written(workload));
            sum <= WORKLOADS_MAX.0
        });
        self
    }
}

/// Keeps the last lines: so many, and so many bytes as JSON writes them, which a control character has six of.
fn keep_last(lines: &mut Vec<String>, (count, bytes): (usize, usize)) {
    lines.iter_mut().for_each(|line| text::cut(line, TEXT_MAX));
    let lengths = lines.iter().rev().take(count).map(written);
    let sums = lengths.scan(0_usize, |sum, length| {
        *sum = sum.saturating_add(length);
        Some(*sum)
    });
    let kept = sums.take_while(|sum| *sum <= bytes).count();
    lines.drain(..lines.len() - kept);
}

/// Returns the bytes of a value as JSON writes it.
pub(super) fn written(value: &(impl Serialize + ?Sized)) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// Time that a deadline does not count, such as that in which the cluster could not be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outage {
    /// The begin of the interruption that lasts now, if one does.
    pub since: Option<Timestamp>,
    /// The sum of the interruptions that are over.
    #[serde(with = "millis", rename = "past_ms")]
    pub past: Duration,
}

impl Outage {
    /// Returns the whole time up to `now`.
    pub fn total(&self, now: Timestamp) -> Duration {
        self.past + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Returns the outage as it is if an interruption lasts at `now`, or does not.
    #[must_use]
    pub fn set(self, lasts: bool, now: Timestamp) -> Self {
        match (self.since, lasts) {
            (None, true) => Self { since: Some(now), ..self },
            (Some(_), false) => Self { since: None, past: self.total(now) },
            (None, false) | (Some(_), true) => self,
        }
    }
}

/// Time in which a build could not go on, through no fault of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paused {
    /// The time in which the builder could not be reached.
    pub away: Outage,
    /// The time in which the build waited for a build slot.
    pub waiting: Outage,
}

/// What is known of a deploy's release command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseMark {
    /// The command may have begun; recorded before its start.
    MayHaveRun,
    /// The command ran to its end, without an error.
    Done,
}

words! { ReleaseMark:
    MayHaveRun = "may-have-run",
    Done = "done",
}

/// The state of a deploy; each variant holds what is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum State {
    /// Accepted and waiting for its turn.
    Queued,
    /// The commit of a git app is being built; or it is built, if there is an image, and waits to be rolled out.
    Building {
        /// The begin of the build.
        since: Timestamp,
        /// The fingerprint of the source that is built.
        #[serde(default)]
        source: Fingerprint,
        /// The time that the build's deadline does not count.
        #[serde(default)]
        paused: Paused,
    },
    /// The release command is being run with the new image; nothing was changed yet.
    Releasing {
        /// The begin of the step.
        since: Timestamp,
        /// The program and its arguments, as the app's policy had them at that time.
        command: Vec<String>,
        /// The time in which the platform that runs the command could not be reached.
        #[serde(default)]
        outage: Outage,
    },
    /// The cluster is being brought to the revision, or runs it while it is verified.
    RollingOut {
        /// The begin of the rollout.
        since: Timestamp,
        /// The time in which the cluster could not be reached.
        outage: Outage,
    },
    /// The revision was observed running, and stayed ready for the settling time.
    Succeeded {
        /// A remark, such as "0 replicas: no pod runs".
        note: Option<String>,
    },
    /// The deploy ended without running.
    Failed {
        /// The code of the failure.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
        /// The evidence of the failure.
        evidence: Option<Evidence>,
    },
    /// A newer revision took its place, or had done so before it came.
    Superseded {
        /// The newer revision.
        by: Revision,
        /// Whether the newer revision is a rollback.
        rollback: bool,
        /// What shows that `by` is newer, if the deploy came after it: then `by` is an earlier revision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newer: Option<Newer>,
    },
    /// The deploy was cancelled.
    Cancelled {
        /// The code of the cancellation.
        reason: Reason,
        /// The party that cancelled, and the consequence.
        message: String,
    },
}

/// What shows that an earlier deploy is newer than one that came after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Newer {
    /// Its sequence, which is higher.
    Sequence(Sequence),
    /// Its commit, which comes after the other one's on their branch.
    Commit(Commit),
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequence(sequence) => write!(f, "the higher sequence {sequence}"),
            Self::Commit(commit) => write!(f, "the newer commit {commit}"),
        }
    }
}

/// A state without its contents: the word that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, waiting for its turn.
    Queued,
    /// The commit is being built.
    Building,
    /// The release command is being run.
    Releasing,
    /// The revision is being rolled out.
    RollingOut,
    /// The revision runs, and its app's checks measure it.
    Verifying,
    /// The revision runs, or ran.
    Succeeded,
    /// The deploy ended without running.
    Failed,
    /// The deploy ended because of a newer one.
    Superseded,
    /// The deploy was cancelled.
    Cancelled,
}

words! { Status:
    Queued = "queued",
    Building = "building",
    Releasing = "releasing",
    RollingOut = "rolling_out",
    Verifying = "verifying",
    Succeeded = "succeeded",
    Failed = "failed",
    Superseded = "superseded",
    Cancelled = "cancelled",
}

impl Status {
    /// Returns whether the status is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Superseded | Self::Cancelled)
    }
}

impl State {
    /// The state's status: [`Deploy::status`](crate::deploy::Deploy::status) says as well whether a deploy that rolls out is verified.
    pub const fn status(&self) -> Status {
        match self {
            Self::Queued => Status::Queued,
            Self::Building { .. } => Status::Building,
            Self::Releasing { .. } => Status::Releasing,
            Self::RollingOut { .. } => Status::RollingOut,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::Failed,
            Self::Superseded { .. } => Status::Superseded,
            Self::Cancelled { .. } => Status::Cancelled,
        }
    }

    /// Returns whether the deploy failed for this reason.
    pub fn has_failed_for(&self, code: &str) -> bool {
        matches!(self, Self::Failed { reason, .. } if reason.as_str() == code)
    }

    /// Returns whether the deploy failed because its release command did.
    pub(crate) fn has_failed_to_release(&self) -> bool {
        const REASONS: [&str; 3] = [Reason::RELEASE_FAILED, Reason::RELEASE_UNKNOWN, Reason::RELEASE_DEADLINE];
        matches!(self, Self::Failed { reason, .. } if REASONS.contains(&reason.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_bounded_in_lines_and_bytes_and_its_end_stays() {
        let lines = |count: usize, text: &str| (1..=count).map(|number| format!("{number}{text}")).collect::<Vec<_>>();
        let bounded = |log| Evidence { events: lines(12, " came"), log, ..Evidence::default() }.bounded();
        let usual = lines(50, &"x".repeat(100));
        let kept = bounded(usual.clone());
        assert_eq!(kept.log, usual);
        assert_eq!(kept.events.first().unwrap(), "3 came");
        for (text, least) in [("x", 46), ("\u{1}", 7), ("é", 23)] {
            let kept = bounded(lines(200, &text.repeat(5_000)));
            let written = serde_json::to_string(&kept).unwrap().len();
            assert!(
                kept.log.len() >= least && written <= 30 << 10,
                "{text:?}: {} lines, {written} bytes",
                kept.log.len()
            );
            assert!(kept.log.last().unwrap().starts_with("200"));
        }
        assert_eq!(bounded(lines(200, "")).log, lines(200, "")[100..]);
    }

    #[test]
    fn evidence_of_workloads_is_nothing_but_their_states() {
        let (name, message) = ("Deployment/worker".to_owned(), "0 of 1 new pods are ready".to_owned());
        let workloads = vec![WorkloadEvidence { name, state: WorkloadEnd::Failed, message }];
        let whole = Evidence { log: vec!["secret".to_owned()], workloads: workloads.clone(), ..Evidence::default() };
        assert_eq!(whole.of_workloads(), Some(Evidence { workloads, ..Evidence::default() }));
        assert_eq!(Evidence { workloads: Vec::new(), ..whole }.of_workloads(), None);
    }

    #[test]
    fn evidence_of_workloads_is_bounded_and_the_first_stay() {
        let workload = |text: &str| WorkloadEvidence {
            name: text.to_owned(),
            state: WorkloadEnd::Failed,
            message: text.to_owned(),
        };
        let kept = |text: &str| {
            let workloads = (0..16).map(|number| workload(&format!("{number}{text}"))).collect();
            Evidence { workloads, ..Evidence::default() }.bounded().workloads
        };
        assert_eq!(kept(&"x".repeat(100)).len(), 16);
        for text in ["x", "\u{1}", "é"] {
            let kept = kept(&text.repeat(5_000));
            assert!(!kept.is_empty() && kept[0].name.starts_with('0') && written(&kept) <= 9 << 10);
        }
    }

    #[test]
    fn stored_form_of_what_is_newer_is_a_number_or_a_commit() {
        let superseded = |newer| State::Superseded { by: Revision::FIRST, rollback: false, newer };
        let stored = |newer| serde_json::to_value(superseded(newer)).unwrap();
        for (newer, text) in [
            (Newer::Sequence(Sequence::new(12).unwrap()), serde_json::json!(12)),
            (Newer::Commit("1234567".parse().unwrap()), serde_json::json!("1234567")),
        ] {
            let form = stored(Some(newer.clone()));
            assert_eq!(form["newer"], text, "{form}");
            assert_eq!(serde_json::from_value::<State>(form).unwrap(), superseded(Some(newer)));
        }
        assert_eq!(serde_json::from_value::<State>(stored(None)).unwrap(), superseded(None));
    }
}
