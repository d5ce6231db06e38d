//! The evidence of a failing pod, collected before anything is restored: its state, its events, its last log lines.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use rollhook_core::{Result, deploy::Evidence, ports::RolloutFailure};

use crate::{
    client::Cluster,
    rules::{diagnostics, object::Stamp, pods},
    workload::Rollout,
};

/// The time to collect events or a log; they are left out if they take longer.
const COLLECT: Duration = Duration::from_secs(5);

/// The evidence of the rollout's failing pod; without such a pod, the events of the workload.
pub(crate) async fn evidence(
    cluster: &Cluster,
    rollout: &Rollout,
    failure: Option<&RolloutFailure>,
) -> Result<Evidence> {
    let namespace = rollout.namespace();
    let object = cluster.observed_target(rollout).await?;
    let pods = match &object {
        Some(object) => cluster.pods(rollout, object).await?.kept,
        None => Vec::new(),
    };
    let own = object.as_ref().map_or(Stamp::Deploy(rollout.id), |object| object.pods_stamp(rollout.id));
    let Some(pod) = diagnostics::failing_pod(rollout, &own, &pods, failure) else {
        let uid = object.as_ref().and_then(|object| object.metadata().uid.as_deref());
        let events = in_time(events(cluster, namespace, uid)).await;
        return Ok(Evidence { events, ..Evidence::default() });
    };
    let failing = diagnostics::failing_container(pod, failure);
    let container = failing.map(|status| status.name.clone());
    let log = async {
        match &container {
            Some(container) => {
                log(cluster, namespace, pod, container, failing.is_some_and(diagnostics::has_crashed)).await
            }
            None => Vec::new(),
        }
    };
    // Both at once: a kubelet that does not answer must not cost the events.
    let (events, log) =
        futures_util::join!(in_time(events(cluster, namespace, pod.metadata.uid.as_deref())), in_time(log));
    let state = diagnostics::state(pod, failing);
    Ok(Evidence { pod: Some(pods::name(pod).to_owned()), state, container, events, log, ..Evidence::default() })
}

/// The lines, or none if they take too long.
async fn in_time(collect: impl Future<Output = Vec<String>>) -> Vec<String> {
    tokio::time::timeout(COLLECT, collect).await.unwrap_or_default()
}

async fn events(cluster: &Cluster, namespace: &str, uid: Option<&str>) -> Vec<String> {
    let Some(uid) = uid else { return Vec::new() };
    diagnostics::event_lines(cluster.events(namespace, uid).await)
}

/// The last lines of the container's log: of the run that crashed, or of the present run if that log is gone.
async fn log(cluster: &Cluster, namespace: &str, pod: &Pod, container: &str, crashed: bool) -> Vec<String> {
    let runs: &[bool] = if crashed { &[true, false] } else { &[false] };
    for &previous in runs {
        match cluster.log(namespace, pod, container, previous).await {
            Ok(text) if !text.trim().is_empty() => return diagnostics::log_lines(&text),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(namespace, pod = pods::name(pod), error = %error, "reading a log as evidence failed");
            }
        }
    }
    Vec::new()
}
