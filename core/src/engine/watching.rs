//! The watch over a version after its deploy has succeeded: which checks are measured next, and what follows from them.
//!
//! The app is at rest meanwhile: whatever begins ends the watch, as the ledger says. A check that fails revokes the
//! verification of the deploy, in one write with the decision whether the version before is restored. What was measured is
//! stored round by round.

use std::sync::Arc;

use super::{
    Effect, State, interleave, record_all, released_remark,
    rounds::{self, NextRound, Version},
    verifying::{self, Answer, NO_VERIFIER, RoundOf},
};
use crate::{
    app::OnFailure,
    check::{Check, CheckMode, Verdict},
    deploy::{CheckFail, CheckResult, Deploy, Watch, WatchEnd, WatchRestore},
    ledger::{AppState, Record},
    ports::CheckRun,
    time::Timestamp,
};

/// The longest time until the driver of a watched app knows what another replica has accepted, if no hint comes.
const RELOAD_INTERVAL: std::time::Duration = std::time::Duration::from_secs(15);

/// Returns the wait of an app whose only work is its watch; `None` if it has none.
pub(super) fn idle(state: &State, now: Timestamp) -> Option<Effect> {
    state.app_state.watch()?;
    let reload_at = state.read_at.after(RELOAD_INTERVAL);
    Some(if reload_at <= now { Effect::Load } else { Effect::Wait(reload_at) })
}

/// Returns the watch whose measurements belong to the present state of an app.
pub(super) fn of_present(app_state: &AppState) -> Option<RoundOf> {
    let watch = app_state.watch()?;
    Some(RoundOf { revision: watch.revision, since: watch.since(), is_watch: true })
}

/// Returns the effect of the measurements that are due if the app only waits.
pub(super) fn interleaved(state: &State, effect: Effect, now: Timestamp) -> Effect {
    let app_state = &state.app_state;
    let Some(watch) = app_state.watch().filter(|_| matches!(effect, Effect::Wait(_))) else { return effect };
    if verifying::cannot_measure(state) {
        return record(state, watch.ended(WatchEnd::Early { why: NO_VERIFIER.to_owned() }, now));
    }
    let Some((of, deploy)) = of_present(app_state).zip(app_state.current.as_ref()) else { return effect };
    // The instances have served since the rollout had settled.
    let since = deploy.verification.as_ref().map_or(watch.since(), |verification| verification.since);
    let version = Version { of, deploy, rollout_began: watch.rollout_began, since };
    match rounds::next(
        state,
        &version,
        |check| due_at(state, watch, check, now),
        |check| run(watch, deploy, check),
        now,
    ) {
        NextRound::Due(round) => Effect::Measure(round),
        NextRound::At(at) => interleave::no_longer_than(effect, at),
        NextRound::Over if watch.until <= now => record(state, watch.ended(WatchEnd::Over, now)),
        NextRound::UnderWay | NextRound::Over => effect,
    }
}

/// Returns the run of a check's next measurement within the watch that is under way.
pub(super) fn next_run(app_state: &AppState, check: (usize, &Check)) -> Option<CheckRun> {
    Some(run(app_state.watch()?, app_state.current.as_ref()?, check))
}

/// Returns the run of a check's next measurement within a watch: behind all of the verification before it,
/// also of a check that was removed meanwhile and is set again.
fn run(watch: &Watch, deploy: &Deploy, (place, check): (usize, &Check)) -> CheckRun {
    let before = deploy.verification.as_ref().map_or(0, |verification| verification.counted());
    let measurement = before.saturating_add(watch.measured.count_of(check)).saturating_add(2);
    CheckRun::new(watch.revision, measurement, check.discriminator(place))
}

/// Returns when a check is measured next; `None` if it was measured to the end.
fn due_at(state: &State, watch: &Watch, check: &Check, now: Timestamp) -> Option<Timestamp> {
    let so_far = watch.measured.of(check);
    let last = so_far.and_then(CheckResult::last).map(|last| last.at);
    let due = match last {
        // Its last measurement of the deploy is a moment ago.
        None => watch.since().after(check.every).min(watch.until),
        // It was made before the clock was set back.
        Some(last) if last > now => now,
        Some(last) if last >= watch.until => return None,
        Some(last) => last.after(check.every).min(watch.until),
    };
    let is_ahead = last.is_some_and(|last| last > now);
    Some(state.verify.pauses_until(check, is_ahead).map_or(due, |until| due.max(until)))
}

/// Processes the answers of a round. Returns the effect that has to come next, if they demand one.
pub(super) fn measured(state: &mut State, of: RoundOf, answers: Vec<Answer>, now: Timestamp) -> Option<Effect> {
    if of_present(&state.app_state) != Some(of) {
        return None;
    }
    let mut watch = state.app_state.watch()?.moved();
    let policy = &state.app_state.app.policy;
    let is_changed = state.verify.take_in((&mut watch.measured, &policy.checks), of, answers, now);
    if let Some(fail) = decide(&mut watch, &policy.checks, now) {
        return Some(revoke(state, &watch, fail, now));
    }
    if watch.until <= now {
        return Some(record(state, ended(&watch, WatchEnd::Over, now)));
    }
    is_changed.then(|| record(state, watch))
}

/// Writes down the verdicts that there are. Returns the fail of a check that decides, if there is one.
fn decide(watch: &mut Watch, checks: &[Check], now: Timestamp) -> Option<CheckFail> {
    watch.measured.follow(checks);
    let mut decisive = None;
    for (result, check) in watch.measured.checks.iter_mut().zip(checks) {
        let has_failed = result.failed >= check.failures;
        result.verdict = has_failed.then_some(Verdict::Fail);
        if !has_failed {
            continue;
        }
        let fail = CheckFail { at: now, check: check.name.clone(), message: verifying::report(check, result).message };
        match check.mode {
            CheckMode::Enforce => decisive = decisive.or(Some(fail)),
            CheckMode::Observe => watch.would_restore = watch.would_restore.take().or(Some(fail)),
        }
    }
    decisive
}

/// Returns the end of a watch that was measured in the same step.
fn ended(measured: &Watch, end: WatchEnd, now: Timestamp) -> Watch {
    Watch { step: measured.step, ..measured.ended(end, now) }
}

/// Revokes the verification of the deploy that is watched, and decides whether the version before it is restored.
fn revoke(state: &State, watch: &Watch, mut fail: CheckFail, now: Timestamp) -> Effect {
    let app_state = &state.app_state;
    let nothing = |why: &str| WatchRestore::Nothing { why: why.to_owned() };
    let is_same = |good: &Arc<Deploy>| app_state.current.as_ref().is_some_and(|current| current.runs_as(good));
    let leaves = app_state.app.policy.on_failure == OnFailure::Leave;
    let restore = match &app_state.good_before {
        Some(_) | None if leaves => nothing("the policy on-failure is leave"),
        None => nothing("there is no earlier version that succeeded"),
        Some(good) if is_same(good) => nothing("the version before is the same"),
        Some(good) => {
            fail.message = released_remark(app_state, watch.revision, good, &fail.message);
            WatchRestore::Owed
        }
    };
    record(state, ended(watch, WatchEnd::Revoked { fail, restore }, now))
}

fn record(state: &State, watch: Watch) -> Effect {
    record_all(state, Record { watch: Some(Box::new(watch)), ..Record::default() })
}
