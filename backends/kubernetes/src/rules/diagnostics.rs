//! The evidence of a failure: the pod and container to look at, and lines of state, events and log.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use rollhook_core::ports::RolloutFailure;

use super::{failure, object::Stamp, pods};
use crate::{error::shortened, workload::Rollout};

/// The most events that are shown.
pub(crate) const EVENTS: usize = 10;
/// The most events that are kept of a list.
const KEPT_EVENTS: usize = 200;
/// The most log lines that are kept.
pub(crate) const LOG_LINES: usize = 50;
/// The longest line that is kept, in characters.
pub(crate) const LINE: usize = 500;

/// The pod of the rollout's revision, whose pods carry the stamp `own`, that shows best what is wrong: the one that the reported
/// failure names, else one with the same failure, else one with any, else one that restarted, else one that is not ready.
pub(crate) fn failing_pod<'a>(
    rollout: &Rollout,
    own: &Stamp,
    pods: &'a [Pod],
    reported: Option<&RolloutFailure>,
) -> Option<&'a Pod> {
    let rank = |pod: &Pod| {
        let found = failure::of_pod(pod);
        let same = found.is_some()
            && found.as_ref().map(|found| (&found.reason, &found.container))
                == reported.map(|reported| (&reported.reason, &reported.container));
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        // Between two ends of its container, the pod has no failure, and another one may.
        let is_named = reported.is_some_and(|reported| names(&reported.message, pods::name(pod)));
        (!is_named, !same, found.is_none(), pods::restarts(pod) == 0, pods::is_ready(pod), is_deleted)
    };
    let new = pods.iter().filter(|pod| pods::is_new(rollout, own, pod));
    new.min_by_key(|pod| (rank(pod), pods::name(pod).to_owned()))
}

/// Whether the message of a failure is about the pod of this name.
fn names(message: &str, pod: &str) -> bool {
    let is_whole = |rest: &str| rest.strip_prefix(pod).is_some_and(|rest| rest.starts_with([':', ' ']));
    message.split("pod ").skip(1).any(is_whole)
}

/// The container of the pod that shows best what is wrong.
pub(crate) fn failing_container<'a>(pod: &'a Pod, reported: Option<&RolloutFailure>) -> Option<&'a ContainerStatus> {
    let found = failure::of_pod(pod).and_then(|failure| failure.container);
    let reported = reported.and_then(|failure| failure.container.as_ref());
    let named = |name: &String| pods::statuses(pod).find(|status| status.name == *name);
    reported.and_then(named).or_else(|| found.as_ref().and_then(named)).or_else(|| {
        pods::statuses(pod)
            .filter(|status| !is_done(status))
            .min_by_key(|status| (status.restart_count == 0, status.ready))
    })
}

/// Whether an init container has done its work.
fn is_done(status: &ContainerStatus) -> bool {
    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

/// Whether the container was restarted, so that the log to read is that of its previous run. After its first end it is restarted
/// at once, and may be so by the time that the log is read.
pub(crate) fn has_crashed(status: &ContainerStatus) -> bool {
    let over = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let before = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
    if over { status.restart_count == 0 } else { before }
}

/// The container's state in one line; without a container, the reason why the pod has none yet.
pub(crate) fn state(pod: &Pod, status: Option<&ContainerStatus>) -> Option<String> {
    let Some(status) = status else {
        let phase = pod.status.as_ref()?.phase.as_deref().unwrap_or("Unknown");
        let why = failure::of_pod(pod).map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        return Some(line(&format!("pod {phase}{why}")));
    };
    let now = status.state.as_ref()?;
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let restarts = match status.restart_count {
        0 => String::new(),
        count => format!("; {count} restarts"),
    };
    let is_over = now.terminated.is_some();
    let present = if let Some(waiting) = &now.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("no reason given");
        let message = waiting.message.as_deref().map(|text| format!(" ({})", shortened(text))).unwrap_or_default();
        format!("waiting: {reason}{message}")
    } else if let Some(ended) = &now.terminated {
        terminated(ended)
    } else if status.ready {
        "running and ready".to_owned()
    } else {
        "running, not ready".to_owned()
    };
    // How the container ended says why; that it waits, or runs for the next few seconds, does not.
    Some(line(&match last.map(terminated) {
        Some(last) if is_over => format!("{present}; before that {last}{restarts}"),
        Some(last) => format!("{last}{restarts}; now {present}"),
        None => format!("{present}{restarts}"),
    }))
}

fn terminated(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().filter(|reason| *reason != "Error");
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let message = ended.message.as_deref().map(|text| format!(" {}", shortened(text))).unwrap_or_default();
    format!("terminated: exit code {}{reason}{message}", ended.exit_code)
}

/// Adds a page of a list to the events that are kept: the newest, oldest first.
pub(crate) fn keep_events(all: &mut Vec<Event>, page: impl Iterator<Item = Event>) {
    all.extend(page);
    all.sort_by_cached_key(last_seen);
    all.drain(..all.len().saturating_sub(KEPT_EVENTS));
}

/// The time at which the event was observed last.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let micro = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
    let series = event.series.as_ref().and_then(|series| micro(&series.last_observed_time));
    let seconds = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
    series.max(seconds).max(micro(&event.event_time))
}

/// The last events, oldest first, one line each.
pub(crate) fn event_lines(mut events: Vec<Event>) -> Vec<String> {
    events.sort_by_cached_key(last_seen);
    let skipped = events.len().saturating_sub(EVENTS);
    events.into_iter().skip(skipped).map(|event| line(&event_line(&event))).collect()
}

fn event_line(event: &Event) -> String {
    let count = event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1);
    let times = if count > 1 { format!(" (x{count})") } else { String::new() };
    let type_ = event.type_.as_deref().unwrap_or("Normal");
    let reason = event.reason.as_deref().unwrap_or_default();
    format!("{type_} {reason}{times}: {}", event.message.as_deref().unwrap_or_default().trim())
}

/// The last lines of a log, oldest first.
pub(crate) fn log_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|text| line(text)).collect()
}

fn line(text: &str) -> String {
    text.chars().map(|character| if character == '\n' { ' ' } else { character }).take(LINE).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::{object::STAMP, samples};

    fn container(name: &str, ready: bool, restarts: u32, state: Value, last: Value) -> Value {
        json!({"name": name, "image": "api:1", "imageID": "", "ready": ready, "restartCount": restarts, "state": state,
               "lastState": last})
    }

    fn pod(name: &str, revision: u64, containers: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {STAMP: samples::rollout(revision).id.to_string()}},
            "status": {"phase": "Running", "containerStatuses": containers},
        }))
        .unwrap()
    }

    fn crashed() -> Value {
        container(
            "app",
            false,
            3,
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}),
            json!({"terminated": {"exitCode": 1, "reason": "Error"}}),
        )
    }

    #[test]
    fn pod_with_the_reported_failure_is_the_evidence() {
        let pull = container("app", false, 0, json!({"waiting": {"reason": "ErrImagePull"}}), json!({}));
        let fine = container("app", true, 0, json!({"running": {}}), json!({}));
        let pods = [
            pod("old", 4, json!([crashed()])),
            pod("fine", 5, json!([fine])),
            pod("pull", 5, json!([pull])),
            pod("crash", 5, json!([crashed()])),
        ];
        let failing = |revision: u64, reported: Option<&RolloutFailure>| {
            let rollout = samples::rollout(revision);
            failing_pod(&rollout, &Stamp::Deploy(rollout.id), &pods, reported).map(pods::name)
        };
        assert_eq!(failing(5, failure::of_pod(&pods[2]).as_ref()), Some("pull"));
        let runs = RolloutFailure {
            message: "container app of pod fine: it exited with code 1, 2 restarts".to_owned(),
            ..failure::of_pod(&pods[3]).unwrap()
        };
        assert_eq!(failing(5, Some(&runs)), Some("fine"), "it runs again, and is the one that failed the deploy");
        assert!(!names("container app of pod fine-2: it exited", "fine"));
        assert_eq!(failing(5, None), Some("crash"));
        assert_eq!(failing(6, None), None);
        let (restore, kept) = (samples::rollout(6), Stamp::Deploy(samples::rollout(4).id));
        assert_eq!(failing_pod(&restore, &kept, &pods, None).map(pods::name), Some("old"), "it is the restore's own");
    }

    #[test]
    fn failing_container_is_the_crashed_one() {
        let fine = container("proxy", true, 0, json!({"running": {}}), json!({}));
        let pod = pod("api-1", 5, json!([fine, crashed()]));
        let found = failing_container(&pod, None).unwrap();
        assert_eq!(found.name, "app");
        assert!(has_crashed(found));
        for (restarts, crashed) in [(0, true), (1, false)] {
            let ended = container("app", false, restarts, json!({"terminated": {"exitCode": 1}}), json!({}));
            let status: ContainerStatus = serde_json::from_value(ended).unwrap();
            assert_eq!(has_crashed(&status), crashed, "{restarts} restarts");
        }
        assert_eq!(
            state(&pod, Some(found)).unwrap(),
            "terminated: exit code 1; 3 restarts; now waiting: CrashLoopBackOff (back-off 40s)"
        );
    }

    #[test]
    fn pod_without_containers_has_its_phase_as_state() {
        let pod = pod("api-1", 5, json!([]));
        assert_eq!(state(&pod, failing_container(&pod, None)).as_deref(), Some("pod Running"));
    }

    #[test]
    fn events_are_sorted_counted_and_bounded() {
        let event = |second: usize, count: i32| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "type": "Warning", "reason": "Failed", "count": count,
                "message": format!("no {second}\nreally"), "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            }))
            .unwrap()
        };
        let lines = event_lines((0..30).rev().map(|second| event(second, second as i32)).collect());
        assert_eq!(lines.len(), EVENTS);
        assert_eq!(lines.last().unwrap(), "Warning Failed (x29): no 29 really");
        assert!(lines[0].contains("no 20"));
    }

    #[test]
    fn log_is_cut_to_its_last_lines() {
        let text: String = (0..200).map(|at| format!("{at} {}\n", "x".repeat(1000))).collect();
        let lines = log_lines(&text);
        assert_eq!(lines.len(), LOG_LINES);
        assert!(lines[0].starts_with("150 ") && lines[49].starts_with("199 "));
        assert!(lines.iter().all(|line| line.chars().count() <= LINE));
        assert!(log_lines("").is_empty());
    }
}
