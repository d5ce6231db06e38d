//! Rule 20: what was measured of a version, and nothing else, decides on it.

use std::collections::BTreeMap;

use rollhook_core::{
    app::AppUid,
    check::{Check, CheckMode, CheckName, Verdict, WithoutVerdict},
    deploy::{CheckResult, Deploy, Reason, Revision, Scale, State, Status, Trigger},
    ports::{CheckRun, MeasureSpec, Measured, ReleaseRun, ReleaseState},
};
use rollhook_memory::ReleaseBegun;

use super::{Known, Rules};
use crate::{journal::Journal, verifying::SMOKE};

/// The number of measurements of a deploy's check that passed, failed, and said nothing.
pub(super) type Measurements = BTreeMap<(AppUid, Revision, CheckName), [u32; 3]>;

/// What a check says of a version was measured, as often as it says.
pub(super) fn was_measured(
    revision: Revision,
    result: &CheckResult,
    [passed, failed, _]: [u32; 3],
    when: &str,
    journal: &Journal,
) {
    let (name, fails) = (&result.name, result.failed);
    journal.expect(fails <= failed, || {
        format!("revision {revision}: {fails} fails of {name} count{when}, and {failed} were measured")
    });
    journal.expect(!result.has_passed || passed > 0, || {
        format!("revision {revision}: {name} passed{when}, and no measurement did")
    });
}

impl Rules {
    /// Whether the deploy that is measured is one that is verified.
    pub(crate) fn is_verified(&self, spec: &MeasureSpec) -> bool {
        let known = self.known.get(&spec.deploy.app);
        let entry = known.and_then(|known| known.view.unfinished(spec.deploy.revision));
        entry.is_some_and(|entry| entry.status() == Status::Verifying)
    }

    /// A replica has measured a check, of a deploy that was verified or watched when it began, or neither.
    pub(crate) fn measured(
        &mut self,
        spec: &MeasureSpec,
        (is_verified, is_watched): (bool, bool),
        of: Option<&Measured>,
        journal: &Journal,
    ) {
        let Some(measured) = of else {
            journal.count("checks: a replica could not measure");
            return;
        };
        let verdict = measured.measurement.verdict;
        journal.count(format!("checks: measured, {verdict}"));
        if is_watched {
            self.measured_within_a_watch(spec, verdict, journal);
            return;
        }
        journal.count_if(!is_verified, "checks: a measurement came too late");
        let index = match verdict {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::None => 2,
        };
        // One that begins as its deploy ends counts for nothing.
        let key = (spec.deploy.app, spec.deploy.revision, spec.check.name.clone());
        self.measurements.entry(key).or_default()[index] += u32::from(is_verified);
    }

    /// A replica waits no longer for the answer to a measurement: it has no verdict, if the replica lives to say so.
    pub(crate) fn cut_off(&mut self, spec: &MeasureSpec, is_verified: bool) {
        let key = (spec.deploy.app, spec.deploy.revision, spec.check.name.clone());
        self.measurements.entry(key).or_default()[2] += u32::from(is_verified);
    }

    /// A check's command has begun. `begun` are all of them.
    pub(crate) fn check_begins(&self, begun: &[ReleaseBegun], check: CheckRun, journal: &Journal) {
        let (Some(new), revision) = (begun.last(), check.revision()) else { return };
        journal.count("checks: a command began");
        let times = begun.iter().filter(|other| other.run == new.run).count();
        journal.expect(times == 1, || format!("a command of a check of revision {revision} began {times} times"));
        let known = self.known.get(&new.run.app);
        let Some(entry) = known.and_then(|known| known.history.iter().find(|entry| entry.revision == revision)) else {
            journal.count("rule 16: a command of a check began as its app was deleted");
            return;
        };
        journal
            .expect(entry.verification.is_some(), || format!("revision {revision} runs a check, and is not verified"));
        let image = entry.pinned_image();
        journal
            .expect(image.as_ref() == Some(&new.image), || format!("a check of revision {revision} ran {}", new.image));
    }

    /// A replica was told the state of a check's command. Each run counts once.
    pub(crate) fn check_ended(&mut self, run: &ReleaseRun, state: &ReleaseState, journal: &Journal) {
        let index = match state {
            ReleaseState::Succeeded { .. } => 0,
            ReleaseState::Failed(failure) if failure.exit_code.is_some() => 1,
            ReleaseState::Failed(_) => 2,
            ReleaseState::Preparing | ReleaseState::Prepared | ReleaseState::Running | ReleaseState::Unknown => return,
        };
        if self.ended_checks.insert(run.id) {
            journal.count(format!("checks: a command ended, {}", ["pass", "fail", "none"][index]));
            let revision = run.deploy_id().revision;
            let key = (run.id.app, revision, SMOKE.parse().unwrap());
            let watch = self.known.get(&run.id.app).and_then(|known| known.view.watch());
            let is_watched = watch.is_some_and(|watch| watch.revision == revision);
            let counts = if is_watched { &mut self.watches.measured } else { &mut self.measurements };
            counts.entry(key).or_default()[index] += 1;
        }
    }

    /// People are asked where checks that ask came to no verdict, and decide themselves, on the revision that they named.
    fn decided(&self, known: &Known, old: &Deploy, new: &Deploy, journal: &Journal) {
        let (app, revision) = (&known.view.app, new.revision);
        let of = |deploy: &Deploy| deploy.verification.as_ref().and_then(|all| all.decision.clone());
        let asks = |check: &&Check| check.without_verdict == WithoutVerdict::Ask && check.mode == CheckMode::Enforce;
        if new.awaited_decision().is_some() && old.awaited_decision().is_none() {
            journal.count("checks: a person was asked");
            let is_silent = |check: &Check| {
                let key = (app.uid, revision, check.name.clone());
                self.measurements.get(&key).is_some_and(|[_, _, silent]| *silent >= check.failures)
            };
            let asks = app.policy.checks.iter().filter(asks).any(is_silent);
            journal.expect(asks, || format!("revision {revision} asks, and its checks were not silent"));
        }
        let has_failed = new.verification.as_ref().is_some_and(|all| all.enforced_fail().is_some());
        journal.count_if(old.awaited_decision().is_some() && has_failed, "checks: a fail ended a question");
        let Some(decision) = of(new) else { return };
        if let Some(before) = of(old) {
            journal.expect(before == decision, || format!("revision {revision} was decided on twice"));
            return;
        }
        let name = decision.by.to_string();
        let is_asked_for = self.decisions.contains(&(app.id.clone(), revision, name.clone(), decision.ruling.as_str()));
        journal.expect(is_asked_for, || format!("revision {revision}: {name} never said {}", decision.ruling));
        journal.expect(old.awaited_decision().is_some(), || {
            format!("revision {revision} was decided on, and did not ask")
        });
    }

    /// An entry has changed.
    pub(super) fn verified(&self, known: &Known, old: &Deploy, new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        let was = old.status();
        let policy = &known.view.app.policy;
        let rolled_out = was == Status::RollingOut && new.status() == Status::Succeeded;
        let Some(verification) = new.verification.as_deref() else {
            journal.expect(!rolled_out || policy.checks.is_empty(), || {
                format!("revision {revision} succeeded without its checks")
            });
            return;
        };
        if let Some(reason) = &verification.skipped {
            let is_return = new.trigger == Trigger::Rollback;
            journal.count_if(is_return, "checks: a return was not verified");
            let is_stopped = new.scale == Scale::Stop || known.view.stopped.is_some();
            let is_empty = reason == "no instance is to run";
            journal.count_if(is_empty, "checks: no instance was to run");
            journal.expect(is_return || new.adopted || is_stopped || is_empty, || {
                format!("revision {revision}: {reason}")
            });
            return;
        }
        if was == Status::RollingOut {
            journal.count("checks: a deploy was verified");
            self.settled(known, new, journal);
            let is_new = verification.checks.iter().all(|result| result.failed + result.silent == 0);
            journal.expect(is_new, || format!("revision {revision} begins with measurements"));
        }
        journal.expect(new.trigger != Trigger::Rollback, || format!("revision {revision} goes back, and is verified"));
        let seen = |name: &CheckName| {
            self.measurements.get(&(known.view.app.uid, revision, name.clone())).copied().unwrap_or_default()
        };
        for result in &verification.checks {
            was_measured(revision, result, seen(&result.name), "", journal);
        }
        self.decided(known, old, new, journal);
        let of = |verdict| {
            let enforced = verification.checks.iter().filter(|result| result.mode == CheckMode::Enforce);
            enforced.filter(move |result| result.verdict == Some(verdict))
        };
        match &new.state {
            State::Succeeded { .. } => {
                journal.expect(of(Verdict::Fail).count() == 0, || format!("revision {revision} succeeded over a fail"));
                journal.count_if(of(Verdict::None).count() > 0, "checks: no verdict was accepted");
                journal.count_if(of(Verdict::Pass).count() == verification.checks.len(), "checks: all passed");
                let observed = verification.checks.iter().find(|result| result.mode == CheckMode::Observe);
                let has_failed = observed.is_some_and(|result| result.verdict == Some(Verdict::Fail));
                journal.count_if(has_failed, "checks: one that decides nothing failed");
                for result in of(Verdict::Pass) {
                    journal.expect(seen(&result.name)[0] > 0, || format!("revision {revision} passed without a pass"));
                }
                let decided = policy.checks.iter().filter(|check| check.mode == CheckMode::Enforce).all(|check| {
                    let result = verification.checks.iter().find(|result| result.name == check.name);
                    result.is_some_and(|result| result.verdict.is_some())
                });
                journal.expect(decided, || format!("revision {revision} succeeded before its checks had decided"));
                let asks = policy.checks.iter().filter(|check| check.without_verdict == WithoutVerdict::Ask);
                let is_silent = |check: &Check| of(Verdict::None).any(|result| result.name == check.name);
                let is_accepted = verification.decision.is_some();
                journal.expect(is_accepted || !asks.clone().any(is_silent), || {
                    format!("revision {revision} succeeded without a verdict, and nobody was asked")
                });
                journal.count_if(is_accepted, "checks: a person accepted");
                let was_asked = old.awaited_decision().is_some();
                journal.count_if(was_asked && !is_accepted, "checks: a pass ended a question");
            }
            State::Failed { reason, .. } if reason.as_str() == Reason::CHECK_FAILED && verification.is_rejected() => {
                journal.count("checks: a person rejected");
            }
            State::Failed { reason, .. } if reason.as_str() == Reason::CHECK_FAILED => {
                let is_decided = of(Verdict::Fail).any(|result| {
                    let check = policy.checks.iter().find(|check| check.name == result.name);
                    check.is_some_and(|check| seen(&result.name)[1] >= check.failures)
                });
                journal.expect(is_decided, || format!("revision {revision} failed, and too few measurements did"));
            }
            State::Failed { .. } => journal.count("checks: a deploy that was verified failed by itself"),
            State::Superseded { rollback: true, .. } => journal.count("checks: a rollback ended a verification"),
            State::Superseded { rollback: false, .. } => journal.count("checks: a newer deploy ended a verification"),
            State::Cancelled { .. } => journal.count("checks: a verification was cancelled"),
            State::Queued | State::Building { .. } | State::Releasing { .. } | State::RollingOut { .. } => {}
        }
    }
}
