//! Applies a rollout to its workload: read, decide, one guarded patch; and again if the workload has changed in
//! between.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use rollhook_core::{Error, Result, deploy::Reason, error::Entity, ports::Applied};

use crate::{
    client::Cluster,
    error,
    rules::{
        fence::{self, Decision},
        object::Object,
        patch, pods,
        retained::{self, KeptTemplate},
        stuck_pods, template,
    },
    workload::{Rollout, Template, WorkloadKind},
};

/// The number of attempts on a workload that changes in between; controllers write its status all the time.
const ATTEMPTS: u32 = 12;
/// The pause before the second attempt; each further pause is longer by as much.
const PAUSE: Duration = Duration::from_millis(20);

/// Applies the rollout, unless the workload is at a newer one or must not be touched.
pub(crate) async fn apply(cluster: &Cluster, rollout: &Rollout) -> Result<Applied> {
    for attempt in 0..ATTEMPTS {
        tokio::time::sleep(PAUSE * attempt).await;
        if let Some(applied) = attempt_once(cluster, rollout).await? {
            if applied == Applied::Done && !rollout.adopted {
                match delete_stuck_pods(cluster, rollout).await {
                    Ok(()) => {}
                    Err(error) if may_pass(&error) => return Err(error),
                    // The patch stands: calling the rollout refused would say that nothing was changed.
                    Err(error) => {
                        tracing::warn!(app = %rollout.app, error = %error.chain(), "deleting pods that may block the rollout failed");
                    }
                }
            }
            return Ok(applied);
        }
    }
    Err(Error::Conflict(Entity::Object))
}

/// Reads once and writes at most once. Returns `None` if the workload has changed in between.
async fn attempt_once(cluster: &Cluster, rollout: &Rollout) -> Result<Option<Applied>> {
    let Some(object) = cluster.target(rollout).await? else { return create(cluster, rollout).await };
    match fence::decide(&object, rollout) {
        Decision::Patch => {}
        Decision::UpToDate => return Ok(Some(Applied::Done)),
        Decision::Newer(revision) => return Ok(Some(Applied::Newer(revision))),
        Decision::Refused { reason, message } => return Ok(Some(Applied::Refused { reason, message })),
    }
    let kept = kept(cluster, rollout, &object).await?;
    match cluster.patch(rollout.namespace(), &object, &patch::patch(&object, rollout, kept.as_ref())).await {
        Ok(()) => Ok(Some(Applied::Done)),
        Err(failure) => match error::refusal(&failure) {
            Some(why) => Ok(Some(refused(format!("the cluster refuses the change of {}: {why}", object.title())))),
            None => read_again(failure),
        },
    }
}

/// The retained template that the rollout brings back, if it returns to a version of which one is left.
async fn kept(cluster: &Cluster, rollout: &Rollout, object: &Object) -> Result<Option<KeptTemplate>> {
    if rollout.purpose.returns_to().is_none() || object.selector().is_none() {
        return Ok(None);
    }
    let retained = match cluster.retained(rollout.namespace(), object).await {
        Ok(retained) => retained,
        // Also without the permission, going back is better than staying.
        Err(error @ Error::Denied { .. }) => {
            tracing::warn!(app = %rollout.app, revision = %rollout.id.revision, error = %error.chain(), "reading earlier revisions of a workload failed, so that a restore replaces all pods");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let pods = cluster.pods(rollout, object).await?;
    Ok(retained::find(object, rollout, &retained, &pods.kept))
}

/// Gives the pods of a template that was brought back a template of the rollout's own, whose image is named by its digest.
/// A change of the workload in between leaves that to the next call.
pub(crate) async fn stamp_anew(cluster: &Cluster, rollout: &Rollout, object: &Object) -> Result<()> {
    tracing::warn!(app = %rollout.app, revision = %rollout.id.revision, image = %rollout.image, "restoring by the digest: the tag means another image by now");
    match cluster.patch(rollout.namespace(), object, &patch::patch(object, rollout, None)).await {
        Err(failure) if !error::is_conflict(&failure) => Err(error::classify(failure)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns `None` if the failure says that the object has changed or is gone. A patch whose answer was lost is
/// recognised by our stamp when the object is read again.
fn read_again(failure: kube::Error) -> Result<Option<Applied>> {
    match error::is_conflict(&failure) || error::is_not_found(&failure) || error::is_already_exists(&failure) {
        true => Ok(None),
        false => Err(error::classify(failure)),
    }
}

async fn create(cluster: &Cluster, rollout: &Rollout) -> Result<Option<Applied>> {
    let Rollout { workload, app, .. } = rollout;
    let missing = |message: String| Some(Applied::Refused { reason: Reason::new(Reason::TARGET_MISSING), message });
    let title = format!("{} {} in the namespace {}", workload.kind, workload.name, app.namespace);
    let Some(template) = template_of(rollout) else { return Ok(missing(no_target(rollout))) };
    // The Service comes first: once the Deployment is there, it carries our stamp, and no Service would be made.
    let service = match ensure_service(cluster, rollout, template).await {
        Ok(service) => service,
        Err(failure) if error::is_not_found(&failure) => return Ok(missing(no_namespace(rollout))),
        Err(failure) => {
            let why = error::refusal(&failure).ok_or_else(|| error::classify(failure))?;
            return Ok(Some(refused(format!("the cluster refuses a Service for {title}: {why}"))));
        }
    };
    let Err(failure) = cluster.create(rollout.namespace(), &template::deployment(rollout, template)).await else {
        return Ok(Some(Applied::Done));
    };
    let refusal = match error::is_not_found(&failure) {
        true => missing(no_namespace(rollout)),
        false => error::refusal(&failure).map(|why| refused(format!("the cluster refuses the {title}: {why}"))),
    };
    if let (Some(_), Some(service)) = (&refusal, service) {
        cluster.delete::<Service>(rollout.namespace(), &service.metadata).await?;
    }
    refusal.map_or_else(|| read_again(failure), |refusal| Ok(Some(refusal)))
}

/// How the rollout's workload is created. Returns `None` if a person has to create it.
pub(crate) fn template_of(rollout: &Rollout) -> Option<&Template> {
    let may_create = rollout.workload.kind == WorkloadKind::Deployment && !rollout.adopted;
    rollout.workload.template.as_ref().filter(|_| may_create)
}

/// The sentence about a workload that is missing.
pub(crate) fn no_target(rollout: &Rollout) -> String {
    let Rollout { workload, app, .. } = rollout;
    let (kind, name, namespace) = (workload.kind, &workload.name, &app.namespace);
    format!("there is no {kind} {name} in the namespace {namespace}: create it, then deploy again")
}

/// Creates the Service, and returns it. Returns `None` if one exists, which stays as it is.
async fn ensure_service(cluster: &Cluster, rollout: &Rollout, template: &Template) -> kube::Result<Option<Service>> {
    let Some(service) = template::service(rollout, template) else { return Ok(None) };
    match cluster.create(rollout.namespace(), &service).await {
        Ok(service) => Ok(Some(service)),
        Err(failure) if error::is_already_exists(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The sentence about a namespace that is missing.
pub(crate) fn no_namespace(rollout: &Rollout) -> String {
    let namespace = &rollout.app.namespace;
    format!("there is no namespace {namespace} in the cluster: kubectl create namespace {namespace}, then deploy again")
}

fn refused(message: String) -> Applied {
    Applied::Refused { reason: Reason::new(Reason::REFUSED), message }
}

/// The number of reads until the controller has observed the new revision, and the pause between them.
const READS: u32 = 10;
const READ_PAUSE: Duration = Duration::from_millis(150);

/// Deletes the pods that block the rollout of a StatefulSet. A deletion that failed is made up for when the rollout is
/// applied again.
async fn delete_stuck_pods(cluster: &Cluster, rollout: &Rollout) -> Result<()> {
    if rollout.workload.kind != WorkloadKind::StatefulSet {
        return Ok(());
    }
    for read in 1..=READS {
        let Some(Object::StatefulSet(set)) = target_if_ours(cluster, rollout).await? else { return Ok(()) };
        // Until then the controller would make the pod from the broken revision once more.
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        if observed < set.metadata.generation && read < READS {
            tokio::time::sleep(READ_PAUSE).await;
            continue;
        }
        let object = Object::StatefulSet(set);
        let pods = cluster.pods(rollout, &object).await?.kept;
        let own = object.pods_stamp(rollout.id);
        let Object::StatefulSet(set) = &object else { return Ok(()) };
        for pod in stuck_pods::of(set, rollout.id, &own, &pods) {
            if target_if_ours(cluster, rollout).await?.is_none() {
                return Ok(());
            }
            delete(cluster, rollout.namespace(), pod).await?;
        }
        return Ok(());
    }
    Ok(())
}

/// The workload, if it carries the rollout.
async fn target_if_ours(cluster: &Cluster, rollout: &Rollout) -> Result<Option<Object>> {
    Ok(cluster.target(rollout).await?.filter(|object| object.stamp().id() == Some(rollout.id)))
}

/// Whether the pods can be deleted when the rollout is applied again.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::Denied { .. })
}

async fn delete(cluster: &Cluster, namespace: &str, pod: &Pod) -> Result<()> {
    match cluster.delete::<Pod>(namespace, &pod.metadata).await {
        Ok(()) => tracing::info!(
            namespace,
            pod = pods::name(pod),
            "deleted a pod of an older revision that blocked the rollout"
        ),
        Err(error) if may_pass(&error) => return Err(error),
        // The patch stands; if the pod stays, the rollout ends by its deadline.
        Err(error) => {
            tracing::warn!(namespace, pod = pods::name(pod), error = %error.chain(), "deleting a pod that blocks the rollout failed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
