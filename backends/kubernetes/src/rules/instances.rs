//! The instances of a workload, of what its pods show: the containers whose logs a person may want to read.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use rollhook_core::{
    app::AppUid,
    instance::InstanceName,
    ports::{LogPosition, TargetInstance},
};

use super::{diagnostics, object::Stamp, pods};

/// The most instances that are listed, and the most pods that are kept of a list.
const MOST: usize = 100;

/// Adds a page of a list to the pods that are kept: the newest.
pub(crate) fn keep(kept: &mut Vec<Pod>, page: impl Iterator<Item = Pod>) {
    kept.extend(page.map(reduced));
    kept.sort_by_key(|pod| Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)));
    kept.truncate(MOST);
}

/// Returns a pod with what is shown of it: specification and images are as long as whoever made it wanted.
fn reduced(mut pod: Pod) -> Pod {
    pod.spec = None;
    let status = pod.status.iter_mut();
    let all = status.flat_map(|status| [&mut status.init_container_statuses, &mut status.container_statuses]);
    for status in all.flatten().flatten() {
        status.image.clear();
        status.image_id.clear();
    }
    pod
}

/// Returns the instances, those of the newest revision first. `containers` are those that the app's deploys change.
pub(crate) fn of(pods: &[Pod], app: AppUid, containers: &[String]) -> Vec<TargetInstance> {
    let mut found: Vec<_> = pods.iter().flat_map(|pod| of_pod(pod, app, containers)).collect();
    found.sort_by_key(|instance| (Reverse(instance.revision), instance.name.clone()));
    found.truncate(MOST);
    found
}

/// Whether the pod was made by a deploy of this app.
pub(crate) fn is_of(pod: &Pod, app: AppUid, cron_job: &str) -> bool {
    let is_stamped = Stamp::among(pod.metadata.annotations.as_ref()).id().is_some_and(|id| id.app == app);
    // A Job is named by its CronJob and the minute of its schedule. Other workloads of the app carry the same stamp.
    let minute = |name: &'_ str| name.strip_prefix(cron_job)?.strip_prefix('-').map(str::to_owned);
    let is_scheduled = |owner: &OwnerReference| {
        owner.kind == "Job"
            && minute(&owner.name).is_some_and(|minute| minute.bytes().all(|byte| byte.is_ascii_digit()))
    };
    is_stamped && pod.metadata.owner_references.iter().flatten().any(is_scheduled)
}

fn of_pod(pod: &Pod, app: AppUid, containers: &[String]) -> Vec<TargetInstance> {
    let revision = Stamp::among(pod.metadata.annotations.as_ref()).id().filter(|id| id.app == app);
    let instance = |name: &str, status: Option<&ContainerStatus>| {
        let name = InstanceName::shortened(name);
        TargetInstance {
            id: name.clone(),
            name,
            revision: revision.map(|id| id.revision),
            state: diagnostics::state(pod, status).unwrap_or_else(|| "unknown".to_owned()),
            is_ready: status.is_some_and(|status| status.ready) && pods::is_ready(pod),
            restarts: status.map_or(0, restarts),
            workload: None,
        }
    };
    let own = pods::main_statuses(pod).find(|status| containers.first() == Some(&status.name));
    let others = pods::init_statuses(pod).filter(|status| is_unfinished(status)).chain(
        pods::main_statuses(pod).filter(|status| {
            containers.first() != Some(&status.name)
                && (containers.contains(&status.name) || !status.ready || status.restart_count > 0)
        }),
    );
    let others = others.map(|status| instance(&format!("{}:{}", pods::name(pod), status.name), Some(status)));
    std::iter::once(instance(pods::name(pod), own)).chain(others).collect()
}

fn restarts(status: &ContainerStatus) -> u32 {
    u32::try_from(status.restart_count).unwrap_or(0)
}

/// Whether an init container has begun, and has not done its work; a sidecar never has.
fn is_unfinished(status: &ContainerStatus) -> bool {
    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let is_done = ended.is_some_and(|ended| ended.exit_code == 0);
    let has_begun = ended.is_some()
        || status.restart_count > 0
        || status.state.as_ref().is_some_and(|state| state.running.is_some());
    has_begun && !is_done
}

/// Returns the name of the container that an instance of a pod stands for: the pod's, with the container's behind a colon
/// unless it is the first of those that deploys change.
pub(crate) fn container<'a>(instance: &'a InstanceName, containers: &'a [String]) -> (&'a str, &'a str) {
    let name = instance.as_str();
    name.split_once(':').unwrap_or((name, containers.first().map_or("", String::as_str)))
}

/// Whether the container runs, so that its log may grow.
pub(crate) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether the container was restarted since the position, so that the life before has lines behind it.
pub(crate) fn was_restarted_since(status: &ContainerStatus, position: LogPosition) -> bool {
    let began = status.state.as_ref().and_then(|state| state.running.as_ref()?.started_at.as_ref());
    let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let nanos = |time: Timestamp| time.as_nanosecond();
    // The cluster gives whole seconds.
    let is_later = began.is_some_and(|began| nanos(began.0) + 1_000_000_000 > i128::from(position.time));
    ended.is_some() && is_later
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::samples;

    fn pod(name: &str, revision: u64, init: Value, main: Value) -> Pod {
        let app = samples::spec(revision).id;
        let ready = json!([{"type": "Ready", "status": "True"}]);
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"rollhook.dev/revision": app.to_string()}},
            "status": {"conditions": ready, "initContainerStatuses": init, "containerStatuses": main},
        }))
        .unwrap()
    }

    fn status(name: &str, ready: bool, restarts: u32, state: Value) -> Value {
        json!({"name": name, "ready": ready, "restartCount": restarts, "state": state, "image": "a", "imageID": ""})
    }

    fn names(pods: &[Pod]) -> Vec<(String, Option<u64>, bool)> {
        let found = of(pods, samples::spec(1).id.app, &["app".to_owned()]);
        let shown = |it: TargetInstance| (it.name.to_string(), it.revision.map(|it| it.get()), it.is_ready);
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn instances_are_what_deploys_change_and_what_is_in_trouble() {
        let running = || json!({"running": {}});
        let done = json!([status("migrate", true, 0, json!({"terminated": {"exitCode": 0}}))]);
        let sound = json!([status("app", true, 0, running()), status("proxy", true, 0, running())]);
        let crashing = json!([status("app", true, 0, running()), status("proxy", false, 3, json!({"waiting": {}}))]);
        let waits = json!([status("wait-for-db", false, 0, running())]);
        let waiting = json!([status("app", false, 0, json!({"waiting": {"reason": "PodInitializing"}}))]);
        let pods =
            [pod("api-1", 1, done, sound), pod("api-2", 2, json!([]), crashing), pod("api-3", 3, waits, waiting)];
        let expected = [
            ("api-3", 3, false),
            ("api-3:wait-for-db", 3, false),
            ("api-2", 2, true),
            ("api-2:proxy", 2, false),
            ("api-1", 1, true),
        ];
        assert_eq!(names(&pods), expected.map(|(name, revision, ready)| (name.to_owned(), Some(revision), ready)));
    }

    #[test]
    fn pod_without_containers_is_an_instance_that_has_not_begun() {
        let pending = pod("api-1", 1, json!([]), json!([]));
        assert_eq!(names(&[pending]), [("api-1".to_owned(), Some(1), false)]);
    }

    #[test]
    fn instance_names_its_container() {
        let containers = ["app".to_owned()];
        assert_eq!(container(&"api-1".parse().unwrap(), &containers), ("api-1", "app"));
        assert_eq!(container(&"api-1:proxy".parse().unwrap(), &containers), ("api-1", "proxy"));
    }

    #[test]
    fn restart_behind_the_position_is_noticed() {
        let status = |state: Value, last: Value| -> ContainerStatus {
            let status = json!({"name": "app", "ready": false, "restartCount": 1, "image": "", "imageID": ""});
            let mut status: ContainerStatus = serde_json::from_value(status).unwrap();
            status.state = serde_json::from_value(state).unwrap();
            status.last_state = serde_json::from_value(last).unwrap();
            status
        };
        let runs = json!({"running": {"startedAt": "2026-01-01T00:00:10Z"}});
        let ended = json!({"terminated": {"exitCode": 1}});
        let at = |seconds: i64| {
            let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            LogPosition { time: (start.as_second() + seconds) * 1_000_000_000, lines: 1 }
        };
        let restarted = status(runs.clone(), ended.clone());
        assert!(was_restarted_since(&restarted, LogPosition::START) && was_restarted_since(&restarted, at(9)));
        assert!(!was_restarted_since(&restarted, at(12)));
        assert!(!was_restarted_since(&status(runs, json!({})), at(1)));
        assert!(!was_restarted_since(&status(json!({"waiting": {}}), ended), at(1)));
    }
}
