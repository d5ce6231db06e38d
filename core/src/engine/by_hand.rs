//! Runs of commands by hand: each is run once, beside whatever is deployed.
//!
//! As a release command is: a run is made ready; then the store records that the command may have begun; then it is started.
//! A driver that loads the app later finds by the record which of the calls may have been made. A run ends when its end was
//! observed, or can no longer be found out.

use super::{
    CallError, Effect,
    rollout::UNREACHABLE_MAX,
    run_calls::{RELOAD_INTERVAL, RunCalls},
    sentence,
};
use crate::{
    configuration::Configuration,
    deploy::{Outage, Reason},
    ledger::AppState,
    ports::{ReleaseFailure, ReleaseRun, ReleaseSpec, ReleaseState},
    run::{Run, RunFailure, RunNumber, RunState},
    time::Timestamp,
};

/// A driver's knowledge of a run by hand. A restart may lose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByHandProgress {
    pub(super) number: RunNumber,
    calls: RunCalls,
}

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ByHandStep {
    /// Call the runner.
    Call(Box<Effect>),
    /// Ask again at this time.
    At(Timestamp),
    /// Record the run's next state.
    Record(Box<Run>),
    /// Load the app.
    Load,
}

impl ByHandStep {
    fn call(effect: Effect) -> Self {
        Self::Call(Box::new(effect))
    }

    fn record(run: Run) -> Self {
        Self::Record(Box::new(run))
    }
}

impl ByHandProgress {
    /// Returns the knowledge of a run at its begin.
    pub(super) const fn new(number: RunNumber, now: Timestamp) -> Self {
        Self { number, calls: RunCalls::new(now) }
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.calls.clock_set(was, is);
    }

    /// Processes a hint of the runner.
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.calls.changed(now);
    }

    /// Returns the next step of the run; the app was loaded at `read_at`.
    pub(super) fn next_step(&self, app_state: &AppState, read_at: Timestamp, now: Timestamp) -> ByHandStep {
        let Some(run) = unfinished(app_state, self.number) else { return ByHandStep::Load };
        let (id, calls) = (self::id(app_state, self.number), &self.calls);
        if now.since(read_at) >= RELOAD_INTERVAL {
            return ByHandStep::Load;
        }
        let ending_since = ending_since(run, now);
        let is_to_be_ended = ending_since.is_some() && calls.cancelled.is_none();
        if ending_since.is_some_and(|since| calls.should_have_ended(since, now)) {
            let message = "The command was told to end, and is not seen to have ended, as where its machine is lost. Look at \
                           its run on the platform before you run another.";
            return ByHandStep::record(unknown(run, message.to_owned()));
        }
        if calls.call_at > now && (!is_to_be_ended || calls.failures > 0) {
            return ByHandStep::At(calls.call_at);
        }
        ByHandStep::call(match (is_to_be_ended, run.may_have_begun()) {
            // A person's cancel is meant for whatever the command does now.
            (true, _) if run.cancelled.is_some() || !run.may_have_begun() || calls.is_seen(now) => {
                Effect::CancelRelease(id)
            }
            (true, _) => Effect::ObserveRelease(id),
            (false, true) if calls.is_under_way() => Effect::ObserveRelease(id),
            (false, true) => Effect::StartRelease(id),
            // It was told to end before it began.
            (false, false) if calls.cancelled.is_some() => Effect::ObserveRelease(id),
            (false, false) => {
                let (target, image) = (app_state.app.target.clone(), run.image.clone());
                let current = app_state.current.as_ref();
                let configuration = current.and_then(|deploy| deploy.configuration).map(Configuration::of);
                let spec = ReleaseSpec::new(id, target, image, run.command.clone());
                Effect::PrepareRelease(Box::new(ReleaseSpec { configuration, ..spec }))
            }
        })
    }

    /// Processes the answer to a start.
    pub(super) fn started(
        &mut self,
        app_state: &AppState,
        answer: Result<(), CallError>,
        now: Timestamp,
    ) -> Option<ByHandStep> {
        if let Err(error) = answer {
            return self.failed(app_state, error, now);
        }
        self.calls.started(now);
        self.answered(app_state, now)
    }

    /// Processes the answer to a cancel. A run whose command has not begun is over with it: nothing starts it any more.
    pub(super) fn cancel_answered(
        &mut self,
        app_state: &AppState,
        answer: Result<(), CallError>,
        now: Timestamp,
    ) -> Option<ByHandStep> {
        if let Err(error) = answer {
            return self.failed(app_state, error, now);
        }
        self.calls.cancelled(now);
        let run = unfinished(app_state, self.number)?;
        if !run.may_have_begun() {
            return Some(ByHandStep::record(ended_early(run, None, false, now)));
        }
        self.answered(app_state, now)
    }

    /// Processes an observation, or the answer of making ready.
    pub(super) fn observed(
        &mut self,
        app_state: &AppState,
        seen: Result<ReleaseState, CallError>,
        now: Timestamp,
    ) -> Option<ByHandStep> {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return self.failed(app_state, error, now),
        };
        self.calls.observed(&seen, now);
        if let Some(back) = self.answered(app_state, now) {
            self.calls.call_at = now;
            return Some(back);
        }
        let run = unfinished(app_state, self.number)?;
        let has_begun = run.may_have_begun();
        match seen {
            ReleaseState::Preparing => None,
            // The start never arrived.
            ReleaseState::Prepared if has_begun => {
                (self.calls.started, self.calls.seen_at) = (false, Some(now));
                None
            }
            ReleaseState::Prepared if ending_since(run, now).is_some() => None,
            ReleaseState::Prepared => {
                self.calls.call_at = now;
                Some(ByHandStep::record(run.moved(RunState::Running { outage: run.outage() })))
            }
            ReleaseState::Running | ReleaseState::Succeeded { .. } if !has_begun => {
                if !self.calls.is_unrecorded() {
                    return Some(ByHandStep::Load);
                }
                let message =
                    "The command has begun, and this service did not start it: whether it ran to its end is not known.";
                Some(ByHandStep::record(unknown(run, message.to_owned())))
            }
            ReleaseState::Running => {
                self.calls.seen_at = Some(now);
                None
            }
            ReleaseState::Succeeded { .. } => Some(ByHandStep::record(run.moved(RunState::Succeeded))),
            ReleaseState::Failed(failure) => Some(ByHandStep::record(failed(run, failure, now))),
            ReleaseState::Unknown if has_begun => {
                let message = "The platform knows nothing of the run any more: whether the command ran to its end is not known, \
                               and it is not run again. Look at what it was to change before you run it again.";
                Some(ByHandStep::record(unknown(run, message.to_owned())))
            }
            ReleaseState::Unknown => None,
        }
    }

    /// Processes a failed call.
    fn failed(&mut self, app_state: &AppState, error: CallError, now: Timestamp) -> Option<ByHandStep> {
        let run = unfinished(app_state, self.number)?;
        let (has_begun, outage) = (run.may_have_begun(), run.outage());
        let lasted = match error {
            CallError::Refused(message) if has_begun => {
                let message = format!("{} Whether the command ran to its end is not known.", sentence(&message));
                return Some(ByHandStep::record(unknown(run, message)));
            }
            CallError::Refused(message) => {
                return Some(ByHandStep::record(unbegun(run, Reason::COMMAND_FAILED, sentence(&message))));
            }
            CallError::Unavailable => "The cluster could not be reached for an hour".to_owned(),
            CallError::Denied(what) => format!("The cluster denied permission for an hour ({what})"),
        };
        self.calls.failed(now);
        if outage.since.is_some() && outage.total(now) >= UNREACHABLE_MAX {
            return Some(ByHandStep::record(if has_begun {
                unknown(run, format!("{lasted}; whether the command ran to its end is not known."))
            } else {
                unbegun(run, Reason::UNREACHABLE, format!("{lasted}; the command has not begun."))
            }));
        }
        let then = outage.set(true, now);
        (then != outage).then(|| ByHandStep::record(with_outage(run, then)))
    }

    /// Processes that the runner has answered. Returns the record of an outage's end.
    fn answered(&mut self, app_state: &AppState, now: Timestamp) -> Option<ByHandStep> {
        self.calls.failures = 0;
        let run = unfinished(app_state, self.number)?;
        let (outage, then) = (run.outage(), run.outage().set(false, now));
        (then != outage).then(|| ByHandStep::record(with_outage(run, then)))
    }
}

/// Returns the run of this number.
pub(super) fn id(app_state: &AppState, number: RunNumber) -> ReleaseRun {
    ReleaseRun::by_hand(&app_state.app.id, app_state.app.uid, number)
}

fn unfinished(app_state: &AppState, number: RunNumber) -> Option<&Run> {
    app_state.runs.unfinished.as_deref().filter(|run| run.number == number)
}

fn with_outage(run: &Run, outage: Outage) -> Run {
    run.moved(if run.may_have_begun() { RunState::Running { outage } } else { RunState::Preparing { outage } })
}

/// Returns the time since which the run is to end: a person has asked for it, or its deadline has passed. `None` while it may
/// go on, and while an outage lasts.
fn ending_since(run: &Run, now: Timestamp) -> Option<Timestamp> {
    let overdue = Some(run.ends_by(now)).filter(|deadline| *deadline <= now && run.outage().since.is_none());
    run.cancelled.as_ref().map(|cancel| cancel.at).into_iter().chain(overdue).min()
}

/// Returns the end of a run that was told to end.
fn ended_early(run: &Run, exit_code: Option<i32>, began: bool, now: Timestamp) -> Run {
    let when = if began { "" } else { " before it began" };
    if let Some(cancel) = &run.cancelled {
        let left = if began { " What the command has changed so far stays as it is." } else { "" };
        let message = format!("{} cancelled the run{when}.{left}", cancel.by);
        let reason = Reason::new(Reason::CANCELLED);
        return run.moved(RunState::Cancelled(RunFailure { began, exit_code, reason, message }));
    }
    if run.ends_by(now) <= now {
        let (what, seconds) = (if began { "end" } else { "begin" }, run.deadline.as_secs());
        let message = format!("The command did not {what} within {seconds} s, and was ended.");
        let reason = Reason::new(Reason::COMMAND_DEADLINE);
        return run.moved(RunState::Failed(RunFailure { began, exit_code, reason, message }));
    }
    let message = format!("The run was ended{when}, and not by this service.");
    let reason = Reason::new(Reason::CANCELLED);
    run.moved(RunState::Failed(RunFailure { began, exit_code, reason, message }))
}

fn failed(run: &Run, failure: ReleaseFailure, now: Timestamp) -> Run {
    let ReleaseFailure { began, reason, message, exit_code, .. } = failure;
    let message = worded(&sentence(&message));
    match reason.as_str() {
        Reason::CANCELLED => ended_early(run, exit_code, began, now),
        Reason::RELEASE_UNKNOWN => unknown(run, message),
        code => {
            let code = match code {
                Reason::RELEASE_FAILED => Reason::COMMAND_FAILED,
                Reason::RELEASE_DEADLINE => Reason::COMMAND_DEADLINE,
                platforms => platforms,
            };
            run.moved(RunState::Failed(RunFailure { began, exit_code, reason: Reason::new(code), message }))
        }
    }
}

fn unbegun(run: &Run, reason: &str, message: String) -> Run {
    let message = worded(&message);
    run.moved(RunState::Failed(RunFailure { began: false, exit_code: None, reason: Reason::new(reason), message }))
}

fn unknown(run: &Run, message: String) -> Run {
    let (reason, message) = (Reason::new(Reason::COMMAND_UNKNOWN), worded(&message));
    run.moved(RunState::Unknown(RunFailure { began: true, exit_code: None, reason, message }))
}

/// Returns a runner's sentence as one of another command: runners speak of release commands, which most runs are.
pub(crate) fn worded(message: &str) -> String {
    message.replace("release command", "command")
}
