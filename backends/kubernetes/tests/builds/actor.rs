//! Plays the builder's container: the first digit of a commit decides the outcome of its build.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The first digit of a commit, by what its build does.
pub(crate) mod digit {
    pub(crate) const GOOD: char = '1';
    pub(crate) const HANGS: char = '2';
    pub(crate) const FAILS: char = '3';
    pub(crate) const MISSING: char = '4';
    pub(crate) const AMBIGUOUS: char = '5';
    pub(crate) const OUT_OF_MEMORY: char = '6';
    pub(crate) const EVICTED: char = '7';
    pub(crate) const SAYS_NOTHING: char = '8';
    pub(crate) const CANNOT_BE_PULLED: char = '9';
    pub(crate) const LIES: char = 'a';
    pub(crate) const DISRUPTED_ONCE: char = 'b';
}

/// A commit in full that begins so.
pub(crate) fn full(begins: char) -> String {
    format!("{begins}{}", "0123456789abcdef".repeat(3)).chars().take(40).collect()
}

/// Plays all pods of a namespace until it is dropped.
pub(crate) struct Actor(tokio::task::AbortHandle);

impl Drop for Actor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Actor {
    pub(crate) fn start(client: kube::Client, namespace: &str, state: PathBuf) -> Self {
        let stage = Stage { pods: Api::namespaced(client, namespace), logs: state.join("logs").join(namespace) };
        let play = async move {
            loop {
                // The cluster may be away for a moment, or a pod gone in the middle.
                if let Ok(pods) = stage.pods.list(&ListParams::default()).await {
                    for pod in pods.items {
                        stage.play(&pod).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        Self(tokio::spawn(play).abort_handle())
    }
}

struct Stage {
    pods: Api<Pod>,
    logs: PathBuf,
}

impl Stage {
    /// One step: a pod that was given to a node begins, and one that has begun ends.
    async fn play(&self, pod: &Pod) {
        let status = pod.status.as_ref();
        let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !scheduled || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let begun = status.is_some_and(|status| status.container_statuses.is_some());
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        let next = match (begun, phase) {
            (false, "Pending") => self.begin(pod),
            (true, "Running") => self.end(pod),
            _ => None,
        };
        if let Some(status) = next {
            let name = pod.metadata.name.as_deref().unwrap();
            let patch = Patch::Merge(json!({"status": status}));
            let _ = self.pods.patch_status(name, &PatchParams::default(), &patch).await;
        }
    }

    fn begin(&self, pod: &Pod) -> Option<Value> {
        if begins(pod) == digit::CANNOT_BE_PULLED {
            let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"builder\""});
            return Some(json!({"phase": "Pending", "containerStatuses": [container(json!({"waiting": waiting}))]}));
        }
        let directory = self.logs.join(pod.metadata.name.as_deref().unwrap());
        std::fs::create_dir_all(&directory).unwrap();
        let lines = if begins(pod) == digit::FAILS { "fetched\nstep 1\nit is broken\n" } else { "fetched\nstep 1\n" };
        std::fs::write(directory.join("build"), lines).unwrap();
        Some(json!({"phase": "Running", "containerStatuses": [container(json!({"running": {}}))]}))
    }

    fn end(&self, pod: &Pod) -> Option<Value> {
        let commit = commit_in_full(pod);
        let repository = variable(pod, "ROLLHOOK_IMAGE_REPOSITORY");
        let built =
            |repository: &str| json!({"image": format!("{repository}@sha256:{}", "7".repeat(64)), "commit": commit});
        let failed = |reason: &str, commit: Option<&str>| json!({"reason": reason, "message": "It went wrong.", "commit": commit});
        let disrupted = |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        Some(match begins(pod) {
            digit::GOOD => exits(0, "Completed", Some(built(&repository))),
            digit::FAILS => exits(1, "Error", Some(failed("build-failed", Some(&commit)))),
            digit::MISSING => exits(1, "Error", Some(failed("commit-not-found", None))),
            digit::AMBIGUOUS => exits(1, "Error", Some(failed("commit-ambiguous", None))),
            digit::OUT_OF_MEMORY => exits(137, "OOMKilled", None),
            digit::SAYS_NOTHING => exits(0, "Completed", None),
            digit::LIES => exits(0, "Completed", Some(built("registry.example.com/other/app"))),
            digit::EVICTED => {
                let mut status = exits(137, "Error", None);
                status["reason"] = json!("Evicted");
                status["message"] = json!("The node was low on resource: ephemeral-storage.");
                status["conditions"] = disrupted("TerminationByKubelet");
                status
            }
            digit::DISRUPTED_ONCE if !self.was_disrupted() => {
                std::fs::write(self.logs.join("disrupted"), "").unwrap();
                let mut status = exits(137, "Error", None);
                status["conditions"] = disrupted("PreemptionByScheduler");
                status
            }
            digit::DISRUPTED_ONCE => exits(0, "Completed", Some(built(&repository))),
            _ => return None,
        })
    }

    fn was_disrupted(&self) -> bool {
        self.logs.join("disrupted").exists()
    }
}

fn exits(code: i32, reason: &str, message: Option<Value>) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let mut ended = json!({"exitCode": code, "reason": reason});
    if let Some(message) = message {
        ended["message"] = json!(message.to_string());
    }
    json!({"phase": phase, "containerStatuses": [container(json!({"terminated": ended}))]})
}

fn container(state: Value) -> Value {
    let running = state.get("running").is_some();
    json!({"name": "build", "image": "builder", "imageID": "", "ready": running, "restartCount": 0, "state": state})
}

fn variable(pod: &Pod, name: &str) -> String {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let found = container.env.iter().flatten().find(|variable| variable.name == name);
    found.and_then(|variable| variable.value.clone()).unwrap_or_default()
}

fn begins(pod: &Pod) -> char {
    variable(pod, "ROLLHOOK_COMMIT").chars().next().unwrap()
}

/// As the source would resolve it.
fn commit_in_full(pod: &Pod) -> String {
    full(begins(pod))
}
