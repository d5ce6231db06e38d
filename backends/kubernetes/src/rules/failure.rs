//! The failure of a pod, with Kubernetes' own reason and a sentence that says what to do.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use rollhook_core::{
    deploy::Reason,
    image::is_refused_for_good,
    ports::{RolloutFailure, RolloutFailureKind},
};

use super::pods;
use crate::error::shortened;

/// The code of containers that end again and again.
const CRASH: &str = "CrashLoopBackOff";

/// The failure to report of several pods: the most telling kind, of the pod with the first name, so that it stays the
/// same from one observation to the next.
pub(crate) fn worst<'a>(pods: impl Iterator<Item = &'a Pod>) -> Option<RolloutFailure> {
    pods.filter_map(|pod| Some((of_pod(pod)?, pods::name(pod))))
        .min_by_key(|(failure, pod)| (failure.kind, *pod))
        .map(|(failure, _)| failure)
}

/// The failure of a pod, if any.
pub(crate) fn of_pod(pod: &Pod) -> Option<RolloutFailure> {
    let containers = pods::statuses(pod).filter_map(|status| of_container(pods::name(pod), status));
    containers.min_by_key(|failure| failure.kind).or_else(|| unschedulable(pod))
}

fn of_container(pod: &str, status: &ContainerStatus) -> Option<RolloutFailure> {
    let (kind, reason, problem) = waiting(status).or_else(|| stopped(status))?;
    Some(RolloutFailure {
        kind,
        reason: Reason::new(reason),
        container: Some(status.name.clone()),
        message: format!("container {} of pod {pod}: {problem}", status.name),
    })
}

fn waiting(status: &ContainerStatus) -> Option<(RolloutFailureKind, &str, String)> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let message = waiting.message.as_deref().map_or_else(|| reason.to_owned(), shortened);
    let image = shortened(&status.image);
    Some(match reason {
        // The two alternate while the kubelet tries again: they share one code.
        "ErrImagePull" | "ImagePullBackOff" => (
            // The registry's words stand at the end of a long sentence.
            if waiting.message.as_deref().is_some_and(is_refused_for_good) {
                RolloutFailureKind::Final
            } else {
                RolloutFailureKind::Image
            },
            "ImagePullBackOff",
            format!(
                "the image {image} cannot be pulled ({message}): check that it was pushed, its name, and the pull secret"
            ),
        ),
        "InvalidImageName" | "ErrImageNeverPull" | "SignatureValidationFailed" => (
            RolloutFailureKind::Final,
            reason,
            format!("the image {image} cannot be used ({message}): check its name and policy"),
        ),
        "ImageInspectError" | "RegistryUnavailable" => (
            RolloutFailureKind::Image,
            reason,
            format!("the image {image} cannot be used ({message}): look at the registry and the node"),
        ),
        "CrashLoopBackOff" | "RunContainerError" | "StartError" | "PostStartHookError" => {
            (RolloutFailureKind::Crash, reason, crash(status, &message))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "PreStartHookError" | "PreCreateHookError" => (
            RolloutFailureKind::Config,
            reason,
            format!("it cannot be made from its configuration ({message}): correct the workload or what it refers to"),
        ),
        _ => return None,
    })
}

/// A container that failed and is about to be started again.
fn stopped(status: &ContainerStatus) -> Option<(RolloutFailureKind, &'static str, String)> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    (ended.exit_code != 0 && ended_by_itself(ended))
        .then(|| (RolloutFailureKind::Crash, CRASH, crash(status, "it will be started again")))
}

/// The failure of a pod that is not ready, and of which a container ended and runs again.
pub(crate) fn restarted(pod: &Pod) -> Option<RolloutFailure> {
    let again = |status: &&ContainerStatus| {
        let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        status.state.as_ref().is_some_and(|state| state.running.is_some()) && ended.is_some_and(ended_by_itself)
    };
    let status = pods::main_statuses(pod).find(again)?;
    Some(RolloutFailure {
        kind: RolloutFailureKind::Crash,
        reason: Reason::new(CRASH),
        container: Some(status.name.clone()),
        message: format!("container {} of pod {}: {}", status.name, pods::name(pod), crash(status, "it runs again")),
    })
}

/// Whether the container ended, and not its node or the runtime there, which then know no more of it.
fn ended_by_itself(ended: &ContainerStateTerminated) -> bool {
    !matches!(ended.reason.as_deref(), Some("Unknown" | "ContainerStatusUnknown"))
}

/// The kind of the controller's failure to make pods, by the API server's refusal.
pub(crate) fn of_creation(refusal: &str) -> RolloutFailureKind {
    let says = |words: &[&str]| words.iter().any(|words| refusal.contains(words));
    if says(&["denied the request", "violates PodSecurity"]) {
        RolloutFailureKind::Final
    } else if says(&[
        "exceeded quota",
        "status unknown for quota",
        "not yet ready to handle request",
        "failed calling webhook",
        "try again",
        "timeout",
        "Too Many Requests",
    ]) {
        RolloutFailureKind::Capacity
    } else if says(&["error looking up service account", "not found", "was found"]) {
        // It may be made yet, beside the workload.
        RolloutFailureKind::Config
    } else if says(&["is forbidden", "is invalid", "Invalid value"]) {
        RolloutFailureKind::Final
    } else {
        RolloutFailureKind::Config
    }
}

fn crash(status: &ContainerStatus, message: &str) -> String {
    let state = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    match state.or(last) {
        None => format!("it cannot be kept running ({message}): see its log"),
        Some(ended) if ended.reason.as_deref() == Some("OOMKilled") => format!(
            "it ran out of memory (OOMKilled) and was restarted {} times: raise its memory limit, or let it use \
             less",
            status.restart_count
        ),
        Some(ended) if status.restart_count == 0 => format!("it {}: see its log for why", ending(ended)),
        Some(ended) => {
            format!("it {}, {} restarts: see its log for why", ending(ended), status.restart_count)
        }
    }
}

fn ending(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().map(|text| format!(", {}", shortened(text))).unwrap_or_default();
    match (ended.signal, ended.reason.as_deref()) {
        (Some(signal), _) if signal > 0 => format!("was ended by signal {signal}{message}"),
        (_, Some(reason @ ("StartError" | "ContainerCannotRun"))) => format!("cannot be started ({reason}{message})"),
        _ => format!("exited with code {}{message}", ended.exit_code),
    }
}

fn unschedulable(pod: &Pod) -> Option<RolloutFailure> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let condition = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    let message = condition.message.as_deref().map_or_else(|| "no reason given".to_owned(), shortened);
    Some(RolloutFailure {
        kind: RolloutFailureKind::Capacity,
        reason: Reason::new("Unschedulable"),
        container: None,
        message: format!(
            "no node takes the pod {} ({message}): add nodes, or ask for less in its requests and node selectors",
            pods::name(pod)
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
    }

    fn container(state: Value, restarts: u32, last: Value) -> Value {
        json!({"name": "app", "image": "r.example.com/api:v2", "imageID": "", "ready": false, "restartCount": restarts,
               "state": state, "lastState": last})
    }

    fn of(state: Value, restarts: u32, last: Value) -> Option<(RolloutFailureKind, String, String)> {
        let pod = pod("api-1", json!({"containerStatuses": [container(state, restarts, last)]}));
        of_pod(&pod).map(|failure| {
            assert_eq!(failure.container.as_deref(), Some("app"));
            (failure.kind, failure.reason.as_str().to_owned(), failure.message)
        })
    }

    #[test]
    fn an_image_that_the_registry_has_not_is_no_matter_of_patience() {
        let kind = |message: &str| {
            of(json!({"waiting": {"reason": "ErrImagePull", "message": message}}), 0, json!({})).unwrap().0
        };
        assert_eq!(kind("failed to resolve reference \"r/api:v9\": r/api:v9: not found"), RolloutFailureKind::Final);
        let long = format!("{}: failed to resolve reference \"r/api:v9\": r/api:v9: not found", "x".repeat(2000));
        assert_eq!(kind(&long), RolloutFailureKind::Final, "also at the end of a long sentence");
        assert_eq!(kind("dial tcp 10.0.0.1:443: connect: connection refused"), RolloutFailureKind::Image);
    }

    #[test]
    fn refusals_to_make_pods_are_classified() {
        for (refusal, kind) in [
            ("pods \"api-x\" is forbidden: exceeded quota: small", RolloutFailureKind::Capacity),
            ("Internal error occurred: failed calling webhook \"w\": connection refused", RolloutFailureKind::Capacity),
            (
                "pods \"api-\" is forbidden: error looking up service account a/b: serviceaccount \"b\" not found",
                RolloutFailureKind::Config,
            ),
            ("pods \"api-x\" is forbidden: violates PodSecurity \"restricted:latest\"", RolloutFailureKind::Final),
            ("admission webhook \"policy\" denied the request: no latest tags", RolloutFailureKind::Final),
            ("pods \"x\" is forbidden: not yet ready to handle request", RolloutFailureKind::Capacity),
            ("pods \"x\" is forbidden: status unknown for quota: small", RolloutFailureKind::Capacity),
            ("pods \"x\" is forbidden: no PriorityClass with name high was found", RolloutFailureKind::Config),
            ("admission webhook \"p\" denied the request: a timeout must be set", RolloutFailureKind::Final),
            ("something else", RolloutFailureKind::Config),
        ] {
            assert_eq!(of_creation(refusal), kind, "{refusal}");
        }
    }

    #[test]
    fn waiting_reasons_are_classified() {
        let cases = [
            ("ErrImagePull", RolloutFailureKind::Image, "ImagePullBackOff"),
            ("ImagePullBackOff", RolloutFailureKind::Image, "ImagePullBackOff"),
            ("InvalidImageName", RolloutFailureKind::Final, "InvalidImageName"),
            ("ErrImageNeverPull", RolloutFailureKind::Final, "ErrImageNeverPull"),
            ("RegistryUnavailable", RolloutFailureKind::Image, "RegistryUnavailable"),
            ("CrashLoopBackOff", RolloutFailureKind::Crash, "CrashLoopBackOff"),
            ("RunContainerError", RolloutFailureKind::Crash, "RunContainerError"),
            ("CreateContainerConfigError", RolloutFailureKind::Config, "CreateContainerConfigError"),
            ("CreateContainerError", RolloutFailureKind::Config, "CreateContainerError"),
        ];
        for (reason, kind, code) in cases {
            let (found, found_code, message) =
                of(json!({"waiting": {"reason": reason, "message": "as it is"}}), 0, json!({})).unwrap();
            assert_eq!((found, found_code.as_str()), (kind, code));
            assert!(message.contains("container app of pod api-1: "), "{message}");
        }
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(of(json!({"waiting": {"reason": reason}}), 0, json!({})), None);
        }
        assert_eq!(of(json!({"waiting": {}}), 0, json!({})), None);
        assert_eq!(of(json!({"running": {}}), 4, json!({})), None);
    }

    #[test]
    fn crash_says_how_the_container_ended() {
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
        let cases = [
            (json!({"terminated": {"exitCode": 3, "reason": "Error"}}), "it exited with code 3, 5 restarts"),
            (json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), "it exited with code 0, 5 restarts"),
            (json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "ran out of memory (OOMKilled)"),
            (json!({"terminated": {"exitCode": 139, "signal": 11}}), "it was ended by signal 11"),
            (
                json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: \"run\": not found"}}),
                "it cannot be started (StartError, exec: \"run\": not found)",
            ),
            (json!({}), "it cannot be kept running (back-off 40s)"),
        ];
        for (last, expected) in cases {
            let (_, _, message) = of(back_off.clone(), 5, last).unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn container_that_ended_with_a_code_is_a_crash() {
        let failed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let (kind, reason, _) = of(failed.clone(), 1, json!({})).unwrap();
        assert_eq!((kind, reason.as_str()), (RolloutFailureKind::Crash, "CrashLoopBackOff"));
        assert_eq!(of(failed, 0, json!({})).unwrap().0, RolloutFailureKind::Crash, "its first end counts");
        assert_eq!(of(json!({"terminated": {"exitCode": 0}}), 1, json!({})), None);
    }

    #[test]
    fn init_container_fails_the_pod() {
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let mut init = container(back_off, 2, json!({"terminated": {"exitCode": 1}}));
        init["name"] = json!("migrate");
        let waits = container(json!({"waiting": {"reason": "PodInitializing"}}), 0, json!({}));
        let pod = pod("api-1", json!({"initContainerStatuses": [init], "containerStatuses": [waits]}));
        assert_eq!(of_pod(&pod).unwrap().container.as_deref(), Some("migrate"));
    }

    #[test]
    fn pod_without_a_node_is_unschedulable() {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                               "message": "0/2 nodes are available: 2 Insufficient cpu."});
        let failure = of_pod(&pod("api-1", json!({"conditions": [condition]}))).unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Capacity, "Unschedulable"));
        assert!(failure.message.contains("2 Insufficient cpu"), "{}", failure.message);
        let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"});
        assert_eq!(of_pod(&pod("api-1", json!({"conditions": [gated]}))), None);
    }

    #[test]
    fn worst_failure_is_independent_of_the_order_of_pods() {
        let pull =
            json!({"containerStatuses": [container(json!({"waiting": {"reason": "ErrImagePull"}}), 0, json!({}))]});
        let nowhere = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        let pods = [pod("a", nowhere), pod("c", pull.clone()), pod("b", pull)];
        let first = worst(pods.iter()).unwrap();
        assert_eq!(worst(pods.iter().rev()).unwrap(), first);
        assert!(first.message.contains("pod b"), "{}", first.message);
    }
}
