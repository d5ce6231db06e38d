//! The port that runs commands: the release commands of deploys, those that people run by hand, and those of checks.

use std::{fmt, num::NonZeroU64, str::FromStr};

use async_trait::async_trait;

use crate::{
    app::{AppId, AppUid, InvalidName, Target},
    configuration::Configuration,
    deploy::{Reason, Revision},
    error::Result,
    image::{Digest, ImageRef},
    ports::DeployId,
    run::RunNumber,
    text::with_fields,
};

/// The command that a run is of. The numbers of the kinds are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// The release command of this revision's deploy.
    Release(Revision),
    /// A command that a person runs by hand.
    ByHand(RunNumber),
    /// The command of a check, for one measurement.
    Check(CheckRun),
}

/// The run of a check's command for one measurement: the deploy that is measured, the number of the measurement, and the
/// check, in one number. A measurement that is repeated, as its process was stopped, is the same run; a later one of the same
/// app has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckRun(NonZeroU64);

impl CheckRun {
    const MEASUREMENT_BITS: u32 = 17;
    const CHECK_BITS: u32 = 20;
    /// The measurements that people try out are behind all others of the deploy.
    const TRIED_OUT: u64 = (1 << Self::MEASUREMENT_BITS) - 1;

    /// Returns the run of a deploy's measurement, which is counted from 1. `check` tells the checks of an app apart by its 20
    /// lowest bits.
    pub fn new(revision: Revision, measurement: u32, check: u32) -> Self {
        Self::of(revision, u64::from(measurement).min(Self::TRIED_OUT - 1), check)
    }

    /// Returns the run of a measurement that a person tries out; `random` tells such runs apart by its 20 lowest bits.
    pub fn tried_out(revision: Revision, random: u32) -> Self {
        Self::of(revision, Self::TRIED_OUT, random)
    }

    fn of(revision: Revision, measurement: u64, check: u32) -> Self {
        // What is left of 63 bits, which a label of a platform has room for.
        let revision = revision.get().min((1 << (63 - Self::MEASUREMENT_BITS - Self::CHECK_BITS)) - 1);
        let check = u64::from(check) & ((1 << Self::CHECK_BITS) - 1);
        let measured = (revision << Self::MEASUREMENT_BITS) | measurement;
        let number = (measured << Self::CHECK_BITS) | check;
        // A revision is no zero.
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The check, as a number that its runs have in common; those that people try out have one together.
    const fn series(self) -> u32 {
        let of_check = self.get() & ((1 << Self::CHECK_BITS) - 1);
        let is_tried_out = (self.get() >> Self::CHECK_BITS) & Self::TRIED_OUT == Self::TRIED_OUT;
        if is_tried_out { u32::MAX } else { of_check as u32 }
    }

    /// The deploy that is measured.
    pub fn revision(self) -> Revision {
        Revision::new(self.get() >> (Self::MEASUREMENT_BITS + Self::CHECK_BITS)).unwrap_or(Revision::FIRST)
    }
}

impl FromStr for CheckRun {
    type Err = InvalidName;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidName> {
        let number: RunNumber = text.parse()?;
        Ok(NonZeroU64::new(number.get()).map_or(Self(NonZeroU64::MIN), Self))
    }
}

impl RunKind {
    const RELEASE: &str = "release";
    const BY_HAND: &str = "run";
    const CHECK: &str = "check";

    /// The word for runs of this kind, which platforms name them by.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Release(_) => Self::RELEASE,
            Self::ByHand(_) => Self::BY_HAND,
            Self::Check(_) => Self::CHECK,
        }
    }

    /// The number of the run among those of its app and kind.
    pub const fn number(self) -> u64 {
        match self {
            Self::Release(revision) => revision.get(),
            Self::ByHand(number) => number.get(),
            Self::Check(run) => run.get(),
        }
    }

    /// Returns the run that a platform has named by a word and a number; `None` if there is none.
    pub fn named(word: &str, number: &str) -> Option<Self> {
        match word {
            Self::RELEASE => number.parse().ok().map(Self::Release),
            Self::BY_HAND => number.parse().ok().map(Self::ByHand),
            Self::CHECK => number.parse().ok().map(Self::Check),
            _ => None,
        }
    }

    /// Returns what the runs have in common of which a platform keeps the newest, once this one is ready: of the deploy that
    /// it measures those of each check; `None` of all others of its kind.
    pub fn series(self, ready: Self) -> Option<u32> {
        match (self, ready) {
            (Self::Check(run), Self::Check(ready)) if run.revision() == ready.revision() => Some(run.series()),
            _ => None,
        }
    }

    /// Returns whether this run measures the same deploy by the same check as another one.
    pub fn is_of_same_check(self, other: Self) -> bool {
        self.series(other).is_some() && self.series(other) == other.series(self)
    }

    /// Returns whether the run is of a deploy's release command, after which the deploy goes on.
    pub const fn is_release(self) -> bool {
        matches!(self, Self::Release(_))
    }

    /// Returns whether the run is of a person's command.
    pub const fn is_by_hand(self) -> bool {
        matches!(self, Self::ByHand(_))
    }
}

/// The name of a run, and its number among those of its kind: `7` of a deploy's, `run-7` of one by hand, `check-7` of a check's.
impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release(revision) => revision.fmt(f),
            Self::ByHand(number) => write!(f, "run-{number}"),
            Self::Check(run) => write!(f, "check-{}", run.get()),
        }
    }
}

/// The id of a run: `{app uid}/{revision}` of a release command, `{app uid}/run-{number}` of a command by hand,
/// `{app uid}/check-{number}` of a check's. There is at most one run of each id, ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The uid of the registration.
    pub app: AppUid,
    /// The command.
    pub kind: RunKind,
}

impl From<DeployId> for RunId {
    fn from(DeployId { app, revision }: DeployId) -> Self {
        Self { app, kind: RunKind::Release(revision) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.kind)
    }
}

impl FromStr for RunId {
    type Err = InvalidName;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidName> {
        let (app, run) = text.split_once('/').unwrap_or((text, ""));
        let kind = match (run.strip_prefix("run-"), run.strip_prefix("check-")) {
            (Some(number), _) => RunKind::ByHand(number.parse()?),
            (None, Some(number)) => RunKind::Check(number.parse()?),
            (None, None) => RunKind::Release(run.parse()?),
        };
        Ok(Self { app: app.parse()?, kind })
    }
}

/// A run of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRun {
    /// The app's name.
    pub app: AppId,
    /// The run's id.
    pub id: RunId,
}

impl ReleaseRun {
    /// Returns the run of this revision's release command.
    pub fn new(app: &AppId, uid: AppUid, revision: Revision) -> Self {
        Self { app: app.clone(), id: RunId { app: uid, kind: RunKind::Release(revision) } }
    }

    /// Returns the run of a person's command.
    pub fn by_hand(app: &AppId, uid: AppUid, number: RunNumber) -> Self {
        Self { app: app.clone(), id: RunId { app: uid, kind: RunKind::ByHand(number) } }
    }

    /// Returns the run of a check's command.
    pub fn of_check(app: &AppId, uid: AppUid, run: CheckRun) -> Self {
        Self { app: app.clone(), id: RunId { app: uid, kind: RunKind::Check(run) } }
    }

    /// Returns a deploy id by which a driver finds the run's target, and judges whether that is the app's own. Of a command
    /// by hand, which belongs to no deploy, its number stands for the revision: that says nothing of what is newer.
    pub fn deploy_id(&self) -> DeployId {
        let revision = match self.id.kind {
            RunKind::Release(revision) => revision,
            RunKind::ByHand(number) => Revision::new(number.get()).unwrap_or(Revision::FIRST),
            RunKind::Check(run) => run.revision(),
        };
        DeployId { app: self.id.app, revision }
    }
}

/// The specification of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseSpec {
    /// The run.
    pub run: ReleaseRun,
    /// The target whose environment, secrets, networks and volumes the command gets.
    pub target: Target,
    /// The image: a deploy's new one, or the app's current one.
    pub image: ImageRef,
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
    /// The variables that the command gets beside the target's environment, as in
    /// [`RolloutSpec::configuration`](crate::ports::RolloutSpec::configuration).
    pub configuration: Option<Configuration>,
}

with_fields!(ReleaseSpec);

impl ReleaseSpec {
    /// Returns the specification of a run of this command.
    pub const fn new(run: ReleaseRun, target: Target, image: ImageRef, command: Vec<String>) -> Self {
        Self { run, target, image, command, configuration: None }
    }
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFailure {
    /// Whether the command may have begun. `false` only if it is certain that it did not, and never will.
    pub began: bool,
    /// The code of the failure: [`Reason::RELEASE_FAILED`], or the platform's word.
    pub reason: Reason,
    /// A sentence that a person can act on, such as "The release command ended with exit code 1."
    pub message: String,
    /// The command's exit code, if it ended with one.
    pub exit_code: Option<i32>,
    /// The last lines of the log, oldest first; at most 50 of at most 500 characters.
    pub log: Vec<String>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseState {
    /// The run is being made ready, such as by pulling the image; the command has not begun.
    Preparing,
    /// The run is ready to be started; the command has not begun.
    Prepared,
    /// The run was started, and has not ended.
    Running,
    /// The command ended with exit code 0.
    Succeeded {
        /// The digest of the image that ran, if the platform reports it.
        digest: Option<Digest>,
    },
    /// The command ended otherwise, was cancelled, or could not begin.
    Failed(ReleaseFailure),
    /// The run is unknown: never made ready, or lost with the machine that it ran on.
    Unknown,
}

impl ReleaseState {
    /// Returns whether the run has ended, and nothing of it goes on.
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed(_))
    }
}

/// Runs a command once with an image of the app: a deploy's release command with its new image, before anything is changed,
/// a check's once the new image is rolled out, or a person's with the current one. A migration of a database must not run twice,
/// and neither must a fix by hand.
///
/// A run is made ready first, and then started. The caller stores between the two that the command may have begun: so a
/// run that is only ready has certainly not begun, and one that was started is never started again. A run's id
/// alone names it to all processes; the memory of a runner ends with its process. A target that carries a newer deploy is
/// no reason to refuse a command by hand, or a check's.
///
/// The [`Error`](crate::Error) of a call says what its caller does next, as for a
/// [`RolloutDriver`](crate::ports::RolloutDriver).
///
/// - `prepare_begins_nothing`: a run that was made ready, however often, has not begun, and is `Prepared` within a bounded
///   number of calls.
/// - `start_runs_to_the_end`: a command that succeeds ends `Succeeded`, with the new image, the arguments as they are, and
///   the environment of the target.
/// - `command_has_the_variables`: of the spec's configuration, and none that an instance of the target has of an earlier one.
/// - `start_is_once`: repeated, also after the end and by another process, the command runs once.
/// - `start_of_unknown_runs_nothing`: it makes no run.
/// - `prepare_of_known_changes_nothing`: of a run that goes on or has ended, it returns the state.
/// - `failed_command_keeps_its_log`: [`Reason::RELEASE_FAILED`], with the exit code, also as a number, and the last lines of
///   the log.
/// - `missing_image_never_begins`: an image that cannot be had is `Failed` with `began: false` within a bounded time.
/// - `cancel_ends_for_good`: a run is observed ended within a bounded time, and one that was only ready never begins, also
///   if it is started later. Cancelling an ended or unknown run changes nothing and is no error.
/// - `observe_unknown_is_unknown`: a run that was never made ready.
/// - `end_outlives_a_restart`: another handle on the same platform, opened once the first is gone, reports it.
/// - `target_stays_as_it_is`: no instance of the target is changed, restarted, or counts the run among its own.
/// - `runs_of_all_kinds_are_apart`: a release command, a command by hand and a check's of the same number are three runs.
///   Several of one app's checks go on beside each other.
/// - `release_log_is_read_in_parts`: from any offset, complete in the end; `None` if there is no log.
#[async_trait]
pub trait ReleaseRunner: Send + Sync {
    /// Makes the run ready, unless it is known. Returns its state.
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState>;

    /// Starts a run that is ready; without effect on every other one.
    async fn start(&self, run: &ReleaseRun) -> Result<()>;

    /// Returns the state of a run; its end is reported for a day at least, or until a later run of the app and the same kind
    /// has ended.
    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState>;

    /// Ends a run; [`ReleaseRunner::observe`] reports its end.
    async fn cancel(&self, run: &ReleaseRun) -> Result<()>;

    /// Returns when an observation may have changed. It may return early, or never: callers poll as well.
    async fn changed(&self, run: &ReleaseRun);

    /// Returns a part of the run's log from byte `from` on; empty if there is no more yet, `None` if there is no log.
    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_checks_are_told_apart_and_in_order() {
        let revision = |number| Revision::new(number).unwrap();
        let runs = [
            CheckRun::new(revision(1), 1, 7),
            CheckRun::new(revision(1), 1, 8),
            CheckRun::new(revision(1), 2, 1),
            CheckRun::new(revision(1), u32::MAX, 1),
            CheckRun::tried_out(revision(1), u32::MAX),
            CheckRun::new(revision(2), 1, 1),
        ];
        assert!(runs.is_sorted_by(|one, next| one < next), "{runs:?}");
        for run in runs {
            let id = RunId { app: AppUid::from_bits(7), kind: RunKind::Check(run) };
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(runs.map(|run| run.revision().get()), [1, 1, 1, 1, 1, 2]);
        let last = CheckRun::tried_out(revision(u64::MAX), u32::MAX);
        assert!(i64::try_from(last.get()).is_ok(), "it has room in a label");
    }
}
