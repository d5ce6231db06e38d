//! The watch over a version after its deploy has succeeded: which checks are measured next, and what follows from them.
//!
//! The app is at rest meanwhile: whatever begins ends the watch, as the ledger says. A check that fails revokes the
//! verification of the deploy, in one write with the decision whether the version before is restored. What was measured is
//! stored round by round.

use std::sync::Arc;

use super::{
    Effect, State, interleave, record_all, released_remark,
    spec::configuration,
    verifying::{self, Answer, NO_VERIFIER, Round, RoundOf},
};
use crate::{
    app::{OnFailure, Target},
    check::{Check, CheckMode, Verdict},
    deploy::{CheckFail, CheckResult, Deploy, Watch, WatchEnd, WatchRestore},
    ledger::{AppState, Record},
    ports::{CheckRun, DeployId, MeasureSpec},
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
    let target = Arc::new(Target { requested: None, ..app_state.app.target.clone() });
    let (mut next, mut due, mut is_waited_for) = (None::<Timestamp>, Vec::new(), false);
    for (place, check) in app_state.app.policy.checks.iter().enumerate() {
        if state.verify.has_to_wait(check) {
            is_waited_for = true;
            continue;
        }
        let Some(at) = due_at(state, watch, check, now) else { continue };
        if at <= now {
            due.push((place, check));
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    let spec = |(place, check)| spec(app_state, (watch, deploy), &target, (place, check), now);
    let specs: Vec<_> = verifying::of_one_round(due).into_iter().filter_map(spec).collect();
    if !specs.is_empty() {
        return Effect::Measure(Box::new(Round { of, specs }));
    }
    match next {
        Some(at) => interleave::no_longer_than(effect, at),
        None if watch.until <= now && !is_waited_for => record(state, watch.ended(WatchEnd::Over, now)),
        None => effect,
    }
}

/// Returns the run of a check's next measurement within the watch that is under way: behind those of the verification before it.
pub(super) fn run(app_state: &AppState, (place, check): (usize, &Check)) -> Option<CheckRun> {
    let (watch, deploy) = (app_state.watch()?, app_state.current.as_ref()?);
    let before = deploy.verification.as_ref().map_or(0, |verification| verification.count_of(check));
    let measurement = before.saturating_add(watch.measured.count_of(check)).saturating_add(2);
    Some(CheckRun::new(watch.revision, measurement, check.discriminator(place)))
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

fn spec(
    app_state: &AppState,
    (watch, deploy): (&Watch, &Deploy),
    target: &Arc<Target>,
    (place, check): (usize, &Check),
    now: Timestamp,
) -> Option<MeasureSpec> {
    // The instances have served since the rollout had settled.
    let since = deploy.verification.as_ref().map_or(watch.since(), |verification| verification.since);
    Some(MeasureSpec {
        app: app_state.app.id.clone(),
        deploy: DeployId { app: app_state.app.uid, revision: watch.revision },
        target: Arc::clone(target),
        image: deploy.pinned_image()?,
        commit: deploy.commit.clone(),
        check: check.clone(),
        secret: None,
        run: run(app_state, (place, check))?,
        configuration: configuration(app_state, deploy).filter(|_| check.kind.is_command()),
        since,
        rollout_began: watch.rollout_began,
        window: check.window(now.since(since) + app_state.app.policy.settle),
        now,
    })
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
    let is_same = |good: &Arc<Deploy>| {
        let current = app_state.current.as_ref();
        current.is_some_and(|current| current.same_image(good) && current.configuration == good.configuration)
    };
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
