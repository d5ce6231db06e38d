//! Brings a workload to an order: read, decide, one guarded patch, and again where somebody else was faster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use rollhook_core::{Error, Result, deploy::Reason, ports::Applied};

use crate::{
    client::Cluster,
    error,
    rules::{
        fence::{self, Verdict},
        object::Object,
        patch, stuck, template,
    },
    workload::{Rollout, Template, WorkloadKind},
};

/// How often a workload is read again because it changed in between; controllers write its status all the time.
const ATTEMPTS: u32 = 12;
/// How long to wait before it is read again; grows with each attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// Brings the workload to the order, unless it is at a newer one or must not be touched.
pub(crate) async fn apply(cluster: &Cluster, order: &Rollout) -> Result<Applied> {
    for attempt in 0..ATTEMPTS {
        tokio::time::sleep(PAUSE * attempt).await;
        if let Some(applied) = attempt_once(cluster, order).await? {
            if applied == Applied::Done && !order.adopted {
                match free_stuck_pods(cluster, order).await {
                    // The order stands: to call it refused would be to say that nothing was changed.
                    Err(error) if !error.is_unavailable() => {
                        tracing::warn!(app = %order.app, error = %error.chain(), "pods that may block the rollout stay");
                    }
                    freed => freed?,
                }
            }
            return Ok(applied);
        }
    }
    Err(Error::Conflict("the workload is changed faster than it can be patched"))
}

/// One reading and at most one writing; none where the two did not fit together.
async fn attempt_once(cluster: &Cluster, order: &Rollout) -> Result<Option<Applied>> {
    let namespace = order.app.namespace.as_str();
    let Some(object) = cluster.workload(namespace, order.workload.kind, &order.workload.name).await? else {
        return create(cluster, order).await;
    };
    match fence::decide(&object, order) {
        Verdict::Patch => {}
        Verdict::Settled => return Ok(Some(Applied::Done)),
        Verdict::Newer(revision) => return Ok(Some(Applied::Newer(revision))),
        Verdict::Refused { reason, message } => return Ok(Some(Applied::Refused { reason, message })),
    }
    match cluster.patch(namespace, &object, &patch::patch(&object, order)).await {
        Ok(()) => Ok(Some(Applied::Done)),
        Err(failure) => match error::refusal(&failure) {
            Some(said) => Ok(Some(refused(format!("the cluster refuses the change of {}: {said}", object.title())))),
            None => read_again(failure),
        },
    }
}

/// Nothing yet, where the failure says that the object has changed or is gone; a patch whose answer was lost on the way
/// shows itself by our stamp when the object is read again.
fn read_again(failure: kube::Error) -> Result<Option<Applied>> {
    match error::is_conflict(&failure) || error::is_not_found(&failure) || error::is_already_exists(&failure) {
        true => Ok(None),
        false => Err(error::classify(failure)),
    }
}

async fn create(cluster: &Cluster, order: &Rollout) -> Result<Option<Applied>> {
    let Rollout { workload, app, .. } = order;
    let missing = |what: String| Some(Applied::Refused { reason: Reason::new(Reason::TARGET_MISSING), message: what });
    let title = format!("{} {} in the namespace {}", workload.kind, workload.name, app.namespace);
    let template = match &workload.template {
        Some(template) if workload.kind == WorkloadKind::Deployment && !order.adopted => template,
        Some(_) | None => return Ok(missing(format!("there is no {title}: create it, then deploy again"))),
    };
    let namespace = app.namespace.as_str();
    // The Service first: once the Deployment is there, it carries our stamp, and nothing would look for a Service.
    let service = match ensure_service(cluster, order, template).await {
        Ok(service) => service,
        Err(failure) if error::is_not_found(&failure) => return Ok(missing(no_namespace(order))),
        Err(failure) => {
            let said = error::refusal(&failure).ok_or_else(|| error::classify(failure))?;
            return Ok(Some(refused(format!("the cluster refuses a Service for {title}: {said}"))));
        }
    };
    let Err(failure) = cluster.create(namespace, &template::deployment(order, template)).await else {
        return Ok(Some(Applied::Done));
    };
    let refusal = match error::is_not_found(&failure) {
        true => missing(no_namespace(order)),
        false => error::refusal(&failure).map(|said| refused(format!("the cluster refuses the {title}: {said}"))),
    };
    if let (Some(_), Some(service)) = (&refusal, service) {
        cluster.delete_service(namespace, &service).await?;
    }
    refusal.map_or_else(|| read_again(failure), |refusal| Ok(Some(refusal)))
}

/// The Service, where it was made just now; one that is there already is left as it is.
async fn ensure_service(cluster: &Cluster, order: &Rollout, template: &Template) -> kube::Result<Option<Service>> {
    let Some(service) = template::service(order, template) else { return Ok(None) };
    match cluster.create(order.app.namespace.as_str(), &service).await {
        Ok(service) => Ok(Some(service)),
        Err(failure) if error::is_already_exists(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn no_namespace(order: &Rollout) -> String {
    let namespace = &order.app.namespace;
    format!("there is no namespace {namespace} in the cluster: kubectl create namespace {namespace}, then deploy again")
}

fn refused(message: String) -> Applied {
    Applied::Refused { reason: Reason::new(Reason::REFUSED), message }
}

/// How often to look whether the controller has seen the new revision.
const LOOKS: u32 = 10;
/// How long to wait between looks.
const LOOK: Duration = Duration::from_millis(150);

/// Deletes the pods that keep a StatefulSet from moving on to the order. Repeated with the order, like everything here:
/// a deletion that did not happen is made up for when the order is applied again.
async fn free_stuck_pods(cluster: &Cluster, order: &Rollout) -> Result<()> {
    if order.workload.kind != WorkloadKind::StatefulSet {
        return Ok(());
    }
    let namespace = order.app.namespace.as_str();
    for look in 0..LOOKS {
        let object = cluster.workload(namespace, order.workload.kind, &order.workload.name).await?;
        let Some(Object::StatefulSet(set)) = object.filter(|object| object.mark().stamp() == Some(order.stamp)) else {
            return Ok(());
        };
        // Until then the controller would make the pod from the broken revision once more.
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        if observed < set.metadata.generation && look + 1 < LOOKS {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let pods = cluster.pods(namespace, set.spec.as_ref().map(|spec| &spec.selector)).await?;
        for pod in stuck::stuck(&set, order.stamp, &pods) {
            if !still_ours(cluster, order).await? {
                return Ok(());
            }
            delete(cluster, namespace, pod).await?;
        }
        return Ok(());
    }
    Ok(())
}

async fn still_ours(cluster: &Cluster, order: &Rollout) -> Result<bool> {
    let object = cluster.workload(order.app.namespace.as_str(), order.workload.kind, &order.workload.name).await?;
    Ok(object.is_some_and(|object| object.mark().stamp() == Some(order.stamp)))
}

async fn delete(cluster: &Cluster, namespace: &str, pod: &k8s_openapi::api::core::v1::Pod) -> Result<()> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match cluster.delete_pod(namespace, pod).await {
        Err(error) if error.is_unavailable() => Err(error),
        // The order itself stands; if the pod stays, the rollout's deadline says so.
        Err(error) => {
            tracing::warn!(namespace, pod = name, error = %error.chain(), "a pod that blocks the rollout cannot be deleted");
            Ok(())
        }
        Ok(()) => {
            tracing::info!(namespace, pod = name, "deleted a pod of an older revision that blocked the rollout");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
