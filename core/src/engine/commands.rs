//! The effects of commands that are run: those of deploys, and those of people.

use super::{
    CallError, Effect, State,
    by_hand::ByHandStep,
    interleave, record, record_all,
    release::{self, ReleaseProgress, ReleaseStep},
    release_turns, rolling_out, rollout, superseded,
};
use crate::{
    deploy::{Deploy, State as Stored},
    ledger::Record,
    ports::{ReleaseState, RunKind},
    time::Timestamp,
};

/// Processes an observation of a run. Returns the effect that has to come next, if it demands one.
pub(super) fn observed(
    state: &mut State,
    of: RunKind,
    seen: Result<ReleaseState, CallError>,
    now: Timestamp,
) -> Option<Effect> {
    if of.is_by_hand() {
        let step = state.by_hand.as_mut()?.observed(&state.app_state, seen, now)?;
        return Some(by_hand_effect(state, step));
    }
    let step = state.release.as_mut()?.observed(&state.app_state, seen, now)?;
    Some(release_effect(state, step, now))
}

/// Processes the answer to a start, in the same way.
pub(super) fn started(state: &mut State, of: RunKind, answer: Result<(), CallError>, now: Timestamp) -> Option<Effect> {
    if of.is_by_hand() {
        let step = state.by_hand.as_mut()?.started(&state.app_state, answer, now)?;
        return Some(by_hand_effect(state, step));
    }
    let step = state.release.as_mut()?.started(&state.app_state, answer, now)?;
    Some(release_effect(state, step, now))
}

/// Processes the answer to a cancel, in the same way.
pub(super) fn cancelled(
    state: &mut State,
    of: RunKind,
    answer: Result<(), CallError>,
    now: Timestamp,
) -> Option<Effect> {
    if of.is_by_hand() {
        let step = state.by_hand.as_mut()?.cancel_answered(&state.app_state, answer, now)?;
        return Some(by_hand_effect(state, step));
    }
    let step = state.release.as_mut()?.cancel_answered(&state.app_state, answer, now)?;
    Some(release_effect(state, step, now))
}

/// Returns the next effect of a release command. A newer deploy takes its place if it does not get ready to begin; one
/// that has begun is not interrupted.
pub(super) fn releasing_next(state: &mut State, deploy: &Deploy, now: Timestamp) -> Effect {
    let Stored::Releasing { since, .. } = deploy.state else { return Effect::Load };
    let gives_way_at = since.after(rollout::STALL_TIMEOUT);
    let newer = state.app_state.overtaken_by(deploy.revision).filter(|_| !deploy.may_be_releasing());
    // Nothing of its own run was made ready while an abandoned one goes on.
    let abandoned = state.app_state.abandoned_release();
    let release_ended = abandoned.map(|_| deploy.revision);
    let ended = |deploy| record_all(state, Record { changes: vec![deploy], release_ended, ..Record::default() });
    if let Some(by) = newer.filter(|_| gives_way_at <= now) {
        return ended(superseded(&state.app_state, deploy, by));
    }
    if let Some(run) = abandoned {
        return match release::waited(&state.app_state, deploy, run, now) {
            Ok(failed) => ended(failed),
            Err(until) if newer.is_some() => Effect::Wait(until.min(gives_way_at)),
            Err(until) => Effect::Wait(until),
        };
    }
    if let Some(turn) = state.app_state.awaited_turn(deploy.revision) {
        let effect = release_turns::next(state, turn, now);
        return if newer.is_some() { interleave::no_longer_than(effect, gives_way_at) } else { effect };
    }
    let release = state.release.get_or_insert_with(|| ReleaseProgress::new(deploy.revision, now));
    let step = release.next_step(&state.app_state, state.read_at, now);
    let effect = release_effect(state, step, now);
    if newer.is_some() { interleave::no_longer_than(effect, gives_way_at) } else { effect }
}

pub(super) fn release_effect(state: &State, step: ReleaseStep, now: Timestamp) -> Effect {
    let ended = |changes: Vec<Deploy>| {
        let release_ended = state.release.as_ref().map(|release| release.revision);
        record_all(state, Record { changes, release_ended, ..Record::default() })
    };
    match step {
        ReleaseStep::Call(call) => *call,
        ReleaseStep::At(at) => Effect::Wait(at),
        ReleaseStep::Load => Effect::Load,
        ReleaseStep::Over => ended(Vec::new()),
        ReleaseStep::Record(deploy) => record(state, vec![*deploy], Vec::new()),
        ReleaseStep::Ended(deploy) => ended(vec![*deploy]),
        ReleaseStep::RollOut(deploy) => match state.app_state.overtaken_by(deploy.revision) {
            Some(by) => ended(vec![superseded(&state.app_state, &deploy, by)]),
            None => ended(vec![rolling_out(&deploy, now)]),
        },
    }
}

pub(super) fn by_hand_effect(state: &State, step: ByHandStep) -> Effect {
    match step {
        ByHandStep::Call(call) => *call,
        ByHandStep::At(at) => Effect::Wait(at),
        ByHandStep::Load => Effect::Load,
        ByHandStep::Record(run) => record_all(state, Record { run: Some(run), ..Record::default() }),
    }
}
