//! The past lives of a pod's containers. Kubernetes keeps the last one of each; the others lie between the pod's start and
//! its end.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use rollhook_core::ports::PastLives;

use super::pods;

/// Times of a pod's status are whole seconds.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The past lives of the pod's containers that have ended, and run again or are to. An init container that is done has no
/// life to outlive.
pub(crate) fn past(pod: &Pod, now: Timestamp) -> Vec<PastLives> {
    let is_done = |status: &&ContainerStatus| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    let init = pods::init_statuses(pod).filter(|status| !is_done(status));
    init.chain(pods::main_statuses(pod)).filter_map(|status| of_container(pod, status, now)).collect()
}

fn of_container(pod: &Pod, status: &ContainerStatus, now: Timestamp) -> Option<PastLives> {
    let state = status.state.as_ref();
    let ended = state.and_then(|state| state.terminated.as_ref());
    let ended = ended.or_else(|| status.last_state.as_ref()?.terminated.as_ref())?;
    let end = ended.finished_at.as_ref()?.0;
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let started = started.or(pod.metadata.creation_timestamp.as_ref()).map_or(end, |time| time.0);
    let all = span(started, end) + RESOLUTION;
    // While it waits to be started again, the life that has ended is not counted yet.
    let is_running = state.is_some_and(|state| state.running.is_some());
    let restarts = u32::try_from(status.restart_count).unwrap_or(0);
    Some(PastLives {
        instance: format!("{}/{}", pod.metadata.uid.as_deref().unwrap_or_default(), status.name),
        count: restarts.saturating_add(u32::from(!is_running)),
        last: ended.started_at.as_ref().map_or(all, |start| span(start.0, end) + RESOLUTION),
        all,
        ended_ago: span(end, now),
    })
}

/// The time between two, or none if the second is the earlier one.
pub(crate) fn span(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(statuses: &Value) -> Vec<(u32, u64, u64, u64)> {
        let pod = json!({
            "metadata": {"name": "api-1", "uid": "7"},
            "status": merged(&json!({"startTime": "2026-01-01T00:00:00Z"}), statuses),
        });
        let pod = serde_json::from_value(pod).unwrap();
        let lives = past(&pod, "2026-01-01T00:02:00Z".parse().unwrap());
        lives
            .into_iter()
            .map(|lives| (lives.count, lives.last.as_secs(), lives.all.as_secs(), lives.ended_ago.as_secs()))
            .collect()
    }

    fn merged(base: &Value, patch: &Value) -> Value {
        crate::rules::samples::merged(base.clone(), patch.clone())
    }

    fn container(restarts: u32, state: &Value, last: &Value) -> Value {
        json!({"name": "app", "image": "api:1", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
               "lastState": last})
    }

    fn ended(from: u32, to: u32, code: i32) -> Value {
        let at = |second: u32| format!("2026-01-01T00:00:{second:0>2}Z");
        json!({"terminated": {"exitCode": code, "startedAt": at(from), "finishedAt": at(to)}})
    }

    #[test]
    fn last_life_is_known_and_all_lie_before_its_end() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:41Z"}});
        let main = |container: Value| json!({"containerStatuses": [container]});
        assert_eq!(of(&main(container(0, &running, &json!({})))), []);
        assert_eq!(of(&main(container(2, &running, &ended(26, 40, 7)))), [(2, 15, 41, 80)]);
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(of(&main(container(1, &waiting, &ended(26, 40, 0)))), [(2, 15, 41, 80)]);
        assert_eq!(of(&main(container(1, &ended(26, 40, 7), &ended(2, 9, 7)))), [(2, 15, 41, 80)]);
    }

    #[test]
    fn init_container_has_a_life_to_outlive_as_long_as_it_is_not_done() {
        let init = |state: &Value| {
            of(&json!({"initContainerStatuses": [container(1, state, &ended(2, 9, 1))], "containerStatuses": []}))
        };
        assert_eq!(init(&json!({"running": {}})), [(1, 8, 10, 111)], "a sidecar");
        assert_eq!(init(&ended(12, 30, 0)), []);
    }
}
