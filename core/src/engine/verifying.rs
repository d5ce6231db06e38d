//! The verification of a deploy that has settled: which checks are measured next, and what follows from them.
//!
//! It is a part of the rollout: its instances are watched on, and it ends as a rollout does. What was measured is stored round
//! by round, so that a driver that takes over goes on with it.

use std::time::Duration;

use super::{
    Effect, State, interleave,
    judge::{Judgement, asks, judge},
    record, rolling,
    rollout::{FailureReport, RolloutOutcome, Terms, UNREACHABLE_MAX},
    rounds::{self, NextRound, Version},
    sentence, succeed, watching,
};
use crate::{
    app::Policy,
    check::{Check, CheckMode, CheckName, Measurement, PastValue, Verdict},
    deploy::{CheckResult, Decision, Deploy, Reason, Revision, Ruling, Scale, State as Stored, Trigger, Verification},
    image::Digest,
    ledger::AppState,
    ports::{CheckRun, MeasureSpec, Measured, ReleaseRun},
    time::Timestamp,
};

/// The longest wait for the end of measurements that are under way.
const ROUND_WAIT: Duration = Duration::from_secs(60);
/// The reason why a process without a verifier verifies nothing.
pub(super) const NO_VERIFIER: &str = "this server cannot measure checks";

/// The measurements that are made at the same time, each of another check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The verification that they belong to.
    pub of: RoundOf,
    /// The measurements.
    pub specs: Vec<MeasureSpec>,
}

/// The verification that measurements belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundOf {
    /// The deploy.
    pub revision: Revision,
    /// The begin of its verification.
    pub since: Timestamp,
    /// Whether the deploy has succeeded, and is watched.
    pub is_watch: bool,
}

/// The answer to a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The check as it was measured.
    pub check: Check,
    /// The begin of the measurement.
    pub at: Timestamp,
    /// What was measured; or why this process could not measure, as a sentence.
    pub measured: Result<Measured, String>,
    /// The values of before the rollout, if they were wanted and are known.
    pub before: Vec<PastValue>,
}

/// What the checks say of a deploy so far.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Conclusion {
    /// Some are open.
    Open,
    /// A person's decision is waited for.
    Asked,
    /// A check, or a person, failed the deploy.
    Failed(FailureReport),
    /// No check is waited for any more.
    Done,
}

/// A driver's knowledge of a verification, which a restart may lose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VerifyProgress {
    /// The verification that this is known of.
    of: Option<RoundOf>,
    /// The checks whose measurements are under way, and whether each runs a command.
    under_way: Vec<(CheckName, bool)>,
    /// The checks that this process could not measure, with the first time since it could.
    failing: Vec<(CheckName, Timestamp)>,
    /// The begin of the last measurement of each check, by this process's knowledge of the clock.
    asked: Vec<(CheckName, Timestamp)>,
}

impl VerifyProgress {
    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        let times = self.failing.iter_mut().chain(&mut self.asked);
        times.for_each(|(_, at)| *at = at.reset(was, is));
    }

    /// Forgets what belongs to another verification than that of this state.
    pub(super) fn loaded(&mut self, app_state: &AppState) {
        let of = of_present(app_state).or_else(|| watching::of_present(app_state));
        if self.of != of {
            *self = Self { of, ..Self::default() };
        }
    }

    /// The verification that has measurements under way.
    pub(super) fn under_way(&self) -> Option<RoundOf> {
        self.of.filter(|_| !self.under_way.is_empty())
    }

    /// Takes note that a round has begun.
    pub(super) fn begun(&mut self, round: &Round) {
        let checks = round.specs.iter().map(|spec| &spec.check);
        self.under_way.extend(checks.map(|check| (check.name.clone(), check.kind.is_command())));
    }

    /// Takes note that a round has ended.
    fn ended(&mut self, answers: &[Answer]) {
        self.under_way.retain(|(name, _)| answers.iter().all(|answer| answer.check.name != *name));
    }

    /// Returns whether a measurement of a check has to wait for those under way: all requests of a round are waited for
    /// together, while commands take their own time.
    pub(super) fn has_to_wait(&self, check: &Check) -> bool {
        let waits =
            |(name, is_command): &(CheckName, bool)| *name == check.name || !is_command && !check.kind.is_command();
        self.under_way.iter().any(waits)
    }

    /// Takes the answers of a round into what these checks have measured. Returns whether any of them is a measurement.
    pub(super) fn take_in(
        &mut self,
        (verification, checks): (&mut Verification, &[Check]),
        of: RoundOf,
        answers: Vec<Answer>,
        now: Timestamp,
    ) -> bool {
        // What was measured by settings of before counts no more.
        verification.follow(checks);
        let mut is_changed = false;
        for answer in answers {
            self.note(&answer.check.name, answer.at);
            let fingerprint = answer.check.fingerprint();
            let is_same =
                |result: &&mut CheckResult| result.name == answer.check.name && result.fingerprint == fingerprint;
            let Some(result) = verification.checks.iter_mut().find(is_same) else { continue };
            let Some((measurement, condition)) = taken(self, &answer, now) else { continue };
            if result.before.is_empty() {
                result.before = answer.before;
            }
            // Stored times never decrease, whatever happens to the clock.
            let at = answer.at.max(of.since);
            result.measured(Measurement { at, ..measurement }, condition.unwrap_or_else(|| result.condition.clone()));
            is_changed = true;
        }
        is_changed
    }

    /// Takes note of the begin of a measurement.
    fn note(&mut self, name: &CheckName, at: Timestamp) {
        self.asked.retain(|(asked, _)| asked != name);
        self.asked.push((name.clone(), at));
    }

    /// Returns the time before which a check is not measured again: this process could not measure it, or what it has
    /// measured is stored with a time to come, as the clock was set back.
    pub(super) fn pauses_until(&self, check: &Check, is_ahead: bool) -> Option<Timestamp> {
        let is_failing = self.failing.iter().any(|(name, ..)| *name == check.name);
        let asked = self.asked.iter().find(|(name, _)| *name == check.name && (is_failing || is_ahead));
        asked.map(|(_, at)| at.after(check.every))
    }
}

/// Returns the verification that is under way.
fn of_present(app_state: &AppState) -> Option<RoundOf> {
    let deploy = app_state.rolling_out()?;
    Some(RoundOf { revision: deploy.revision, since: deploy.verification.as_ref()?.since, is_watch: false })
}

/// Returns why a deploy is not verified although its app has checks, as a clause; `None` if it is.
fn skipped(state: &State, deploy: &Deploy) -> Option<&'static str> {
    if deploy.is_restore() {
        Some("a restore waits for no check")
    } else if deploy.trigger == Trigger::Rollback {
        Some("a rollback waits for no check")
    } else if deploy.adopted {
        Some("the entry records what ran")
    } else if deploy.scale == Scale::Stop || deploy.scale.is_keep() && state.app_state.stopped.is_some() {
        Some("the app is stopped")
    } else if state.rollout.as_ref().is_some_and(|rollout| rollout.has_no_instances()) {
        Some("no instance is to run")
    } else if cannot_measure(state) {
        Some(NO_VERIFIER)
    } else {
        None
    }
}

/// Returns whether this process cannot measure one of the checks.
pub(super) fn cannot_measure(state: &State) -> bool {
    let can_be = |check: &Check| if check.kind.is_command() { state.has_runner } else { state.has_verifier };
    !state.app_state.app.policy.checks.iter().all(can_be)
}

/// Returns the runs of commands that may be under way for the deploy that is verified or watched: at most one of each check.
pub fn runs(app_state: &AppState) -> Vec<ReleaseRun> {
    let (app, rolling) = (&app_state.app, app_state.rolling_out());
    let verified = rolling.and_then(|deploy| Some((deploy, deploy.verification.as_deref()?)));
    let next = |(place, check): (usize, &Check)| match verified {
        Some((deploy, verification)) => Some(run(deploy, verification, (place, check))),
        None => watching::next_run(app_state, (place, check)),
    };
    let commands = app.policy.checks.iter().enumerate().filter(|(_, check)| check.kind.is_command());
    commands.filter_map(next).map(|run| ReleaseRun::of_check(&app.id, app.uid, run)).collect()
}

/// Returns the run of a check's next measurement. It is the same one until that is stored.
fn run(deploy: &Deploy, verification: &Verification, (place, check): (usize, &Check)) -> CheckRun {
    CheckRun::new(deploy.revision, verification.count_of(check).saturating_add(1), check.discriminator(place))
}

/// Returns the deploy at the begin of its verification, or with the reason why there is none; `None` if the app has no checks.
pub(super) fn begun(state: &State, deploy: &Deploy, now: Timestamp) -> Option<Deploy> {
    let checks = &state.app_state.app.policy.checks;
    if checks.is_empty() {
        return None;
    }
    let verification = match skipped(state, deploy) {
        Some(reason) => Verification::skipped(reason, now),
        None => Verification::begin(checks, now),
    };
    Some(with(deploy, verification))
}

fn with(deploy: &Deploy, verification: Verification) -> Deploy {
    Deploy { verification: Some(Box::new(verification)), ..deploy.clone() }
}

/// Returns the effect of the measurements that are due if the rollout only waits.
pub(super) fn interleaved(state: &State, effect: Effect, now: Timestamp) -> Effect {
    if !matches!(effect, Effect::Wait(_) | Effect::Watch(..)) {
        return effect;
    }
    let Some((version, verification)) = measurable(state) else { return effect };
    let due_at = |check: &Check| due_at(&state.verify, verification, check, &state.app_state.app.policy, now);
    match rounds::next(state, &version, due_at, |check| run(version.deploy, verification, check), now) {
        NextRound::Due(round) => Effect::Measure(round),
        NextRound::At(at) => interleave::no_longer_than(effect, at),
        NextRound::UnderWay | NextRound::Over => effect,
    }
}

/// Returns the deploy that is verified now. While the cluster cannot be reached, nobody knows what would be measured.
fn measurable(state: &State) -> Option<(Version<'_>, &Verification)> {
    let deploy = state.app_state.rolling_out()?;
    let Stored::RollingOut { outage, since: rollout_began, .. } = deploy.state else { return None };
    let is_watched = state.rollout.as_ref().is_some_and(|rollout| rollout.is_observed());
    let verification = deploy.verification.as_deref().filter(|verification| verification.decision.is_none())?;
    let since = verification.since;
    let of = RoundOf { revision: deploy.revision, since, is_watch: false };
    let is_measurable = is_watched && outage.since.is_none() && !cannot_measure(state);
    is_measurable.then_some((Version { of, deploy, rollout_began, since }, verification))
}

/// Returns when a check is measured next; `None` if it has its verdict.
fn due_at(
    progress: &VerifyProgress,
    verification: &Verification,
    check: &Check,
    policy: &Policy,
    now: Timestamp,
) -> Option<Timestamp> {
    let new = CheckResult::new(check);
    let so_far = verification.of(check).unwrap_or(&new);
    let Judgement::Open(due) = judge(so_far, check, policy.verify_for, verification.since, now) else { return None };
    let is_ahead = so_far.last().is_some_and(|last| last.at > now);
    Some(progress.pauses_until(check, is_ahead).map_or(due, |until| due.max(until)))
}

/// Processes the answers of a round. Returns the effect that has to come next, if they demand one.
pub(super) fn measured(state: &mut State, of: RoundOf, answers: Vec<Answer>, now: Timestamp) -> Option<Effect> {
    if state.verify.under_way() != Some(of) {
        return None;
    }
    state.verify.ended(&answers);
    if of.is_watch {
        return watching::measured(state, of, answers, now);
    }
    let deploy = rolling(&state.app_state).filter(|_| of_present(&state.app_state) == Some(of))?;
    let mut verification = deploy.verification.as_deref().filter(|known| known.decision.is_none())?.clone();
    let policy = state.app_state.app.policy.clone();
    if !state.verify.take_in((&mut verification, &policy.checks), of, answers, now) {
        return None;
    }
    decide(&mut verification, &policy);
    ask(&mut verification, &policy, now);
    let deploy = with(&deploy, verification);
    let is_seen = matches!(deploy.state, Stored::RollingOut { outage, .. } if outage.since.is_none());
    if is_seen
        && conclusion(&deploy, &policy) == Conclusion::Done
        && let Some((digest, note)) = settled(state, &deploy, now)
    {
        return Some(succeed(state, &ended(deploy), digest, note));
    }
    Some(record(state, vec![deploy.moved(deploy.state.clone())], Vec::new()))
}

/// Returns the digest and the remark of a rollout that is settled now.
fn settled(state: &State, deploy: &Deploy, now: Timestamp) -> Option<(Option<Digest>, Option<String>)> {
    let terms = Terms::of(&state.app_state, deploy)?;
    let RolloutOutcome::Settled { digest, note } = state.rollout.as_ref()?.outcome(&terms, now) else { return None };
    Some((digest, note))
}

/// Returns what an answer counts as; `None`: it is no measurement. A process that could not measure for an hour has no
/// verdict, as a provider that cannot be reached; a check that decides nothing is not waited for.
fn taken(progress: &mut VerifyProgress, answer: &Answer, now: Timestamp) -> Option<(Measurement, Option<String>)> {
    let name = &answer.check.name;
    let error = match &answer.measured {
        Ok(measured) => {
            progress.failing.retain(|(failing, ..)| failing != name);
            let condition = Some(measured.condition.clone()).filter(|condition| !condition.is_empty());
            return Some((measured.measurement.clone(), condition));
        }
        Err(error) => error,
    };
    if !progress.failing.iter().any(|(failing, ..)| failing == name) {
        progress.failing.push((name.clone(), now));
    }
    let (_, first) = progress.failing.iter().find(|(failing, _)| failing == name)?;
    let is_given_up = answer.check.mode == CheckMode::Observe || now.since(*first) >= UNREACHABLE_MAX;
    is_given_up
        .then(|| (Measurement::new(now, Verdict::None, &format!("This server could not measure: {error}")), None))
}

/// Writes down the verdicts that there are, by the app's checks of now: one that was removed counts no more. Once a person has
/// decided, they stay as that person saw them.
fn decide(verification: &mut Verification, policy: &Policy) {
    if verification.decision.is_some() {
        return;
    }
    verification.follow(&policy.checks);
    let since = verification.since;
    for (result, check) in verification.checks.iter_mut().zip(&policy.checks) {
        result.verdict = match judge(result, check, policy.verify_for, since, since) {
            Judgement::Decided(verdict) => Some(verdict),
            Judgement::Open(_) if asks(result, check, policy.verify_for, since) => Some(Verdict::None),
            Judgement::Open(_) => None,
        };
    }
}

/// Writes down whether a person's decision is waited for, by the verdicts that were just [written down](decide).
fn ask(verification: &mut Verification, policy: &Policy, now: Timestamp) {
    if verification.decision.is_none() {
        let began = verification.awaited_since.unwrap_or(now.max(verification.since));
        verification.awaited_since = verification.asks(&policy.checks).then_some(began);
    }
}

/// Returns what the verdicts say that were just [written down](decide). A check that decides nothing is measured once at least.
fn conclusion(deploy: &Deploy, policy: &Policy) -> Conclusion {
    let Some(verification) = deploy.verification.as_deref() else { return Conclusion::Done };
    if let Some(decision) = &verification.decision {
        return match decision.ruling {
            Ruling::Pass => Conclusion::Done,
            Ruling::Fail => Conclusion::Failed(rejected(verification, decision)),
        };
    }
    let results = || policy.checks.iter().zip(&verification.checks);
    for (check, result) in results() {
        if result.verdict == Some(Verdict::Fail) && check.mode == CheckMode::Enforce {
            return Conclusion::Failed(report(check, result));
        }
    }
    let is_open = |(check, result): (&Check, &CheckResult)| match check.mode {
        CheckMode::Enforce => result.verdict.is_none(),
        CheckMode::Observe => result.measurements.is_empty(),
    };
    if verification.asks(&policy.checks) {
        Conclusion::Asked
    } else if results().any(is_open) {
        Conclusion::Open
    } else {
        Conclusion::Done
    }
}

/// Returns the report of a deploy that a person has rejected.
fn rejected(verification: &Verification, decision: &Decision) -> FailureReport {
    let gap = verification.gap().unwrap_or_default();
    FailureReport {
        reason: Reason::new(Reason::CHECK_FAILED),
        message: sentence(&format!("{} rejected it, as checks had come to no verdict: {gap}", decision.by)),
        observed: None,
    }
}

pub(super) fn report(check: &Check, result: &CheckResult) -> FailureReport {
    let value =
        result.last().and_then(|last| last.value.as_deref()).map(|value| format!(": {value}")).unwrap_or_default();
    let condition = match result.condition.as_str() {
        "" => String::new(),
        condition => format!(", expected {condition}"),
    };
    let times = match check.failures {
        1 => String::new(),
        count => format!(" {count} times in a row"),
    };
    // The message says the value in its own words, where there is one; that of a command has its output.
    let said = result.last().filter(|last| last.value.is_none() || check.kind.is_command());
    let said = said.map(|last| format!(" {}", sentence(&last.message))).unwrap_or_default();
    FailureReport {
        reason: Reason::new(Reason::CHECK_FAILED),
        message: format!("The check {} failed{times}{value}{condition}.{said}", check.name),
        observed: None,
    }
}

/// Returns the verified deploy with a verdict for each check, as it ends well: those that decide nothing end with the others.
fn ended(deploy: Deploy) -> Deploy {
    let Some(mut verification) = deploy.verification.clone() else { return deploy };
    for result in verification.checks.iter_mut().filter(|result| result.verdict.is_none()) {
        let passes = result.has_passed && result.failed == 0;
        result.verdict = Some(if passes { Verdict::Pass } else { Verdict::None });
    }
    Deploy { verification: Some(verification), ..deploy }
}

/// Returns what the history says of a deploy that succeeds without being verified, or not by all checks, if it was to be.
pub(super) fn remark(deploy: &Deploy) -> Option<String> {
    let verification = deploy.verification.as_ref()?;
    let is_expected = verification.skipped.as_deref().is_none_or(|skipped| skipped == NO_VERIFIER);
    let accepted = verification.decision.as_ref().map(|decision| format!("; {decision}")).unwrap_or_default();
    verification.gap().filter(|_| is_expected).map(|gap| format!("not verified: {gap}{accepted}"))
}

/// The next step of a deploy whose verification is under way, while its rollout has not failed.
pub(super) enum VerifyStep {
    /// The checks go on: look again by this time.
    Wait(Timestamp),
    /// A person's decision is waited for from now on, or no longer.
    Asked(Box<Deploy>),
    /// A check, or a person, failed the deploy.
    Failed(FailureReport),
    /// The deploy ends well once it is settled.
    Done(Box<Deploy>),
}

/// Returns the next step of a deploy's verification; `None` if none has begun.
pub(super) fn next_step(state: &State, deploy: &Deploy, now: Timestamp) -> Option<VerifyStep> {
    let mut verification = deploy.verification.as_deref()?.clone();
    let policy = &state.app_state.app.policy;
    let was_awaited = verification.awaited_since;
    decide(&mut verification, policy);
    ask(&mut verification, policy, now);
    let deploy = with(deploy, verification.clone());
    let conclusion = conclusion(&deploy, policy);
    let is_over = matches!(conclusion, Conclusion::Failed(_) | Conclusion::Done);
    if !is_over && was_awaited != verification.awaited_since {
        return Some(VerifyStep::Asked(Box::new(deploy)));
    }
    Some(match conclusion {
        // A person can decide, whether this process can measure or not.
        Conclusion::Asked => VerifyStep::Wait(now.after(ROUND_WAIT)),
        // The process that began it could measure; this one cannot, and waits for nobody.
        Conclusion::Open if cannot_measure(state) => {
            verification.skipped = Some(NO_VERIFIER.to_owned());
            VerifyStep::Done(Box::new(ended(with(&deploy, verification))))
        }
        Conclusion::Open => VerifyStep::Wait(now.after(ROUND_WAIT)),
        Conclusion::Failed(report) => VerifyStep::Failed(report),
        Conclusion::Done => VerifyStep::Done(Box::new(ended(deploy))),
    })
}

/// Returns the deploy with the verdicts that there are, as it ends without success.
pub(super) fn decided(app_state: &AppState, deploy: Deploy) -> Deploy {
    let Some(mut verification) = deploy.verification.clone() else { return deploy };
    decide(&mut verification, &app_state.app.policy);
    Deploy { verification: Some(verification), ..deploy }
}
