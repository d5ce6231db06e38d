//! Builds and polling, interleaved with the waits of a rollout.

use super::{Effect, State, build_queue::Turn, polling, record};
use crate::time::Timestamp;

/// Returns the build's effect if the rollout only waits.
pub(super) fn build(state: &State, effect: Effect, now: Timestamp) -> Effect {
    let until = match &effect {
        Effect::Wait(until) | Effect::Watch(_, until) => *until,
        Effect::Record { .. }
        | Effect::Apply(_)
        | Effect::Observe(_)
        | Effect::Collect(..)
        | Effect::Restore(_)
        | Effect::FindBuild
        | Effect::StartBuild(_)
        | Effect::ObserveBuild(_)
        | Effect::CancelBuild(_)
        | Effect::ReadHead(_)
        | Effect::Detect(..)
        | Effect::Load
        | Effect::Rest => return effect,
    };
    match (state.build_queue.turn(&state.view, state.read_at, now), effect) {
        (Turn::Record(changes), _) => record(state, changes, Vec::new()),
        (Turn::Call(call), _) => *call,
        (Turn::At(at), Effect::Watch(spec, _)) => Effect::Watch(spec, until.min(at)),
        (Turn::At(at), _) => Effect::Wait(until.min(at)),
        (Turn::Idle, wait) => wait,
    }
}

/// Returns the effect of polling if both rollout and build only wait.
pub(super) fn poll(state: &mut State, effect: Effect, now: Timestamp) -> Effect {
    let (Effect::Wait(until) | Effect::Watch(_, until)) = &effect else { return effect };
    let until = *until;
    match (state.poll.turn(&state.view, now), effect) {
        (polling::Turn::Idle, wait) => wait,
        (polling::Turn::At(at), Effect::Watch(spec, _)) => Effect::Watch(spec, until.min(at)),
        (polling::Turn::At(at), _) => Effect::Wait(until.min(at)),
        (polling::Turn::Refresh, _) => Effect::Load,
        (polling::Turn::Load, _) => {
            state.poll.reading();
            Effect::Load
        }
        (polling::Turn::Ask(source), _) => Effect::ReadHead(source),
        (polling::Turn::Detect(finding), _) => Effect::Detect(finding),
    }
}
