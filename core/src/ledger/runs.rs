//! Runs of commands by hand: when one may begin, its end, and what is remembered of those that ended.
//!
//! At most one run of an app is unfinished. None is a revision, none waits for a deploy, and no deploy waits for one. A lock
//! is about deploys, and refuses no run.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{AppState, Change, Refused};
use crate::{
    deploy::{Actor, Outage, Reason},
    image::ImageRef,
    replica::ReplicaId,
    request::Refusal,
    run::{Run, RunCancel, RunFailure, RunKey, RunNumber, RunState},
    time::Timestamp,
};

/// The most ended runs that a state remembers; the oldest goes first.
pub const RUNS_MAX: usize = 20;

/// The runs by hand of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runs {
    /// The newest number.
    pub latest: Option<RunNumber>,
    /// The run that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Arc<Run>>,
    /// The runs that ended, ascending; the last [`RUNS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Arc<Run>>,
}

impl Runs {
    /// Returns whether the app never had a run.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The known runs, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.unfinished.iter().chain(self.ended.iter().rev())
    }

    /// The run of this number, if it is known.
    pub fn find(&self, number: RunNumber) -> Option<&Arc<Run>> {
        self.newest_first().find(|run| run.number == number)
    }
}

/// A run to be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The person.
    pub actor: Actor,
    /// The time that the command may take.
    pub deadline: Duration,
    /// The call's idempotency key.
    pub key: Option<RunKey>,
    /// The replica that leases the app if it is idle.
    pub driver: Option<ReplicaId>,
}

/// The outcome of [`Change::begin_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The run is accepted with the commit of the change.
    New(Arc<Run>),
    /// The same request was accepted before under this key.
    Replayed(Arc<Run>),
}

/// What a call for a run leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// A new run with this image.
    New(ImageRef),
    /// The run that the same request has made before.
    Replayed(Arc<Run>),
}

impl AppState {
    /// Returns what a call for a run with this key leads to.
    ///
    /// # Errors
    /// As [`Change::begin_run`].
    pub fn next_run(&self, key: Option<&RunKey>) -> Result<NextRun, Refusal> {
        let is_same = |run: &&Arc<Run>| run.key.as_ref().zip(key).is_some_and(|(one, two)| one.key == two.key);
        if let Some(known) = self.runs.newest_first().find(is_same) {
            let is_replayed = known.key.as_ref() == key;
            return if is_replayed { Ok(NextRun::Replayed(Arc::clone(known))) } else { Err(Refusal::KeyReused) };
        }
        if let Some(unfinished) = &self.runs.unfinished {
            return Err(Refusal::RunUnfinished(unfinished.number));
        }
        let Some(current) = &self.current else { return Err(Refusal::NothingRuns(self.app.id.clone())) };
        // An entry that succeeded has an image.
        current.pinned_image().map(NextRun::New).ok_or(Refusal::Internal)
    }

    /// Returns the run of this number, which has not ended.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`], [`Refusal::RunEnded`].
    pub fn unfinished_run(&self, number: RunNumber) -> Result<&Arc<Run>, Refusal> {
        let run = self.runs.find(number).ok_or(Refusal::RunNotFound(number))?;
        if run.is_ended() { Err(Refusal::RunEnded(number)) } else { Ok(run) }
    }
}

impl Change {
    /// Accepts a run with the image of the current version. A known key is answered first.
    ///
    /// # Errors
    /// [`Refusal::KeyReused`] if the earlier call was another one, [`Refusal::RunUnfinished`] while another run goes on, [`Refusal::NothingRuns`] if no deploy has succeeded yet; the
    /// change is as it was.
    pub fn begin_run(&mut self, new: NewRun, now: Timestamp) -> Result<Begun, Refusal> {
        let image = match self.state.next_run(new.key.as_ref())? {
            NextRun::Replayed(known) => return Ok(Begun::Replayed(known)),
            NextRun::New(image) => image,
        };
        let number = RunNumber::following(self.state.runs.latest);
        let now = self.touch(now);
        let run = Arc::new(Run {
            number,
            image,
            command: new.command,
            actor: new.actor,
            deadline: new.deadline,
            created_at: now,
            updated_at: now,
            step: 0,
            key: new.key,
            cancelled: None,
            state: RunState::Preparing { outage: Outage::default() },
        });
        let runs = &mut self.state.runs;
        (runs.latest, runs.unfinished) = (Some(number), Some(Arc::clone(&run)));
        self.state.queued_at.get_or_insert(now);
        if self.state.lease.is_none() {
            self.state.lease = new.driver;
        }
        Ok(Begun::New(run))
    }

    /// Notes that a person asks for the end of a run. One that was asked for before stays as it is.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`], [`Refusal::RunEnded`]; the change is as it was.
    pub fn cancel_run(&mut self, number: RunNumber, by: Actor, now: Timestamp) -> Result<Arc<Run>, Refusal> {
        let run = Arc::clone(self.state.unfinished_run(number)?);
        if run.cancelled.is_some() {
            return Ok(run);
        }
        let at = self.state.time(now);
        let cancelled = Run { cancelled: Some(RunCancel { by, at }), ..run.moved(run.state.clone()) };
        self.put_run(cancelled, now);
        self.state.runs.find(number).cloned().ok_or(Refusal::RunNotFound(number))
    }

    /// Ends the run of an app that is being deleted, so that no driver begins it any more. Returns its number.
    pub fn end_run_of_deleted(&mut self, message: &str, now: Timestamp) -> Option<RunNumber> {
        let run = self.state.runs.unfinished.clone()?;
        let (began, reason) = (run.may_have_begun(), Reason::new(Reason::APP_DELETED));
        let failure = RunFailure { began, exit_code: None, reason, message: message.to_owned() };
        self.put_run(run.moved(RunState::Cancelled(failure)), now);
        Some(run.number)
    }

    /// Returns `Ok` if the run may be recorded.
    ///
    /// # Errors
    /// [`Refused::Outdated`] if it has changed or ended meanwhile.
    pub(super) fn check_run(&self, next: &Run) -> Result<(), Refused> {
        let stored = self.state.runs.unfinished.as_ref();
        let is_next =
            stored.is_some_and(|stored| stored.number == next.number && next.step == stored.step.saturating_add(1));
        if is_next { Ok(()) } else { Err(Refused::Outdated) }
    }

    /// Puts a run in its next state where it belongs: it goes on, or it has ended.
    pub(super) fn put_run(&mut self, run: Run, now: Timestamp) {
        let updated_at = self.touch(now);
        let run = Arc::new(Run { updated_at, ..run.bounded() });
        let runs = &mut self.state.runs;
        if !run.is_ended() {
            runs.unfinished = Some(run);
            return;
        }
        runs.unfinished = None;
        runs.ended.push(run);
        let surplus = runs.ended.len().saturating_sub(RUNS_MAX);
        runs.ended.drain(..surplus);
    }
}

/// Returns the rules of runs that a state breaks.
pub(super) fn broken_by(state: &AppState) -> Vec<String> {
    let mut broken = Vec::new();
    let mut expect = |holds: bool, rule: &str| {
        if !holds {
            broken.push(rule.to_owned());
        }
    };
    let runs = &state.runs;
    expect(runs.unfinished.is_none() || state.queued_at.is_some(), "idle with an unfinished run by hand");
    expect(runs.unfinished.as_ref().is_none_or(|run| !run.is_ended()), "an unfinished run by hand has ended");
    expect(runs.ended.iter().all(|run| run.is_ended()), "an ended run by hand goes on");
    expect(runs.ended.len() <= RUNS_MAX, "more ended runs by hand than are remembered");
    let numbers = runs.ended.iter().chain(&runs.unfinished).map(|run| run.number);
    expect(numbers.is_sorted_by(|one, next| one < next), "runs by hand out of order");
    expect(runs.newest_first().next().map(|run| run.number) == runs.latest, "the newest run by hand is another");
    broken
}
