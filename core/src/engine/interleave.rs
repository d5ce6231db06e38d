//! Builds and polling, interleaved with the waits of a rollout.

use super::{Effect, State, build_queue::BuildStep, polling, record};
use crate::time::Timestamp;

/// Returns the build's effect if the rollout only waits.
pub(super) fn build(state: &State, effect: Effect, now: Timestamp) -> Effect {
    let (Effect::Wait(until) | Effect::Watch(_, until)) = &effect else { return effect };
    let until = *until;
    match (state.build_queue.next_step(&state.app_state, state.read_at, now), effect) {
        (BuildStep::Record(changes), _) => record(state, changes, Vec::new()),
        (BuildStep::Call(call), _) => *call,
        (BuildStep::At(at), Effect::Watch(spec, _)) => Effect::Watch(spec, until.min(at)),
        (BuildStep::At(at), _) => Effect::Wait(until.min(at)),
        (BuildStep::Idle, wait) => wait,
    }
}

/// Returns the effect of polling if both rollout and build only wait.
pub(super) fn poll(state: &mut State, effect: Effect, now: Timestamp) -> Effect {
    let (Effect::Wait(until) | Effect::Watch(_, until)) = &effect else { return effect };
    let until = *until;
    match (state.poll.next_step(&state.app_state, now), effect) {
        (polling::PollStep::Idle, wait) => wait,
        (polling::PollStep::At(at), Effect::Watch(spec, _)) => Effect::Watch(spec, until.min(at)),
        (polling::PollStep::At(at), _) => Effect::Wait(until.min(at)),
        (polling::PollStep::Reload, _) => Effect::Load,
        (polling::PollStep::Load, _) => {
            state.poll.load_started();
            Effect::Load
        }
        (polling::PollStep::ReadBranch(source), _) => Effect::ReadHead(source),
        (polling::PollStep::Detect(finding), _) => Effect::Detect(finding),
    }
}
