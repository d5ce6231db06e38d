//! What can be collected of a failing pod before anything is put right: its state, its events, its last log lines.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, LogParams};
use rollhook_core::{Result, deploy::Evidence, ports::RolloutFailure};

use crate::{
    client::Cluster,
    rules::{pods, proof},
    workload::Rollout,
};

/// How long to collect; what has not come by then is left out.
const COLLECT: Duration = Duration::from_secs(5);
/// How much of a log to read, in bytes: its last lines could be of any length.
const LOG_BYTES: i64 = 256 * 1024;

/// What there is about the order's failing pods.
pub(crate) async fn evidence(cluster: &Cluster, order: &Rollout, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
    let namespace = order.app.namespace.as_str();
    let object = cluster.workload(namespace, order.workload.kind, &order.workload.name).await?;
    let selector = object.as_ref().and_then(|object| object.selector());
    let pods = cluster.pods(namespace, selector).await?;
    let Some(pod) = proof::failing_pod(order, &pods, trouble) else {
        let uid = object.as_ref().and_then(|object| object.metadata().uid.as_deref());
        let events = within(events(cluster, namespace, uid)).await;
        return Ok(Evidence { events, ..Evidence::default() });
    };
    let failing = proof::failing_container(pod, trouble);
    let container = failing.map(|status| status.name.clone());
    let log = async {
        match &container {
            Some(container) => log(cluster, namespace, pod, container, failing.is_some_and(proof::has_crashed)).await,
            None => Vec::new(),
        }
    };
    // Both at once: a kubelet that does not answer must not cost the events.
    let (events, log) =
        futures_util::join!(within(events(cluster, namespace, pod.metadata.uid.as_deref())), within(log));
    Ok(Evidence { pod: Some(pods::name(pod).to_owned()), state: proof::state(pod, failing), container, events, log })
}

/// What came in time, or nothing.
async fn within(collect: impl Future<Output = Vec<String>>) -> Vec<String> {
    tokio::time::timeout(COLLECT, collect).await.unwrap_or_default()
}

async fn events(cluster: &Cluster, namespace: &str, uid: Option<&str>) -> Vec<String> {
    let Some(uid) = uid else { return Vec::new() };
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    match cluster.api::<Event>(namespace).list(&about).await {
        Ok(events) => proof::event_lines(events.items),
        Err(error) => {
            tracing::debug!(namespace, error = %error, "no events as evidence");
            Vec::new()
        }
    }
}

/// The last lines of the container's log: of the run that failed, and where that one is gone, of the present one.
async fn log(cluster: &Cluster, namespace: &str, pod: &Pod, container: &str, crashed: bool) -> Vec<String> {
    let tries: &[bool] = if crashed { &[true, false] } else { &[false] };
    for &previous in tries {
        let parameters = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: i64::try_from(proof::LOG_LINES).ok(),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        match cluster.api::<Pod>(namespace).logs(pods::name(pod), &parameters).await {
            Ok(text) if !text.trim().is_empty() => return proof::log_lines(&text),
            Ok(_) => {}
            Err(error) => tracing::debug!(namespace, pod = pods::name(pod), error = %error, "no log as evidence"),
        }
    }
    Vec::new()
}
