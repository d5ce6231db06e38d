//! A target at rest: what others changed since the newest deploy, and how its container does.

use rollhook_core::ports::{AtRest, Drift, Observation, Phase, RolloutFailureKind};
use serde_json::Value;

use super::{
    container::{COMPOSE_PROJECT, COMPOSE_SERVICE, Container, NAME, Process, Seen, TARGET},
    fence,
    observation::{self, Work, own},
    plan::{self, Facts},
};
use crate::settings::{Rollout, Workload};

/// Returns the target as it was read.
pub(crate) fn of(seen: &Seen, rollout: &Rollout) -> AtRest {
    AtRest { drift: drift(seen, rollout), seen: observe(seen, rollout) }
}

/// Returns the observation of the deploy's container, by what the engine reports alone: a readiness path is for a container
/// that is about to take another's place.
fn observe(seen: &Seen, rollout: &Rollout) -> Observation {
    let own = own(seen, rollout);
    let is_starting = own.is_some_and(|own| own.process() == Process::Running && own.health() == Some("starting"));
    let is_ready = own.is_some_and(|own| {
        own.process() == Process::Running && !own.is_paused() && own.health().is_none_or(|health| health == "healthy")
    });
    let facts = Facts {
        has_image: true,
        ready_for: is_ready.then_some(rollout.settle),
        is_drained: true,
        may_start: false,
        ended_unseen: false,
    };
    let step = plan::next(seen, rollout, facts);
    let found = observation::observe(seen, rollout, &step, facts, &Work::default(), None);
    // A container that was started again and whose health check has not passed yet has recovered, as far as is known.
    let is_old = |kind| matches!(kind, RolloutFailureKind::Crash | RolloutFailureKind::Final) && is_starting;
    // What is left are names and containers that ended, of which no step is taken any more.
    let is_sole = own.is_some_and(|own| !seen.containers.iter().any(|other| other.id() != own.id() && other.is_up()));
    let runs = is_ready && is_sole && found.deploy == Some(rollout.id);
    found.with(|found| {
        found.failure.take_if(|failure| is_old(failure.kind));
        if runs && found.phase == Phase::Progressing {
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
    use crate::rules::samples::{OURS, container, rollout, seen, stamped, with};

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
