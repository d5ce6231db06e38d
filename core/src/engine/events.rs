//! The events of an app's driver, and the effects that it performs.

use std::sync::Arc;

use super::{
    polling::{Detected, Finding, Head, PollSource},
    resolving::{self, ResolveSpec},
    verifying::{Answer, Round, RoundOf},
};
use crate::{
    app::ReleaseGroup,
    deploy::{Deploy, Evidence, Revision},
    ledger::{AppState, Record, release_turns::OtherTurn},
    ports::{
        Applied, BuildSpec, BuildState, DeployId, Observation, ReleaseRun, ReleaseSpec, ReleaseState, RolloutFailure,
        RolloutSpec, RunKind, Started,
    },
    time::Timestamp,
};

/// A failed call to the cluster or the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The callee is unavailable, and may come back.
    Unavailable,
    /// The callee denies this service the permission that this sentence names, and may grant it again.
    Denied(String),
    /// The callee refused the call for good, for the reason in this sentence.
    Refused(String),
}

/// An event that the engine reacts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The app was read.
    Loaded(Box<AppState>),
    /// The changes of the last [`Effect::Record`] or [`Effect::RecordBuilt`] were committed; the app since then.
    Recorded(Box<AppState>),
    /// The rollout driver answered an apply.
    Applied(Result<Applied, CallError>),
    /// An apply was dropped for a newer revision; the app as it is.
    ApplyDropped(Box<AppState>),
    /// The rollout driver answered an observation.
    Observed(Result<Observation, CallError>),
    /// Evidence was collected, or could not be.
    Collected(Option<Evidence>),
    /// The release runner answered an observation of this run, or that it is made ready.
    ReleaseObserved(RunKind, Result<ReleaseState, CallError>),
    /// The release runner answered a start.
    ReleaseStarted(RunKind, Result<(), CallError>),
    /// The release runner answered a cancel.
    ReleaseCancelled(RunKind, Result<(), CallError>),
    /// The turns of the other apps in the release group were read, or could not be.
    TurnsRead {
        /// The turns; `None` if they could not be read.
        others: Option<Vec<OtherTurn>>,
        /// Whether nothing committed before the read is missing.
        is_fresh: bool,
    },
    /// The release runner hinted at a change.
    ReleaseChanged,
    /// The builder reported the app's build that has not ended.
    BuildFound(Result<Option<Revision>, CallError>),
    /// The builder answered the start of this revision's build.
    BuildStarted(Revision, Result<Started, CallError>),
    /// The builder answered an observation of the build.
    BuildObserved(Result<BuildState, CallError>),
    /// The builder answered a cancel.
    BuildCancelled(Result<(), CallError>),
    /// The builder hinted at a change.
    BuildChanged,
    /// The measurements of checks have begun.
    MeasureStarted,
    /// The measurements of this verification have ended.
    Measured(RoundOf, Vec<Answer>),
    /// The reader of the source was called.
    HeadReadStarted,
    /// The reader of the source was not called: the lease may have been lost, or the reader has no room.
    HeadReadPostponed,
    /// The reader of the source answered, with the head or without one; and a random number.
    HeadRead(Option<Head>, u64),
    /// The outcome of deciding on the source's head; and a random number.
    Detected(Detected, u64),
    /// The registry is asked for the image of this revision, or the source for the order of its commit.
    ResolveStarted(Revision),
    /// The registry or the source answered, or did not.
    Resolved(Revision, resolving::Answer),
    /// The awaited time has come.
    Woke,
}

/// The effect that a driver performs before the next event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Commit these changes; the driver fills in who drives the app.
    Record(Record),
    /// Commit the image of a deploy whose build ended well.
    RecordBuilt(Box<Deploy>),
    /// Apply a rollout.
    Apply(RolloutSpec),
    /// Observe a rollout.
    Observe(RolloutSpec),
    /// Wait until the cluster may have changed, but no longer than this; then [`Event::Woke`].
    Watch(RolloutSpec, Timestamp),
    /// Wait until this time; then [`Event::Woke`].
    Wait(Timestamp),
    /// Collect evidence of a failed rollout.
    Collect(RolloutSpec, Option<RolloutFailure>),
    /// Make the run of a release command, or of a command by hand, ready.
    PrepareRelease(Box<ReleaseSpec>),
    /// Start a run that is ready.
    StartRelease(ReleaseRun),
    /// Observe a run.
    ObserveRelease(ReleaseRun),
    /// End a run.
    CancelRelease(ReleaseRun),
    /// Read the turns of the other apps in a release group.
    ReadTurns {
        /// The group.
        group: ReleaseGroup,
        /// Whether nothing committed before the read may be missing.
        is_fresh: bool,
    },
    /// Accept a restore of this version, unless a newer deploy was accepted.
    Restore(Arc<Deploy>),
    /// Ask the builder for the app's build that has not ended.
    FindBuild,
    /// Start a build.
    StartBuild(Box<BuildSpec>),
    /// Observe a build.
    ObserveBuild(DeployId),
    /// Cancel a build.
    CancelBuild(DeployId),
    /// Measure checks: [`Event::MeasureStarted`] at once, and at a wait after the last answer came [`Event::Measured`].
    Measure(Box<Round>),
    /// Ask the registry for the digest of an image, and for its signatures if they are required; or the source if a commit is
    /// older than those of earlier deploys: [`Event::ResolveStarted`] at once, and at a wait after the answer came [`Event::Resolved`].
    Resolve(Box<ResolveSpec>),
    /// Read the head of a source: [`Event::HeadReadStarted`] at once, and at the first wait after the answer came
    /// [`Event::HeadRead`], or [`Event::HeadReadPostponed`] if the reader had no room.
    ReadHead(Box<PollSource>),
    /// Decide whether a source's head is deployed, and accept it.
    Detect(Box<Finding>),
    /// Load the app.
    Load,
    /// Stop driving: the app is idle.
    Stop,
}
