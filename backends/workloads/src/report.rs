//! One report of several workloads: that of a deploy, and that of a target at rest.

use rollhook_core::{
    deploy::{Reason, Revision},
    ports::{
        AtRest, DeployId, Drift, Instances, Observation, PastLives, Phase, RolloutFailure, RolloutFailureKind,
        RolloutSpec, WorkloadState,
    },
};

use crate::{
    parts::{Part, Parts},
    steps::Steps,
};

/// The refusal to bring a workload to a deploy that has changed another one already.
pub(crate) struct Refused {
    pub(crate) part: usize,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Returns the observation of a deploy that a workload has left for a newer one.
pub(crate) fn newer(spec: &RolloutSpec, part: &Part, newer: Revision) -> Observation {
    let deploy = DeployId { app: spec.id.app, revision: newer };
    let message = format!("{} carries revision {newer}", part.name);
    Observation::new(Some(deploy), Phase::Progressing, deploy.to_string(), message)
}

/// Returns the observation of a deploy of all workloads.
pub(crate) fn of_deploy(
    parts: &Parts,
    seen: Vec<Observation>,
    spec: &RolloutSpec,
    steps: &Steps,
    refused: Vec<Refused>,
) -> Observation {
    let own = |seen: &Observation| seen.deploy.filter(|deploy| deploy.app == spec.id.app);
    let newest = seen.iter().filter_map(own).max_by_key(|deploy| deploy.revision);
    let deploy = newest.filter(|newest| newest.revision >= spec.id.revision).or(seen[0].deploy);
    let states: Vec<WorkloadState> = parts
        .iter()
        .zip(&seen)
        .enumerate()
        .map(|(index, (part, seen))| {
            let message = if steps.begun[index] {
                seen.message.clone()
            } else if steps.reached[index] {
                "the rollout begins".to_owned()
            } else {
                "not touched: it waits for those before it".to_owned()
            };
            let is_complete = seen.deploy == Some(spec.id) && matches!(seen.phase, Phase::Complete { .. });
            WorkloadState {
                name: part.name.clone(),
                deploy: seen.deploy,
                is_complete,
                message,
                restarts: seen.restarts,
            }
        })
        .collect();
    let refusals = refused.into_iter().map(|refused| {
        let (kind, reason) = (RolloutFailureKind::Final, refused.reason);
        (refused.part, RolloutFailure { kind, reason, container: None, message: refused.message })
    });
    // What a workload that was not begun shows is of an earlier deploy, unless it is gone.
    let counts = |(index, seen): &(usize, Observation)| {
        steps.begun[*index] || (steps.reached[*index] && seen.deploy.is_none() && !steps.due.contains(index))
    };
    let counted = seen.into_iter().enumerate().filter(counts).collect();
    merged(deploy, states, counted, refusals.collect())
}

/// Returns the observation of the version that ran when the app was registered: that of the first workload, with what the
/// others run in place of it as a remark.
pub(crate) fn of_adopted(parts: &Parts, seen: Vec<Observation>) -> Observation {
    let is_other =
        |seen: &Observation| seen.failure.as_ref().is_some_and(|failure| failure.reason.as_str() == Reason::REVERTED);
    let others = parts.iter().zip(&seen).skip(1).filter(|(_, seen)| is_other(seen));
    let others: Vec<&str> = others.map(|(part, _)| part.name.as_str()).collect();
    let remark = match others.is_empty() {
        true => None,
        false => Some(format!("another image ran in {}: the next deploy brings all to one", others.join(", "))),
    };
    let states = parts.iter().zip(&seen).map(|(part, seen)| WorkloadState {
        name: part.name.clone(),
        deploy: seen.deploy,
        is_complete: matches!(seen.phase, Phase::Complete { .. }),
        message: if is_other(seen) { "another image ran here".to_owned() } else { seen.message.clone() },
        restarts: seen.restarts,
    });
    let states = states.collect();
    let Some(mut first) = seen.into_iter().next() else { return Observation::new(None, Phase::Progressing, "", "") };
    if let Phase::Complete { note, .. } = &mut first.phase {
        *note = [note.take(), remark].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    }
    first.with(|seen| seen.workloads = states)
}

/// Returns the workloads of a target whose newest deploy has ended.
pub(crate) fn at_rest(parts: &Parts, found: Vec<AtRest>, spec: &RolloutSpec) -> AtRest {
    let image = found[0].image.clone();
    let (mut drift, mut states, mut serving) = (None, Vec::new(), Vec::new());
    for (index, (part, found)) in parts.iter().zip(found).enumerate() {
        let seen = found.seen;
        let own = seen.deploy.filter(|deploy| deploy.app == spec.id.app);
        let is_behind = !spec.adopted && own.is_some_and(|deploy| deploy.revision < spec.id.revision);
        // The deploy never came to it: nobody else has changed it.
        let changed = found.drift.filter(|_| !is_behind && (index == 0 || !spec.adopted));
        let (changed, message) = match own {
            Some(deploy) if is_behind => {
                (None, format!("carries revision {}: the next deploy brings it along", deploy.revision))
            }
            None if changed.is_some() && index > 0 => {
                let message = "carries no deploy of this app, as after a change by another, or before its first deploy: the \
                               next deploy brings it along";
                (changed.map(|drift| Drift { message: message.to_owned(), ..drift }), message.to_owned())
            }
            Some(_) | None => (changed, seen.message.clone()),
        };
        drift = drift.or(changed.map(|drift| Drift { message: format!("{}: {}", part.name, drift.message), ..drift }));
        let is_complete = matches!(seen.phase, Phase::Complete { .. });
        let (name, deploy, restarts) = (part.name.clone(), seen.deploy, seen.restarts);
        states.push(WorkloadState { name, deploy, is_complete, message, restarts });
        if is_complete || own == Some(spec.id) || index == 0 {
            serving.push((index, seen));
        }
    }
    let own = |seen: &Observation| seen.deploy.filter(|deploy| deploy.app == spec.id.app);
    let oldest = serving.iter().filter_map(|(_, seen)| own(seen)).min_by_key(|deploy| deploy.revision);
    AtRest { image, drift, seen: merged(oldest, states, serving, Vec::new()) }
}

/// Returns the workload whose failure this is, and the failure in the words of the driver below.
pub(crate) fn failed<'a>(parts: &'a Parts, failure: &RolloutFailure) -> Option<(&'a Part, RolloutFailure)> {
    parts.iter().find_map(|part| {
        let message = failure.message.strip_prefix(&part.name)?.strip_prefix(": ")?;
        Some((part, RolloutFailure { message: message.to_owned(), ..failure.clone() }))
    })
}

/// Returns one observation of those workloads that count, each with its place, and of all failures the one that says most.
fn merged(
    deploy: Option<DeployId>,
    states: Vec<WorkloadState>,
    seen: Vec<(usize, Observation)>,
    refused: Vec<(usize, RolloutFailure)>,
) -> Observation {
    let failures = seen.iter().filter_map(|(index, seen)| Some((*index, seen.failure.clone()?)));
    let failure = refused.into_iter().chain(failures).min_by_key(|(_, failure)| failure.kind);
    let failure = failure.map(|(index, failure)| {
        let message = format!("{}: {}", states[index].name, with_others(&failure.message, &states, index));
        RolloutFailure { message, ..failure }
    });
    let is_complete = states.iter().all(|state| state.is_complete);
    let message = match states.iter().position(|state| !state.is_complete) {
        None => format!("all {} workloads are complete", states.len()),
        Some(index) => format!("{}: {}", states[index].name, with_others(&states[index].message, &states, index)),
    };
    let moved = seen.iter().map(|(index, seen)| format!("{} {}", states[*index].name, seen.progress));
    let progress = moved.collect::<Vec<_>>().join("; ");
    let phase = if is_complete { complete(&states, &seen) } else { Phase::Progressing };
    let counted = seen.iter().filter_map(|(_, seen)| seen.instances);
    let instances = counted.reduce(|one, other| Instances {
        ready: one.ready.saturating_add(other.ready),
        wanted: one.wanted.saturating_add(other.wanted),
    });
    let lives = seen.iter().flat_map(|(index, seen)| {
        let name = &states[*index].name;
        seen.past_lives
            .iter()
            .map(move |lives| PastLives { instance: format!("{name} {}", lives.instance), ..lives.clone() })
    });
    let past_lives = lives.collect();
    Observation::new(deploy, phase, progress, message).with(|merged| {
        merged.instances = instances;
        merged.restarts = seen.iter().fold(0, |sum: u32, (_, seen)| sum.saturating_add(seen.restarts));
        merged.past_lives = past_lives;
        merged.down_for = seen.iter().filter_map(|(_, seen)| seen.down_for).max();
        merged.failure = failure;
        merged.workloads = states;
    })
}

/// Returns the phase of workloads that are all complete, with the digest that all of them run which run one.
fn complete(states: &[WorkloadState], seen: &[(usize, Observation)]) -> Phase {
    let (mut digests, mut notes) = (Vec::new(), Vec::new());
    for (index, seen) in seen {
        let Phase::Complete { digest, note } = &seen.phase else { continue };
        digests.extend(digest.clone());
        notes.extend(note.as_ref().map(|note| format!("{}: {note}", states[*index].name)));
    }
    let is_one = digests.windows(2).all(|pair| pair[0] == pair[1]);
    let digest = digests.into_iter().next().filter(|_| is_one);
    Phase::Complete { digest, note: (!notes.is_empty()).then(|| notes.join("; ")) }
}

/// Returns what is to be said of a workload, and how the others are.
fn with_others(message: &str, states: &[WorkloadState], index: usize) -> String {
    let others = states.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, state)| {
        let how = match (state.is_complete, state.deploy) {
            (true, _) => "is complete".to_owned(),
            (false, Some(deploy)) if Some(deploy) == states[index].deploy => state.message.clone(),
            (false, Some(deploy)) => format!("is at revision {}", deploy.revision),
            (false, None) => "was not deployed to".to_owned(),
        };
        format!("{} {how}", state.name)
    });
    let others = others.collect::<Vec<_>>().join(", ");
    format!("{} ({others})", message.trim_end_matches('.'))
}
