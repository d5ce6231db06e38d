//! Drift: what others changed since the newest deploy.

use rollhook_core::ports::Drift;
use serde_json::Value;

use super::{
    container::{COMPOSE_PROJECT, COMPOSE_SERVICE, Container, NAME, Seen, TARGET},
    diagnostics, fence,
    observation::own,
};
use crate::settings::{Rollout, Workload};

/// Returns the change by another party; `None` if there is none.
pub(crate) fn drift(seen: &Seen, rollout: &Rollout) -> Option<Drift> {
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
        Some(own) if !own.is_up() => {
            told(format!("the container {} does not run: it {}", own.name(), diagnostics::ended(own)))
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
    use crate::rules::samples::{OURS, container, rollout, seen, stamped};

    #[test]
    fn container_of_another_party_is_told_with_its_image() {
        let there = seen(vec![container("web", "running")]);
        let found = drift(&there, &rollout(2)).unwrap();
        assert_eq!(found.image.unwrap().to_string(), "registry.example.com/web:v1");
        assert!(found.message.contains("container web"), "{}", found.message);
        assert_eq!(drift(&there, &rollout(1)).unwrap().image, None, "the same image is no other image");
    }

    #[test]
    fn removed_and_stopped_containers_are_told() {
        assert!(drift(&Seen::default(), &rollout(2)).unwrap().message.contains("removed"));
        let stopped = seen(vec![stamped(OURS, 2, "exited")]);
        assert!(drift(&stopped, &rollout(2)).unwrap().message.contains("does not run"));
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
