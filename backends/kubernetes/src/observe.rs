//! Reads what there is to be seen: of a workload for its registration, and of an order's rollout.

use rollhook_core::{
    Result,
    app::{AppId, WorkloadKind},
    ports::{ContainerInfo, Observation, RolloutSpec, WorkloadInfo},
};

use crate::{
    client::Cluster,
    rules::{
        object::{Mark, STAMP},
        observation,
    },
};

/// The workload as it is.
pub(crate) async fn inspect(
    cluster: &Cluster,
    app: &AppId,
    kind: WorkloadKind,
    name: &str,
) -> Result<Option<WorkloadInfo>> {
    let Some(object) = cluster.workload(app.namespace.as_str(), kind, name).await? else { return Ok(None) };
    let containers = object.containers().iter().map(|container| ContainerInfo {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
    });
    let mark = object.mark();
    let unreadable = match &mark {
        Mark::Unreadable(text) => Some(format!("its annotation {STAMP}={text:?} is no stamp of ours: remove it")),
        Mark::Absent | Mark::Stamp(_) => None,
    };
    Ok(Some(WorkloadInfo {
        containers: containers.collect(),
        stamp: mark.stamp(),
        unsupported: object.unsupported().or(unreadable),
    }))
}

/// What is to be seen of the order now.
pub(crate) async fn observe(cluster: &Cluster, order: &RolloutSpec) -> Result<Observation> {
    let namespace = order.app.namespace.as_str();
    let Some(object) = cluster.workload(namespace, order.workload.kind, &order.workload.name).await? else {
        return Ok(observation::of_missing(order));
    };
    // After the workload: what the pods say is never older than what its controller counted.
    let pods = cluster.pods(namespace, object.selector()).await?;
    Ok(observation::of(order, &object, &pods))
}
