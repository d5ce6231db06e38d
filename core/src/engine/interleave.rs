//! Commands by hand, abandoned release commands, builds and polling, interleaved with the waits of a rollout.

use super::{
    Effect, State,
    build_queue::BuildStep,
    by_hand::ByHandStep,
    commands::{by_hand_effect, release_effect},
    polling::PollStep,
    record,
    release::ReleaseStep,
};
use crate::time::Timestamp;

/// Returns the effect by which an abandoned release command ends if the rollout only waits.
pub(super) fn release(state: &State, effect: Effect, now: Timestamp) -> Effect {
    let abandoned = state.app_state.abandoned_release();
    let release = state.release.as_ref().filter(|release| Some(release.revision) == abandoned);
    let waits = matches!(effect, Effect::Wait(_) | Effect::Watch(..));
    let Some(release) = release.filter(|_| waits) else { return effect };
    let step = release.next_step(&state.app_state, state.read_at, now);
    if let ReleaseStep::At(at) = step { no_longer_than(effect, at) } else { release_effect(state, step, now) }
}

/// Returns the effect of a run by hand if the rollout only waits.
pub(super) fn by_hand(state: &State, effect: Effect, now: Timestamp) -> Effect {
    let waits = matches!(effect, Effect::Wait(_) | Effect::Watch(..));
    let Some(run) = state.by_hand.as_ref().filter(|_| waits) else { return effect };
    let step = run.next_step(&state.app_state, state.read_at, now);
    if let ByHandStep::At(at) = step { no_longer_than(effect, at) } else { by_hand_effect(state, step) }
}

/// Returns the build's effect if the rollout only waits.
pub(super) fn build(state: &State, effect: Effect, now: Timestamp) -> Effect {
    if !matches!(effect, Effect::Wait(_) | Effect::Watch(..)) {
        return effect;
    }
    match state.build_queue.next_step(&state.app_state, state.read_at, now) {
        BuildStep::Record(changes) => record(state, changes, Vec::new()),
        BuildStep::Call(call) => *call,
        BuildStep::At(at) => no_longer_than(effect, at),
        BuildStep::Idle => effect,
    }
}

/// Returns the effect of polling if both rollout and build only wait.
pub(super) fn poll(state: &mut State, effect: Effect, now: Timestamp) -> Effect {
    if !matches!(effect, Effect::Wait(_) | Effect::Watch(..)) {
        return effect;
    }
    match state.poll.next_step(&state.app_state, now) {
        PollStep::Idle => effect,
        PollStep::At(at) => no_longer_than(effect, at),
        PollStep::Reload => Effect::Load,
        PollStep::Load => {
            state.poll.load_started();
            Effect::Load
        }
        PollStep::Read(source) => Effect::ReadHead(source),
        PollStep::Detect(finding) => Effect::Detect(finding),
    }
}

/// Returns the wait, but until this time at the latest.
pub(super) fn no_longer_than(mut wait: Effect, at: Timestamp) -> Effect {
    if let Effect::Wait(until) | Effect::Watch(_, until) = &mut wait {
        *until = at.min(*until);
    }
    wait
}
