//! The port that reads the logs of an app's instances.

mod reader;

use std::{fmt, str::FromStr};

use async_trait::async_trait;

use crate::{
    app::{App, InvalidName},
    deploy::Revision,
    error::Result,
    instance::InstanceName,
    time::Timestamp,
};

pub use reader::LogReader;

/// The most lines of a part of a log.
pub const LOG_LINES_MAX: usize = 1000;
/// The lines of a part of a log, unless another number is asked for.
pub const LOG_LINES: usize = 100;
/// An instance of an app's target: a container that runs the app, or a log of its own of several in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInstance {
    /// The name, as people know it.
    pub name: InstanceName,
    /// A name that stays for as long as the instance does, where the platform renames instances; else the name.
    pub id: InstanceName,
    /// The revision that the instance was made by; `None`: it was not made by a deploy of the app.
    pub revision: Option<Revision>,
    /// The state in a line, such as "running and ready".
    pub state: String,
    /// Whether the instance is ready.
    pub is_ready: bool,
    /// The number of restarts.
    pub restarts: u32,
    /// The workload that it belongs to, of a target that has several, by the name that people know it by; `None` for a target
    /// that has one.
    pub workload: Option<String>,
}

/// A workload of an app's target, for readers of its logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedWorkload {
    /// The name for people, such as `Deployment/worker`.
    pub name: String,
    /// The app as it would be with this workload alone.
    pub app: App,
}

impl LoggedWorkload {
    /// Returns the workload that a person means by `given`: that of this name, or the only one whose name ends so behind a `/`.
    pub fn named<'a>(all: &'a [Self], given: &str) -> Option<&'a Self> {
        let is_short = |workload: &&Self| workload.name.rsplit_once('/').is_some_and(|(_, short)| short == given);
        let mut short = all.iter().filter(is_short);
        let only = short.next().filter(|_| short.next().is_none());
        all.iter().find(|workload| workload.name == given).or(only)
    }
}

/// The place behind a line of a log: the line's time, and the number of lines up to it that have this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Nanoseconds since the Unix epoch.
    pub time: i64,
    /// The number of lines.
    pub lines: u32,
}

impl LogPosition {
    /// The place before the first line.
    pub const START: Self = Self { time: 0, lines: 0 };
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time, self.lines)
    }
}

impl FromStr for LogPosition {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let read = || {
            let (time, lines) = text.split_once('.')?;
            let time: u64 = time.parse().ok()?;
            Some(Self { time: i64::try_from(time).unwrap_or(i64::MAX), lines: lines.parse().ok()? })
        };
        read().ok_or_else(|| InvalidName::new("position", text, "must be the `next` of an earlier part"))
    }
}

/// The part of a log that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Whether it is the log of the instance's life before its last restart.
    pub previous: bool,
    /// At most this many lines; [`LOG_LINES_MAX`] at most.
    pub lines: usize,
    /// The place behind which the lines are read, oldest first; `None`: the newest lines are read.
    pub after: Option<LogPosition>,
}

impl LogQuery {
    /// Returns the query of the newest lines of the present life.
    pub const fn newest(lines: usize) -> Self {
        Self { previous: false, lines, after: None }
    }

    /// Returns the query of what follows a place.
    #[must_use]
    pub const fn after(self, position: LogPosition) -> Self {
        Self { after: Some(position), ..self }
    }

    /// Returns the query of the life before the last restart.
    #[must_use]
    pub const fn of_previous(self) -> Self {
        Self { previous: true, ..self }
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The time at which the platform received the line.
    pub at: Timestamp,
    /// The text as it was written, without the line's end; at most 4 KiB. It may have control characters.
    pub text: String,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLogPart {
    /// The lines, oldest first; [`LOG_LINES_MAX`] and 256 KiB at most.
    pub lines: Vec<LogLine>,
    /// The place behind the last line.
    pub next: LogPosition,
    /// Whether more lines are there already.
    pub has_more: bool,
}

/// Reads the logs of an app's instances: the part of a [`RolloutDriver`](super::RolloutDriver) whose platform keeps them.
///
/// Nothing is held between two calls: a log that grows is followed by reading on behind the last part's `next`. The
/// [`Error`](crate::Error) of a call says what its caller does next, as for a [`RolloutDriver`](super::RolloutDriver).
///
/// - `instances_are_those_of_the_target`: each has a name of its own, the revision that made it and whether it is ready;
///   those of earlier revisions are listed for as long as the platform has them.
/// - `instance_log_has_what_was_written`: the newest lines are those of the query, oldest first.
/// - `instance_log_goes_on_behind_a_position`: read in parts of any size, from the start on, no line is missing and none is
///   repeated; behind the last one, there is nothing.
/// - `previous_is_the_life_before`: of an instance that was restarted, `previous` has what was written before that; of one
///   that was not, nothing.
/// - `instance_log_of_unknown_is_none`: a name that is no instance's of the app, also if it is another app's.
/// - [`workloads`](Self::workloads) is for a driver whose targets have several: the apps that it returns are read as any other.
/// - `instance_logs_away_is_unavailable`: while the platform cannot be reached.
#[async_trait]
pub trait InstanceLogs: Send + Sync {
    /// Returns the instances of the app's target, those of the newest revision first; at most 100.
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>>;

    /// Returns a part of the log of the instance of this name or id; `None` if the app has no such instance. The part is
    /// empty if the instance has not begun, or has no life before.
    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>>;

    /// Returns the workloads of the app's target by their names, in their order; none if the driver has no names for them.
    ///
    /// # Errors
    /// `Corrupt` if the stored settings are none that a registration stores.
    fn workloads(&self, app: &App) -> Result<Vec<LoggedWorkload>> {
        let _ = app;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::Policy, tests::git_app};

    #[test]
    fn workload_is_meant_by_its_name_or_by_the_end_of_one_alone() {
        let named = |name: &str| LoggedWorkload { name: name.to_owned(), app: git_app(1, Policy::default()) };
        let all = ["Deployment/web", "Deployment/worker", "CronJob/worker", "nightly"].map(named);
        let meant = |given: &str| LoggedWorkload::named(&all, given).map(|workload| workload.name.as_str());
        assert_eq!(meant("CronJob/worker"), Some("CronJob/worker"));
        assert_eq!(meant("web"), Some("Deployment/web"));
        assert_eq!(meant("nightly"), Some("nightly"));
        for unknown in ["worker", "", "Deployment", "deployment/web", "night"] {
            assert_eq!(meant(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn position_is_read_as_it_is_written() {
        let position = LogPosition { time: 1_764_263_729_123_456_789, lines: 3 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for text in ["", "1", "1.", ".1", "-1.0", "1.2.3", "1.-1", "99999999999999999999.0", "a.b"] {
            assert!(text.parse::<LogPosition>().is_err(), "{text}");
        }
    }
}
