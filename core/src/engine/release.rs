//! Release commands: each deploy's is run once, before its rollout, and at most one of the app at a time.
//!
//! A run is made ready; then the store records that the command may have begun; then the run is started. A driver that
//! loads the app later finds by the record which of the calls may have been made. A run whose deploy has ended before it,
//! as by a rollback or a cancel, is ended, and occupies the app's next release command until its end was observed.

use super::{
    CallError, Effect, deadline, evidence,
    rollout::UNREACHABLE_MAX,
    run_calls::{OBSERVE_INTERVAL, RELOAD_INTERVAL, RunCalls},
    sentence, spec,
};
use crate::{
    deploy::{Deploy, Evidence, Outage, Reason, ReleaseMark, Revision, State as Stored},
    image::Digest,
    ledger::AppState,
    ports::{ReleaseFailure, ReleaseRun, ReleaseSpec, ReleaseState},
    time::Timestamp,
};

/// A driver's knowledge of one run. A restart may lose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseProgress {
    /// The revision whose command is run.
    pub revision: Revision,
    calls: RunCalls,
}

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Call the runner.
    Call(Box<Effect>),
    /// Ask again at this time.
    At(Timestamp),
    /// Record the deploy's next state.
    Record(Box<Deploy>),
    /// Record the deploy's next state; nothing of the run goes on.
    Ended(Box<Deploy>),
    /// The command ran to its end: roll out this deploy.
    RollOut(Box<Deploy>),
    /// Nothing of a run goes on whose deploy has ended before it.
    Over,
    /// Load the app.
    Load,
}

impl ReleaseStep {
    fn call(effect: Effect) -> Self {
        Self::Call(Box::new(effect))
    }
}

impl ReleaseProgress {
    /// Returns the knowledge of a run at its begin.
    pub const fn new(revision: Revision, now: Timestamp) -> Self {
        Self { revision, calls: RunCalls::new(now) }
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.calls.clock_set(was, is);
    }

    /// Processes a hint of the runner.
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.calls.changed(now);
    }

    /// Returns the next step of a run; the app was loaded at `read_at`.
    pub fn next_step(&self, app_state: &AppState, read_at: Timestamp, now: Timestamp) -> ReleaseStep {
        let run = run(app_state, self.revision);
        let Some((deploy, since, command, outage)) = entry(app_state, self.revision) else {
            return match () {
                () if self.calls.call_at > now => ReleaseStep::At(self.calls.call_at),
                () if self.calls.cancelled.is_some() => ReleaseStep::call(Effect::ObserveRelease(run)),
                () => ReleaseStep::call(Effect::CancelRelease(run)),
            };
        };
        let deadline = deadline(app_state, since, outage, now);
        let is_overdue = deadline <= now && outage.since.is_none();
        let has_begun = deploy.release.is_some();
        let is_to_be_ended = is_overdue && self.calls.cancelled.is_none();
        // It is ended by the policy as it is now.
        if now.since(read_at) >= RELOAD_INTERVAL || is_to_be_ended && read_at < now {
            return ReleaseStep::Load;
        }
        if is_overdue && !has_begun {
            return ReleaseStep::Record(Box::new(overdue(app_state, deploy, false, None)));
        }
        if is_overdue && self.calls.should_have_ended(deadline, now) {
            let message = "The release command did not end within its deadline, was told to end, and is not seen to have ended, \
                           as where its machine is lost. Look at its run on the platform: the next release command begins \
                           once it is gone.";
            return ReleaseStep::Record(Box::new(unknown(deploy, message.to_owned())));
        }
        if self.calls.call_at > now && (!is_to_be_ended || self.calls.failures > 0) {
            return ReleaseStep::At(self.calls.call_at);
        }
        if !has_begun {
            let Some(image) = deploy.wanted_image() else { return ReleaseStep::Load };
            let target = app_state.app.target.clone();
            let configuration = spec::configuration(app_state, deploy);
            let spec = ReleaseSpec { configuration, ..ReleaseSpec::new(run, target, image, command.to_vec()) };
            return ReleaseStep::call(Effect::PrepareRelease(Box::new(spec)));
        }
        ReleaseStep::call(match (is_to_be_ended, self.calls.is_under_way()) {
            (true, _) if self.calls.is_seen(now) => Effect::CancelRelease(run),
            (true, _) | (false, true) => Effect::ObserveRelease(run),
            (false, false) => Effect::StartRelease(run),
        })
    }

    /// Processes the answer to a start.
    pub(super) fn started(
        &mut self,
        app_state: &AppState,
        answer: Result<(), CallError>,
        now: Timestamp,
    ) -> Option<ReleaseStep> {
        if let Err(error) = answer {
            return self.failed(app_state, error, now);
        }
        self.calls.started(now);
        self.answered(app_state, now)
    }

    /// Processes the answer to a cancel.
    pub(super) fn cancel_answered(
        &mut self,
        app_state: &AppState,
        answer: Result<(), CallError>,
        now: Timestamp,
    ) -> Option<ReleaseStep> {
        if let Err(error) = answer {
            // A run that cannot be told to end may have ended: it is observed next.
            let is_refused = matches!(error, CallError::Refused(_)) && entry(app_state, self.revision).is_none();
            self.calls.cancelled = self.calls.cancelled.or(is_refused.then_some(now));
            return self.failed(app_state, error, now);
        }
        self.calls.cancelled(now);
        self.answered(app_state, now)
    }

    /// Processes an observation, or the answer of making ready.
    pub(super) fn observed(
        &mut self,
        app_state: &AppState,
        seen: Result<ReleaseState, CallError>,
        now: Timestamp,
    ) -> Option<ReleaseStep> {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return self.failed(app_state, error, now),
        };
        self.calls.observed(&seen, now);
        if let Some(back) = self.answered(app_state, now) {
            self.calls.call_at = now;
            return Some(back);
        }
        let Some((deploy, since, _, outage)) = entry(app_state, self.revision) else {
            let is_over = seen.is_ended() || seen == ReleaseState::Unknown;
            return is_over.then_some(ReleaseStep::Over);
        };
        let has_begun = deploy.release.is_some();
        match seen {
            ReleaseState::Preparing => None,
            // The start never arrived.
            ReleaseState::Prepared if has_begun => {
                (self.calls.started, self.calls.seen_at) = (false, Some(now));
                None
            }
            ReleaseState::Prepared => {
                self.calls.call_at = now;
                let begun = Deploy { release: Some(ReleaseMark::MayHaveRun), ..deploy.moved(deploy.state.clone()) };
                Some(ReleaseStep::Record(Box::new(begun)))
            }
            ReleaseState::Running | ReleaseState::Succeeded { .. } if !has_begun => {
                if !self.calls.is_unrecorded() {
                    return Some(ReleaseStep::Load);
                }
                let message = "The release command has begun, and this service did not start it: whether it ran to its end, and \
                               with this version, is not known.";
                let ended = Deploy { release: Some(ReleaseMark::MayHaveRun), ..unknown(deploy, message.to_owned()) };
                Some(ReleaseStep::Record(Box::new(ended)))
            }
            ReleaseState::Running => {
                self.calls.seen_at = Some(now);
                None
            }
            ReleaseState::Succeeded { digest } => Some(ReleaseStep::RollOut(Box::new(done(deploy, digest)))),
            ReleaseState::Failed(failure) => {
                // This driver ends its own deploy's run for nothing else, and one before it may have.
                let was_overdue = self.calls.cancelled.is_some() || deadline(app_state, since, outage, now) <= now;
                let ended = if was_overdue && failure.reason.as_str() == Reason::CANCELLED {
                    overdue(app_state, deploy, failure.began, evidence_of(failure.exit_code, failure.log))
                } else {
                    failed(deploy, failure)
                };
                Some(ReleaseStep::Ended(Box::new(ended)))
            }
            ReleaseState::Unknown if has_begun => {
                let message = "The platform knows nothing of the release command's run any more: whether it ran to its end \
                               is not known, and it is not run again by itself. Look at what it was to change before you \
                               deploy again.";
                Some(ReleaseStep::Ended(Box::new(unknown(deploy, message.to_owned()))))
            }
            ReleaseState::Unknown => None,
        }
    }

    /// Processes a failed call.
    fn failed(&mut self, app_state: &AppState, error: CallError, now: Timestamp) -> Option<ReleaseStep> {
        let entry = entry(app_state, self.revision);
        // A deploy that waits for the end of an abandoned run waits for the platform as well.
        let waiting = app_state.releasing().and_then(|deploy| self::entry(app_state, deploy.revision));
        let lasted = match error {
            CallError::Refused(message) => match entry {
                Some((deploy, ..)) => {
                    let ended = if deploy.release.is_some() {
                        unknown(deploy, format!("{} Whether the release command ran is not known.", sentence(&message)))
                    } else {
                        let reason = Reason::new(Reason::RELEASE_FAILED);
                        failed(
                            deploy,
                            ReleaseFailure { began: false, reason, message, exit_code: None, log: Vec::new() },
                        )
                    };
                    return Some(ReleaseStep::Record(Box::new(ended)));
                }
                // A refusal says nothing of what runs, and another command must not begin beside it.
                None => {
                    let run = self.revision;
                    format!(
                        "Whether the release command of revision {run} has ended could not be found out for an hour ({message})"
                    )
                }
            },
            CallError::Unavailable => "The cluster could not be reached for an hour".to_owned(),
            CallError::Denied(what) => format!("The cluster denied permission for an hour ({what})"),
        };
        self.calls.failed(now);
        let (deploy, since, command, outage) = entry.or(waiting)?;
        if outage.since.is_some() && outage.total(now) >= UNREACHABLE_MAX {
            let ended = if deploy.release.is_some() {
                unknown(deploy, format!("{lasted}; whether the release command ran to its end is not known."))
            } else {
                let reason = Reason::new(Reason::UNREACHABLE);
                let message = format!("{lasted}; the release command has not begun, and nothing was changed.");
                deploy.moved(Stored::Failed { reason, message, evidence: None })
            };
            return Some(ReleaseStep::Record(Box::new(ended)));
        }
        let then = outage.set(true, now);
        (then != outage).then(|| ReleaseStep::Record(Box::new(with_outage(deploy, since, command, then))))
    }

    /// Processes that the runner has answered. Returns the record of an outage's end.
    fn answered(&mut self, app_state: &AppState, now: Timestamp) -> Option<ReleaseStep> {
        self.calls.failures = 0;
        let (deploy, since, command, outage) = entry(app_state, app_state.releasing()?.revision)?;
        let then = outage.set(false, now);
        (then != outage).then(|| ReleaseStep::Record(Box::new(with_outage(deploy, since, command, then))))
    }
}

/// Returns the run of this revision's command.
pub(super) fn run(app_state: &AppState, revision: Revision) -> ReleaseRun {
    ReleaseRun::new(&app_state.app.id, app_state.app.uid, revision)
}

fn entry(app_state: &AppState, revision: Revision) -> Option<(&Deploy, Timestamp, &[String], Outage)> {
    let deploy = app_state.unfinished(revision)?;
    let Stored::Releasing { since, command, outage } = &deploy.state else { return None };
    Some((deploy, *since, command, *outage))
}

fn with_outage(deploy: &Deploy, since: Timestamp, command: &[String], outage: Outage) -> Deploy {
    deploy.moved(Stored::Releasing { since, command: command.to_vec(), outage })
}

fn done(deploy: &Deploy, digest: Option<Digest>) -> Deploy {
    Deploy { release: Some(ReleaseMark::Done), digest: deploy.digest_beside(digest), ..deploy.clone() }
}

fn failed(deploy: &Deploy, failure: ReleaseFailure) -> Deploy {
    let ReleaseFailure { began, reason, message, exit_code, log } = failure;
    let evidence = evidence_of(exit_code, log);
    let message = evidence::with_platforms(deploy, &message, evidence.as_ref());
    let message = format!("{} Nothing was rolled out.", sentence(&message));
    let ended = deploy.moved(Stored::Failed { reason, message, evidence });
    let release = began.then(|| deploy.release.unwrap_or(ReleaseMark::MayHaveRun));
    Deploy { release, ..ended }
}

/// Returns the time at which a release command fails unless it is over.
fn deadline(app_state: &AppState, since: Timestamp, outage: Outage, now: Timestamp) -> Timestamp {
    deadline::of_release(&app_state.app.policy, since, outage.total(now))
}

/// Returns the end of a deploy that waits for the end of an abandoned run, if it has waited for too long.
pub(super) fn waited(
    app_state: &AppState,
    deploy: &Deploy,
    run: Revision,
    now: Timestamp,
) -> Result<Deploy, Timestamp> {
    let Stored::Releasing { since, outage, .. } = deploy.state else { return Err(now) };
    let deadline = deadline(app_state, since, outage, now);
    if deadline > now || outage.since.is_some() {
        return Err(deadline.max(now.after(OBSERVE_INTERVAL)));
    }
    let message = format!(
        "The release command has not begun: that of revision {run} was told to end, and is not seen to have ended, as where \
         its machine is lost. Look at its run on the platform, then deploy again. Nothing was rolled out."
    );
    Ok(deploy.moved(Stored::Failed { reason: Reason::new(Reason::RELEASE_DEADLINE), message, evidence: None }))
}

fn overdue(app_state: &AppState, deploy: &Deploy, began: bool, evidence: Option<Evidence>) -> Deploy {
    let seconds = app_state.app.policy.release_deadline.as_secs_f64();
    let what = if began { "end" } else { "begin" };
    let message =
        format!("The release command did not {what} within {seconds} s, and was ended. Nothing was rolled out.");
    let ended = deploy.moved(Stored::Failed { reason: Reason::new(Reason::RELEASE_DEADLINE), message, evidence });
    Deploy { release: began.then_some(ReleaseMark::MayHaveRun), ..ended }
}

fn unknown(deploy: &Deploy, message: String) -> Deploy {
    deploy.moved(Stored::Failed { reason: Reason::new(Reason::RELEASE_UNKNOWN), message, evidence: None })
}

/// Returns what a command left: how it ended, and its last lines; `None` if that is nothing.
fn evidence_of(exit_code: Option<i32>, log: Vec<String>) -> Option<Evidence> {
    let state = exit_code.map(|code| format!("terminated: exit code {code}"));
    (state.is_some() || !log.is_empty()).then(|| Evidence { state, log, ..Evidence::default() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::{NOW, git_state, revision};

    #[test]
    fn abandoned_run_is_over_once_that_was_observed_and_not_when_a_call_is_refused() {
        let state = AppState { release_runs: vec![revision(2)], ..git_state(&[]) };
        let mut progress = ReleaseProgress::new(revision(2), NOW);
        let next = |progress: &ReleaseProgress, now| {
            let step = progress.next_step(&state, NOW, now);
            let ReleaseStep::Call(call) = step else { panic!("{step:?}") };
            *call
        };
        let refused = || CallError::Refused("The Job is not rollhook's.".to_owned());
        let run = run(&state, revision(2));
        assert_eq!(next(&progress, NOW), Effect::CancelRelease(run.clone()));
        assert_eq!(progress.cancel_answered(&state, Err(refused()), NOW), None);
        let mut now = NOW;
        for _ in 0..3 {
            now = now.after(Duration::from_secs(3600));
            assert_eq!(next(&progress, now), Effect::ObserveRelease(run.clone()));
            assert_eq!(progress.observed(&state, Err(refused()), now), None);
        }
        now = now.after(Duration::from_secs(3600));
        assert_eq!(progress.observed(&state, Ok(ReleaseState::Running), now), None);
        now = now.after(Duration::from_secs(3600));
        assert_eq!(next(&progress, now), Effect::CancelRelease(run), "it may be ended by now");
        assert_eq!(progress.observed(&state, Ok(ReleaseState::Unknown), now), Some(ReleaseStep::Over));
    }
}
