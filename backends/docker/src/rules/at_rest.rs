//! A target at rest: what others changed since the newest deploy, and how its container does.

use rollhook_core::ports::{AtRest, Drift, Instances, Observation, Phase, RolloutFailureKind};
use serde_json::Value;

use super::{
    container::{COMPOSE_PROJECT, COMPOSE_SERVICE, Container, NAME, Process, Seen, TARGET},
    diagnostics, fence,
    instances::is_ready,
    observation::{self, Work, own},
    plan::{self, Facts},
};
use crate::settings::{Rollout, Workload};

/// Returns the target as it was read.
pub(crate) fn of(seen: &Seen, rollout: &Rollout) -> AtRest {
    let set = own(seen, rollout).or_else(|| seen.kept(rollout.id));
    AtRest { drift: drift(seen, rollout), ..AtRest::new(set.and_then(Container::image), observe(seen, rollout)) }
}

/// Returns the container to be asked whether it is ready by its path: the deploy's, if all else says that it runs well.
pub(crate) fn asked<'a>(seen: &'a Seen, rollout: &Rollout, found: &Observation) -> Option<&'a Container> {
    let is_of_deploy = rollout.adopted || found.deploy == Some(rollout.id);
    own(seen, rollout).filter(|_| !rollout.rests && is_of_deploy && matches!(found.phase, Phase::Complete { .. }))
}

/// Returns the target whose container does not answer as one that is ready.
pub(crate) fn unready(found: AtRest, answer: &str) -> AtRest {
    let seen = found.seen.with(|seen| {
        seen.phase = Phase::Progressing;
        seen.message = format!("not ready: {answer}");
        seen.instances = seen.instances.map(|instances| Instances { ready: 0, ..instances });
    });
    AtRest { seen, ..found }
}

/// Returns the observation of the container that serves.
fn observe(seen: &Seen, rollout: &Rollout) -> Observation {
    serving_before(seen, rollout).map_or_else(|| observe_own(seen, rollout), observe_before)
}

/// Returns the container from before that serves on, as the deploy, which ended without success, never took its name; what
/// the deploy left beside it leads nowhere, however it does. `None` if the deploy's own serves, or none does.
fn serving_before<'a>(seen: &'a Seen, rollout: &Rollout) -> Option<&'a Container> {
    if rollout.adopted || fence::carried(seen) != Some(rollout.id) || fence::scaled(seen, rollout).is_some() {
        return None;
    }
    let name = own(seen, rollout).or_else(|| seen.model())?.final_name();
    let is_of_deploy = |found: &Container| found.deploy() == Some(rollout.id) || seen.keeps(rollout.id, found);
    seen.containers.iter().find(|found| found.name() == name && found.is_up() && !is_of_deploy(found))
}

/// Returns the observation of a container from before. It carries that one's deploy id, if it has one.
fn observe_before(container: &Container) -> Observation {
    let is_ready = is_ready(container);
    let phase = if is_ready { Phase::Complete { digest: None, note: None } } else { Phase::Progressing };
    Observation::new(container.deploy(), phase, "", diagnostics::state(container)).with(|found| {
        found.instances = Some(Instances { ready: u32::from(is_ready), wanted: 1 });
        found.restarts = container.restarts();
        found.failure = diagnostics::failure(container, is_ready, None);
        found.failure.take_if(|failure| is_over(failure.kind, container));
    })
}

/// Whether the container was started again after such a failure and its health check has not passed yet: it has recovered,
/// as far as is known.
fn is_over(failure: RolloutFailureKind, container: &Container) -> bool {
    matches!(failure, RolloutFailureKind::Crash | RolloutFailureKind::Final)
        && container.process() == Process::Running
        && container.health() == Some("starting")
}

/// Returns the observation of the deploy's container.
fn observe_own(seen: &Seen, rollout: &Rollout) -> Observation {
    let own = own(seen, rollout);
    let is_ready = own.is_some_and(is_ready);
    let facts = Facts {
        has_image: true,
        ready_for: is_ready.then_some(rollout.settle),
        is_drained: true,
        may_start: false,
        ended_unseen: false,
    };
    let step = plan::next(seen, rollout, facts);
    let found = observation::observe(seen, rollout, &step, facts, &Work::default(), None);
    // What is left are names and containers that ended, of which no step is taken any more.
    let is_sole = own.is_some_and(|own| !seen.containers.iter().any(|other| other.id() != own.id() && other.is_up()));
    let is_well = if rollout.rests { own.is_some_and(|own| !own.is_up()) } else { is_ready };
    let is_well = is_well && is_sole && found.deploy == Some(rollout.id);
    found.with(|found| {
        found.failure.take_if(|failure| own.is_some_and(|own| is_over(failure.kind, own)));
        if is_well && found.phase == Phase::Progressing {
            found.phase = Phase::Complete { digest: None, note: None };
        }
    })
}

/// Returns the change by another party; `None` if there is none.
fn drift(seen: &Seen, rollout: &Rollout) -> Option<Drift> {
    let carried = fence::carried(seen);
    if carried.is_some_and(|id| id != rollout.id) {
        return None;
    }
    let name = &rollout.workload;
    let is_theirs = |found: &&Container| found.deploy().is_none() && !seen.keeps(rollout.id, found) && found.is_up();
    let theirs = seen.containers.iter().filter(is_theirs);
    let other = theirs.max_by_key(|container| container.created_at().to_owned());
    let is_other = |container: &&Container| {
        !rollout.adopted || !container.image().is_some_and(|image| image.same_bits(None, &rollout.image, None))
    };
    if let Some(other) = other.filter(is_other) {
        let image = other.image();
        let runs = image.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!("another party started the container {} with {runs}", other.name());
        let is_same = image.as_ref().is_some_and(|image| image.same_bits(None, &rollout.image, None));
        return Some(Drift { image: image.filter(|_| !is_same), message });
    }
    let told = |message: String| Some(Drift { image: None, message });
    match own(seen, rollout).or_else(|| seen.kept(rollout.id)) {
        None => told(format!("another party removed {name}")),
        Some(own) if rollout.rests && own.is_up() => {
            told(format!("another party started the container {}, which was stopped", own.name()))
        }
        Some(own) if own.is_paused() => told(format!("another party paused the container {}", own.name())),
        Some(_) => None,
    }
}

/// Returns whether an event of the engine is about the target. `attributes` are the container's name and labels.
pub(crate) fn concerns(workload: &Workload, attributes: &Value) -> bool {
    let is = |name: &str, value: &str| attributes[name].as_str() == Some(value);
    if is(TARGET, &workload.key()) {
        return true;
    }
    match workload.service() {
        Some((project, service)) => is(COMPOSE_PROJECT, project) && is(COMPOSE_SERVICE, service),
        None => is("name", &workload.name) || is(NAME, &workload.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{OURS, claim, container, rollout, seen, stamped, with};

    #[test]
    fn container_of_another_party_is_told_with_its_image() {
        let there = seen(vec![container("web", "running")]);
        let found = drift(&there, &rollout(2)).unwrap();
        assert_eq!(found.image.unwrap().to_string(), "registry.example.com/web:v1");
        assert!(found.message.contains("container web"), "{}", found.message);
        assert_eq!(drift(&there, &rollout(1)).unwrap().image, None, "the same image is no other image");
    }

    #[test]
    fn removed_and_paused_containers_are_told() {
        assert!(drift(&Seen::default(), &rollout(2)).unwrap().message.contains("removed"));
        let paused = seen(vec![stamped(OURS, 2, "paused")]);
        assert!(drift(&paused, &rollout(2)).unwrap().message.contains("paused"));
    }

    /// The deploy's container under its own name.
    fn named(status: &str) -> Container {
        with(stamped(OURS, 2, status), "/Name", json!("/web"))
    }

    #[test]
    fn container_that_runs_is_complete_and_one_that_ended_is_a_failure() {
        let look = |container: Container| of(&seen(vec![container]), &rollout(2));
        let well = look(named("running"));
        assert_eq!((well.drift, well.seen.failure), (None, None));
        assert!(matches!(well.seen.phase, Phase::Complete { .. }), "{}", well.seen.message);
        for status in ["exited", "restarting"] {
            let ended = look(with(named(status), "/State/ExitCode", json!(7)));
            assert_eq!(ended.drift, None, "no other party changed it");
            let failure = ended.seen.failure.unwrap();
            assert_eq!(failure.kind, RolloutFailureKind::Crash);
            assert!(failure.message.contains("exited with code 7"), "{}", failure.message);
            assert_eq!(ended.seen.phase, Phase::Progressing);
        }
    }

    #[test]
    fn container_that_starts_again_is_neither_well_nor_a_failure() {
        let health = json!({"Status": "starting", "Log": []});
        let again = with(with(named("running"), "/State/Health", health), "/RestartCount", json!(1));
        let found = of(&seen(vec![again]), &rollout(2)).seen;
        assert_eq!((found.phase, found.failure, found.restarts), (Phase::Progressing, None, 1));
    }

    #[test]
    fn stopped_app_is_well_until_another_party_starts_its_container() {
        let stopped = Rollout { rests: true, ..rollout(2) };
        let look = |status: &str| of(&seen(vec![named(status)]), &stopped);
        for status in ["created", "exited"] {
            let well = look(status);
            assert!(matches!(well.seen.phase, Phase::Complete { .. }), "{status}: {}", well.seen.message);
            assert_eq!((&well.drift, &well.seen.failure), (&None, &None));
            assert_eq!(well.seen.instances, Some(Instances { ready: 0, wanted: 0 }));
            assert_eq!(asked(&seen(vec![named(status)]), &stopped, &well.seen), None, "no path is asked for");
        }
        let started = look("running");
        assert!(started.drift.unwrap().message.contains("started the container web"));
        assert_eq!((started.seen.phase, started.seen.failure), (Phase::Progressing, None));
    }

    #[test]
    fn container_from_before_that_serves_on_is_observed_and_recovers_no_deploy() {
        let claimed = |containers| of(&Seen { claims: vec![claim(OURS, 2)], ..seen(containers) }, &rollout(2)).seen;
        let old = with(stamped(OURS, 1, "running"), "/Name", json!("/web"));
        let left = ["created", "running", "restarting", "exited"].map(|status| vec![stamped(OURS, 2, status)]);
        // Without a container, as its image could not be pulled.
        for left in left.into_iter().chain([Vec::new()]) {
            for before in [old.clone(), container("web", "running")] {
                let found = claimed([vec![before.clone()], left.clone()].concat());
                assert!(matches!(found.phase, Phase::Complete { .. }), "{left:?}");
                assert_eq!((found.deploy, found.failure), (before.deploy(), None), "{left:?}");
                assert_eq!(found.instances, Some(Instances { ready: 1, wanted: 1 }));
            }
        }
        let crashing = with(with(old.clone(), "/State/Status", json!("restarting")), "/RestartCount", json!(3));
        let found = claimed(vec![crashing, stamped(OURS, 2, "running")]);
        let failure = found.failure.unwrap();
        assert_eq!((failure.kind, found.restarts, found.phase), (RolloutFailureKind::Crash, 3, Phase::Progressing));
        assert!(failure.message.contains("container web "), "{}", failure.message);
        let ended = with(old, "/State/Status", json!("exited"));
        let found = claimed(vec![ended, stamped(OURS, 2, "running")]);
        assert!(matches!(found.phase, Phase::Complete { .. }), "it is the only one that runs");
        assert_eq!(found.deploy, Some(rollout(2).id));
    }

    #[test]
    fn own_and_newer_deploys_are_no_drift() {
        assert_eq!(drift(&seen(vec![stamped(OURS, 2, "running")]), &rollout(2)), None);
        assert_eq!(drift(&seen(vec![stamped(OURS, 3, "exited")]), &rollout(2)), None);
        let adopted = Rollout { adopted: true, image: "registry.example.com/web:v1".parse().unwrap(), ..rollout(1) };
        assert_eq!(drift(&seen(vec![container("web", "running")]), &adopted), None);
    }

    #[test]
    fn event_is_about_the_target_by_name_or_label() {
        let workload = rollout(1).workload;
        assert!(concerns(&workload, &json!({"name": "web"})));
        assert!(concerns(&workload, &json!({"name": "web.2-abc", TARGET: "container/web"})));
        assert!(!concerns(&workload, &json!({"name": "api", COMPOSE_SERVICE: "web"})));
    }
}
