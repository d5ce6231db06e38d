//! What a driver is told, and what it is asked to do.

use std::sync::Arc;

use super::polling::{Detected, Finding};
use crate::{
    deploy::{Commit, Deploy, Evidence, Revision},
    ledger::AppState,
    ports::{Applied, BuildSpec, BuildState, DeployId, Observation, RolloutFailure, RolloutSpec, Started},
    source::GitSource,
    time::Timestamp,
};

/// A call to the cluster or the builder that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailed {
    /// It cannot be reached; later it may.
    Away,
    /// It will not do it, now or later: a sentence.
    Refused(String),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The app was read.
    Loaded(Box<AppState>),
    /// The changes of the last [`Effect::Record`] are written; the app as it is since.
    Recorded(Box<AppState>),
    /// The cluster was asked to apply an order.
    Applied(Result<Applied, CallFailed>),
    /// The cluster was asked to apply an order, and the call was given up for a newer revision; the app as it is.
    ApplyDropped(Box<AppState>),
    /// The cluster was looked at.
    Observed(Result<Observation, CallFailed>),
    /// Evidence was collected, or could not be.
    Collected(Option<Evidence>),
    /// The builder was asked which build of the app it has not ended.
    BuildFound(Result<Option<Revision>, CallFailed>),
    /// The builder was given the order for this revision.
    BuildStarted(Revision, Result<Started, CallFailed>),
    /// The build was looked at.
    BuildObserved(Result<BuildState, CallFailed>),
    /// The builder was told to end the build.
    BuildCancelled(Result<(), CallFailed>),
    /// The builder gave a sign.
    BuildChanged,
    /// The source was asked where its branch is.
    HeadAsked,
    /// The source was not asked: that the app is this process's is not sure just now, or there is no room to read it.
    HeadPutOff,
    /// The source's branch is there, or could not be read; and any number.
    HeadRead(Option<Commit>, u64),
    /// What became of the branch's head; and any number.
    Detected(Detected, u64),
    /// The time that was waited for has come.
    Woke,
}

/// What to do next, before the next event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write these changes.
    Record {
        /// The entries as they are to be.
        changes: Vec<Deploy>,
        /// The rollbacks whose holds are released.
        release_holds: Vec<Revision>,
        /// Whether nothing is left to do then.
        idle: bool,
    },
    /// Bring the cluster to an order.
    Apply(RolloutSpec),
    /// Look at the cluster.
    Observe(RolloutSpec),
    /// Wait until the cluster may have changed, but no longer than this; then [`Event::Woke`].
    Watch(RolloutSpec, Timestamp),
    /// Wait for this long; then [`Event::Woke`].
    Wait(Timestamp),
    /// Collect evidence.
    Collect(RolloutSpec, Option<RolloutFailure>),
    /// Accept a restore of this version, unless something newer came.
    Restore(Arc<Deploy>),
    /// Ask the builder which build of the app it has not ended.
    FindBuild,
    /// Give the builder an order.
    StartBuild(Box<BuildSpec>),
    /// Look at a build.
    ObserveBuild(DeployId),
    /// Tell the builder to end a build.
    CancelBuild(DeployId),
    /// Ask a source where its branch is: [`Event::HeadAsked`] at once, and at the first wait after the answer came
    /// [`Event::HeadRead`], or [`Event::HeadPutOff`] where there was no room to read it.
    ReadHead(Box<GitSource>),
    /// Decide whether what was found of a branch is deployed, and accept it.
    Detect(Box<Finding>),
    /// Read the app.
    Load,
    /// Nothing is left to do.
    Rest,
}
