//! One report of several workloads: that of a deploy, and that of a target at rest.

use rollhook_core::{
    deploy::{Reason, Revision},
    ports::{
        AtRest, DeployId, Drift, Instances, Observation, PastLives, Phase, References, RolloutFailure,
        RolloutFailureKind, RolloutSpec, WorkloadState,
    },
};

use crate::{
    parts::{Part, Parts},
    steps::Steps,
};

/// The refusal to bring a workload to a deploy that has changed another one already. Whatever its reason, that one is put
/// right.
pub(crate) struct Refused {
    pub(crate) part: usize,
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
    let newest = seen.iter().filter_map(|seen| own(seen, spec)).max_by_key(|deploy| deploy.revision);
    let deploy = newest.filter(|newest| newest.revision >= spec.id.revision).or(seen[0].deploy);
    let state = |(index, (part, seen)): (usize, (&Part, &Observation))| {
        let message = if !steps.needed[index] {
            "left as it is: no deploy of this app came to it".to_owned()
        } else if steps.begun[index] {
            seen.message.clone()
        } else if steps.reached[index] {
            "the rollout begins".to_owned()
        } else {
            "not touched: it waits for those before it".to_owned()
        };
        let is_complete = seen.deploy == Some(spec.id) && matches!(seen.phase, Phase::Complete { .. });
        state(part, seen, spec, is_complete, message)
    };
    let states: Vec<WorkloadState> = parts.iter().zip(&seen).enumerate().map(state).collect();
    let refusals = refused.into_iter().map(|refused| {
        let (kind, reason) = (RolloutFailureKind::Final, Reason::new(Reason::REFUSED));
        (refused.part, RolloutFailure { kind, reason, container: None, message: refused.message })
    });
    // A workload that was not begun shows an earlier deploy, unless it is gone.
    let counts = |(index, seen): &(usize, Observation)| {
        steps.begun[*index] || (steps.reached[*index] && seen.deploy.is_none() && !steps.due.contains(index))
    };
    let counted = seen.into_iter().enumerate().filter(counts).collect();
    merged(deploy, states, &steps.needed, counted, refusals.collect())
}

/// Returns the observation of the version that ran when the app was registered: that of the first workload, with what the
/// others run in place of it as a remark.
pub(crate) fn of_adopted(parts: &Parts, seen: Vec<Observation>, spec: &RolloutSpec) -> Observation {
    let is_other =
        |seen: &Observation| seen.failure.as_ref().is_some_and(|failure| failure.reason.as_str() == Reason::REVERTED);
    let others = parts.iter().zip(&seen).skip(1).filter(|(_, seen)| is_other(seen));
    let others: Vec<&str> = others.map(|(part, _)| part.name.as_str()).collect();
    let remark = match others.is_empty() {
        true => None,
        false => Some(format!("another image ran in {}: the next deploy brings all to one", others.join(", "))),
    };
    let states = parts.iter().zip(&seen).map(|(part, seen)| {
        let message = if is_other(seen) { "another image ran here".to_owned() } else { seen.message.clone() };
        state(part, seen, spec, matches!(seen.phase, Phase::Complete { .. }), message)
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
    let mut references = References::default();
    for (index, (part, found)) in parts.iter().zip(found).enumerate() {
        let AtRest { image, drift: changed, seen, references: of_part } = found;
        if own(&seen, spec) == Some(spec.id) {
            references.changed.extend(of_part.changed);
            references.unknown.extend(of_part.unknown);
        }
        let carried = own(&seen, spec);
        let behind = carried.filter(|deploy| !spec.adopted && deploy.revision < spec.id.revision);
        let is_unstamped = index > 0 && !spec.adopted && seen.deploy.is_none() && image.is_some();
        // The deploy never came to it: nobody else has changed it.
        let changed = changed.filter(|_| behind.is_none() && !is_unstamped && (index == 0 || !spec.adopted));
        let message = match behind {
            Some(deploy) => format!("carries revision {}: the next deploy brings it along", deploy.revision),
            None if is_unstamped => "carries no deploy of this app: the next deploy brings it along".to_owned(),
            None => changed.as_ref().map_or_else(|| seen.message.clone(), |drift| drift.message.clone()),
        };
        drift = drift.or(changed.map(|drift| Drift { message: format!("{}: {}", part.name, drift.message), ..drift }));
        let is_complete = matches!(seen.phase, Phase::Complete { .. });
        states.push(state(part, &seen, spec, is_complete, message));
        if index == 0 || (!is_unstamped && (is_complete || carried == Some(spec.id))) {
            serving.push((index, seen));
        }
    }
    let oldest = serving.iter().filter_map(|(_, seen)| own(seen, spec)).min_by_key(|deploy| deploy.revision);
    // A deploy that never came to one of them has not recovered.
    let needed = vec![true; states.len()];
    // Workloads often read the same ones.
    for names in [&mut references.changed, &mut references.unknown] {
        names.sort_unstable();
        names.dedup();
    }
    AtRest { drift, references, ..AtRest::new(image, merged(oldest, states, &needed, serving, Vec::new())) }
}

/// Returns the deploy of this app that a workload carries.
fn own(seen: &Observation, spec: &RolloutSpec) -> Option<DeployId> {
    seen.deploy.filter(|deploy| deploy.app == spec.id.app)
}

fn state(part: &Part, seen: &Observation, spec: &RolloutSpec, is_complete: bool, message: String) -> WorkloadState {
    let (name, restarts) = (part.name.clone(), seen.restarts);
    let message = match seen.leaving.as_ref().filter(|_| is_complete) {
        Some(leaving) => format!("{message}; {leaving}"),
        None => message,
    };
    WorkloadState { name, deploy: own(seen, spec), is_complete, message, restarts, is_failing: false }
}

/// Returns the workload whose failure this is, and the failure without the workload's name.
pub(crate) fn failed<'a>(parts: &'a Parts, failure: &RolloutFailure) -> Option<(&'a Part, RolloutFailure)> {
    parts.iter().find_map(|part| {
        let message = failure.message.strip_prefix(&part.name)?.strip_prefix(": ")?;
        Some((part, RolloutFailure { message: message.to_owned(), ..failure.clone() }))
    })
}

/// Returns one observation of those workloads that count, each with its place, and of all failures the one that says most.
fn merged(
    deploy: Option<DeployId>,
    mut states: Vec<WorkloadState>,
    needed: &[bool],
    seen: Vec<(usize, Observation)>,
    refused: Vec<(usize, RolloutFailure)>,
) -> Observation {
    let failures = seen.iter().filter_map(|(index, seen)| Some((*index, seen.failure.clone()?)));
    let failure = refused.into_iter().chain(failures).min_by_key(|(_, failure)| failure.kind);
    let failing = failure.as_ref().map(|(index, _)| *index);
    if let Some(index) = failing {
        states[index].is_failing = true;
    }
    let ending = failure.as_ref().map(|(_, failure)| failure.message.clone());
    let failure = failure.map(|(index, failure)| {
        let message = format!("{}: {}", states[index].name, with_others(&failure.message, &states, index));
        RolloutFailure { message, ..failure }
    });
    let incomplete = (0..states.len()).find(|index| needed[*index] && !states[*index].is_complete);
    let message = match incomplete {
        None => format!("all {} workloads are complete", needed.iter().filter(|needed| **needed).count()),
        Some(index) => format!("{}: {}", states[index].name, with_others(&states[index].message, &states, index)),
    };
    // Between two of its ends a container runs: its failure says more.
    if let (Some(index), Some(ending)) = (failing, ending) {
        states[index].message = ending;
    }
    let moved = seen.iter().map(|(index, seen)| format!("{} {}", states[*index].name, seen.progress));
    let progress = moved.collect::<Vec<_>>().join("; ");
    let leaving = seen
        .iter()
        .filter_map(|(index, seen)| seen.leaving.as_ref().map(|leaving| format!("{}: {leaving}", states[*index].name)));
    let leaving = leaving.reduce(|one, other| format!("{one}, {other}"));
    let phase = if incomplete.is_none() { complete(&states, &seen) } else { Phase::Progressing };
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
        // The outage of one workload is none of another one's that fails.
        let counts = |index: &usize| failing.is_none_or(|failing| failing == *index);
        merged.down_for = seen.iter().filter(|(index, _)| counts(index)).filter_map(|(_, seen)| seen.down_for).max();
        merged.failure = failure;
        merged.leaving = leaving;
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
    if !is_one {
        notes.push(
            "the workloads run different images: the tag was moved between their rollouts; deploy again by digest"
                .to_owned(),
        );
    }
    let digest = digests.into_iter().next().filter(|_| is_one);
    Phase::Complete { digest, note: (!notes.is_empty()).then(|| notes.join("; ")) }
}

/// Returns what is to be said of a workload, and how the others are.
fn with_others(message: &str, states: &[WorkloadState], index: usize) -> String {
    let others = states.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, state)| {
        let how = match (state.is_complete, state.deploy) {
            (true, _) => " is complete".to_owned(),
            (false, Some(deploy)) if Some(deploy) == states[index].deploy => format!(": {}", state.message),
            (false, Some(deploy)) => format!(" is at revision {}", deploy.revision),
            (false, None) => " was not deployed to".to_owned(),
        };
        format!("{}{how}", state.name)
    });
    let others = others.collect::<Vec<_>>().join(", ");
    format!("{} ({others})", message.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rollhook_core::{
        app::{AppUid, Target},
        ports::DeployId,
    };
    use serde_json::json;

    use super::*;
    use crate::steps;

    #[test]
    fn old_instances_of_each_workload_are_waited_for_and_the_next_workload_goes_on() {
        let also = json!([{ "kind": "Deployment", "name": "worker" }, { "kind": "CronJob", "name": "nightly" }]);
        let settings = json!({ "kind": "Deployment", "name": "web", "also": also }).as_object().unwrap().clone();
        let target = Target { settings, ..Target::default() };
        let parts = Parts::of(&target).unwrap().unwrap();
        let id = DeployId { app: AppUid::from_bits(1), revision: Revision::FIRST };
        let spec = RolloutSpec::new("shop-test/web".parse().unwrap(), id, target, "web:v1".parse().unwrap());
        let complete = || {
            let phase = Phase::Complete { digest: None, note: None };
            Observation::new(Some(id), phase, "1/1", "1 of 1 new pods are available")
        };
        let still = "1 pod of the version before still terminates";
        let leaving = || complete().with(|seen| seen.leaving = Some(still.to_owned()));
        let steps = |seen: &[Observation]| steps::of(&parts, seen, &spec, &BTreeSet::new());
        let waiting = Observation::new(None, Phase::Progressing, "", "not there");
        assert_eq!(steps(&[complete(), leaving(), waiting]).due, [2]);
        let seen = vec![complete(), leaving(), leaving()];
        let steps = steps(&seen);
        let merged = of_deploy(&parts, seen, &spec, &steps, Vec::new());
        assert!(matches!(merged.phase, Phase::Complete { .. }), "{merged:?}");
        assert_eq!(merged.leaving, Some(format!("Deployment/worker: {still}, CronJob/nightly: {still}")));
        let messages: Vec<&str> = merged.workloads.iter().map(|workload| workload.message.as_str()).collect();
        let both = format!("1 of 1 new pods are available; {still}");
        assert_eq!(messages, ["1 of 1 new pods are available", &both, &both]);
    }
}
