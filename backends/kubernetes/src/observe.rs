//! Reads what there is to be seen: of a workload for its registration, and of an order's rollout.

use rollhook_core::{
    Result,
    ports::{Observation, TargetRequest, Validated},
};

use crate::{
    client::Cluster,
    rules::{
        object::{Mark, Object, STAMP},
        observation,
        registration::{Wanted, WorkloadInfo},
    },
    workload::Rollout,
};

/// The settings that a registration gets, by the workload as it is.
pub(crate) async fn validate(cluster: &Cluster, request: &TargetRequest) -> Result<Validated> {
    let wanted = match Wanted::of(request) {
        Ok(wanted) => wanted,
        Err(invalid) => return Ok(Validated::Invalid(invalid)),
    };
    let object = cluster.workload(request.app.namespace.as_str(), wanted.kind(), &wanted.name).await?;
    Ok(wanted.answer(object.as_ref().map(info).as_ref()))
}

fn info(object: &Object) -> WorkloadInfo {
    let containers = object.containers().iter();
    let mark = object.mark();
    let unreadable = match &mark {
        Mark::Unreadable(text) => Some(format!("its annotation {STAMP}={text:?} is no stamp of ours: remove it")),
        Mark::Absent | Mark::Stamp(_) => None,
    };
    WorkloadInfo {
        containers: containers
            .map(|container| (container.name.clone(), container.image.clone().unwrap_or_default()))
            .collect(),
        stamp: mark.stamp(),
        unsupported: object.unsupported().or(unreadable),
    }
}

/// What is to be seen of the order now.
pub(crate) async fn observe(cluster: &Cluster, order: &Rollout) -> Result<Observation> {
    let namespace = order.app.namespace.as_str();
    let Some(object) = cluster.workload(namespace, order.workload.kind, &order.workload.name).await? else {
        return Ok(observation::of_missing(order));
    };
    // After the workload: what the pods say is never older than what its controller counted.
    let pods = cluster.pods(namespace, object.selector()).await?;
    Ok(observation::of(order, &object, &pods))
}
