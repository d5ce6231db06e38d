//! What goes on beside a rollout, while that gives nothing to do but wait.

use super::{Effect, State, record};
use crate::{
    decide::{lane::Turn, poll},
    time::Timestamp,
};

/// A build goes on while the cluster gives nothing to do but wait.
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
    match (state.lane.turn(&state.view, now), effect) {
        (Turn::Record(changes), _) => record(state, changes, Vec::new()),
        (Turn::Call(call), _) => *call,
        (Turn::At(at), Effect::Watch(order, _)) => Effect::Watch(order, until.min(at)),
        (Turn::At(at), _) => Effect::Wait(until.min(at)),
        (Turn::Idle, wait) => wait,
    }
}

/// The source is looked at while neither the cluster nor the builder gives anything to do but wait.
pub(super) fn poll(state: &mut State, effect: Effect, now: Timestamp) -> Effect {
    let (Effect::Wait(until) | Effect::Watch(_, until)) = &effect else { return effect };
    let until = *until;
    match (state.poll.turn(&state.view, now), effect) {
        (poll::Turn::Idle, wait) => wait,
        (poll::Turn::At(at), Effect::Watch(order, _)) => Effect::Watch(order, until.min(at)),
        (poll::Turn::At(at), _) => Effect::Wait(until.min(at)),
        (poll::Turn::Refresh, _) => Effect::Load,
        (poll::Turn::Load, _) => {
            state.poll.reading();
            Effect::Load
        }
        (poll::Turn::Ask(source), _) => Effect::ReadHead(source),
        (poll::Turn::Detect(finding), _) => Effect::Detect(finding),
    }
}
