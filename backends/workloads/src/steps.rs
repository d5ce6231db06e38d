//! Decides which workloads a deploy reaches, from one observation of each.

use std::collections::BTreeSet;

use rollhook_core::ports::{Observation, Phase, RolloutSpec};

use crate::parts::{Part, Parts};

/// The steps of a deploy at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The workloads that the deploy is to be applied to now, in this order.
    pub(crate) due: Vec<usize>,
    /// Whether each workload is reached: those before it are complete.
    pub(crate) reached: Vec<bool>,
    /// Whether each workload carries the deploy, or this process has applied the deploy to it.
    pub(crate) begun: Vec<bool>,
    /// Whether the deploy needs each workload to be complete.
    pub(crate) needed: Vec<bool>,
}

/// Returns whether a restore leaves the workload at this place alone: a further one that exists, and that no deploy was ever
/// applied to. What is gone is no such workload, and fails the restore. A person's rollback brings back all.
pub(crate) fn is_left_alone(spec: &RolloutSpec, index: usize, seen: &Observation) -> bool {
    spec.purpose.is_restore() && index > 0 && seen.deploy.is_none() && seen.failure.is_none()
}

/// Returns the steps of a deploy that was observed so. A workload that `applied` names is not applied to again: what became
/// of it is for its observation to report.
pub(crate) fn of(parts: &Parts, seen: &[Observation], spec: &RolloutSpec, applied: &BTreeSet<String>) -> Steps {
    let carries: Vec<bool> = seen.iter().map(|seen| seen.deploy == Some(spec.id)).collect();
    let is_done = |index: usize| carries[index] && matches!(seen[index].phase, Phase::Complete { .. });
    let returns = spec.purpose.returns_to().is_some();
    let waits_at = parts.iter().enumerate().filter(|(index, _)| !is_done(*index)).map(|(_, part)| part.stage).min();
    let is_needed = |(index, (part, seen)): (usize, (&Part, &Observation))| {
        applied.contains(&part.name) || !is_left_alone(spec, index, seen)
    };
    let needed: Vec<bool> = parts.iter().zip(seen).enumerate().map(is_needed).collect();
    let is_reached = |(part, needed): (&Part, &bool)| {
        if returns { *needed } else { waits_at.is_none_or(|stage| part.stage <= stage) }
    };
    let reached: Vec<bool> = parts.iter().zip(&needed).map(is_reached).collect();
    let begun: Vec<bool> =
        parts.iter().zip(&carries).map(|(part, carries)| *carries || applied.contains(&part.name)).collect();
    let is_newer = seen
        .iter()
        .any(|seen| seen.deploy.is_some_and(|deploy| deploy.app == spec.id.app && deploy.revision > spec.id.revision));
    // An observation goes on with what was applied, and begins no deploy by itself.
    let goes_on = carries.contains(&true) && !is_newer;
    let mut due: Vec<usize> = (0..seen.len()).filter(|index| goes_on && reached[*index] && !begun[*index]).collect();
    if returns {
        due.reverse();
    }
    Steps { due, reached, begun, needed }
}
