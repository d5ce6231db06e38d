//! Applies a rollout to its workload: read, decide, one guarded patch; and again if the workload has changed in
//! between.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use rollhook_core::{Error, Result, configuration::Configuration, deploy::Reason, error::Entity, ports::Applied};

use crate::{
    client::Cluster,
    configurations::{self, Provided},
    error, references as reads,
    rules::{
        configuration::{self, Owner},
        fence::{self, Decision},
        object::{CONFIGURED_BY, Object},
        patch, pods, references,
        retained::{self, KeptTemplate},
        secret_drift, stuck_pods, template,
    },
    workload::{Rollout, Template, WorkloadKind},
};

/// The number of attempts on a workload that changes in between; controllers write its status all the time.
const ATTEMPTS: u32 = 12;
/// The pause before the second attempt; each further pause is longer by as much.
const PAUSE: Duration = Duration::from_millis(20);

/// Applies the rollout, unless the workload is at a newer one or must not be touched.
pub(crate) async fn apply(
    cluster: &Cluster,
    rollout: &Rollout,
    configuration: Option<&Configuration>,
) -> Result<Applied> {
    for attempt in 0..ATTEMPTS {
        tokio::time::sleep(PAUSE * attempt).await;
        if let Some(applied) = attempt_once(cluster, rollout, configuration).await? {
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
async fn attempt_once(
    cluster: &Cluster,
    rollout: &Rollout,
    configuration: Option<&Configuration>,
) -> Result<Option<Applied>> {
    let Some(object) = cluster.target(rollout).await? else { return create(cluster, rollout, configuration).await };
    match fence::decide(&object, rollout) {
        Decision::Patch => {}
        Decision::UpToDate => {
            let is_done = repair(cluster, rollout, &object, configuration).await?;
            return Ok(is_done.then_some(Applied::Done));
        }
        Decision::Newer(revision) => return Ok(Some(Applied::Newer(revision))),
        Decision::Refused { reason, message } => return Ok(Some(Applied::Refused { reason, message })),
    }
    let secret = match secret_for(cluster, rollout, &object, configuration).await {
        Ok(Provision::Provided(secret)) => secret,
        Ok(Provision::Refused(refused)) => return Ok(Some(refused)),
        Err(Error::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let kept = kept(cluster, rollout, &object).await?;
    let mut patch = patch::patch(&object, rollout, kept.as_ref());
    secret_drift::note(&mut patch, &object, secret.as_ref().and_then(Provided::uid));
    configuration::remark(&mut patch, &object, &rollout.workload.containers, configuration);
    let read_by_pods = references::of(&object, &rollout.app);
    let all = read_by_pods.len();
    let versions = reads::versions(cluster, rollout.namespace(), read_by_pods).await;
    references::note(&mut patch, &object, &versions, all);
    match cluster.patch(rollout.namespace(), &object, &patch).await {
        Ok(()) => {
            if let Some(Provided::Made(_)) = secret {
                configurations::remove_old(cluster, rollout.namespace(), rollout.id).await;
            }
            Ok(Some(Applied::Done))
        }
        Err(failure) => match error::refusal(&failure) {
            Some(why) => {
                // One that was missing is needed by what runs.
                if !configuration::is_referred_to(&object, rollout) {
                    configurations::take_back(cluster, rollout.namespace(), secret.as_ref()).await;
                }
                Ok(Some(refused(format!("the cluster refuses the change of {}: {why}", object.title()))))
            }
            None => read_again(failure),
        },
    }
}

/// The Secret of a rollout's configuration, or the refusal of the rollout.
enum Provision {
    /// The Secret is there; `None`: the rollout has no configuration.
    Provided(Option<Provided>),
    /// The rollout is refused.
    Refused(Applied),
}

/// Provides the Secret of the configuration, which goes with the workload if that exists.
async fn secret_for(
    cluster: &Cluster,
    rollout: &Rollout,
    object: &Object,
    wanted: Option<&Configuration>,
) -> Result<Provision> {
    let Some(wanted) = wanted else { return Ok(Provision::Provided(None)) };
    if let Some(message) = configuration::conflict(object, &rollout.workload.containers, wanted) {
        let reason = Reason::new(Reason::CONFIGURATION_CONFLICT);
        return Ok(Provision::Refused(Applied::Refused { reason, message }));
    }
    let known = secret_drift::noted(object);
    Ok(match configurations::provide(cluster, &owner(rollout, object), wanted, known).await? {
        Provided::Refused(why) => Provision::Refused(refused(why)),
        provided @ (Provided::Made(_) | Provided::Found(_)) => Provision::Provided(Some(provided)),
    })
}

fn owner<'a>(rollout: &'a Rollout, object: &Object) -> Owner<'a> {
    let kind = object.kind();
    let object = configuration::reference_to(kind.api_version(), kind.as_str(), object.metadata());
    Owner { app: &rollout.app, uid: rollout.id.app, deploy: Some(rollout.id), object }
}

/// Provides once more the Secret that a workload which carries the rollout refers to: a call that was dropped may have left
/// it without its owner, and another party may have deleted it. Returns `false` if the workload has changed in between.
async fn repair(cluster: &Cluster, rollout: &Rollout, object: &Object, wanted: Option<&Configuration>) -> Result<bool> {
    let Some(wanted) = wanted.filter(|_| configuration::is_referred_to(object, rollout)) else { return Ok(true) };
    let known = secret_drift::noted(object);
    let provided = configurations::provide(cluster, &owner(rollout, object), wanted, known).await?;
    if let Provided::Refused(why) = &provided {
        tracing::warn!(app = %rollout.app, revision = %rollout.id.revision, why, "the Secret of an app's configuration is not its own");
        return Ok(true);
    }
    let Some(patch) = secret_drift::note_alone(object, provided.uid()) else { return Ok(true) };
    match cluster.patch(rollout.namespace(), object, &patch).await {
        Ok(()) => Ok(true),
        Err(failure) if error::is_conflict(&failure) || error::is_not_found(&failure) => Ok(false),
        Err(failure) => Err(error::classify(failure)),
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

async fn create(
    cluster: &Cluster,
    rollout: &Rollout,
    configuration: Option<&Configuration>,
) -> Result<Option<Applied>> {
    let Some(template) = template_of(rollout) else { return Ok(Some(missing(no_target(rollout)))) };
    let mut made = template::deployment(rollout, template);
    // Pods that are made before their Secret fail at once.
    let secret = match secret_for(cluster, rollout, &Object::Deployment(Box::new(made.clone())), configuration).await {
        Ok(Provision::Provided(secret)) => secret,
        Ok(Provision::Refused(refused)) => return Ok(Some(refused)),
        Err(Error::NotFound(_)) => return Ok(Some(missing(no_namespace(rollout)))),
        Err(error) => return Err(error),
    };
    if let Some(uid) = secret.as_ref().and_then(Provided::uid) {
        made.metadata.annotations.get_or_insert_default().insert(CONFIGURED_BY.to_owned(), uid.to_owned());
    }
    match create_workload(cluster, rollout, template, &made).await? {
        Created::Made(made) => {
            // A failure is made up for when the rollout is applied again.
            if !repair(cluster, rollout, &Object::Deployment(made), configuration).await? {
                return Ok(None);
            }
            if let Some(Provided::Made(_)) = secret {
                configurations::remove_old(cluster, rollout.namespace(), rollout.id).await;
            }
            Ok(Some(Applied::Done))
        }
        Created::Contended => Ok(None),
        Created::Refused(refused) => {
            configurations::take_back(cluster, rollout.namespace(), secret.as_ref()).await;
            Ok(Some(refused))
        }
    }
}

/// What has become of a workload that was to be made.
enum Created {
    /// It was made.
    Made(Box<Deployment>),
    /// Another made one of its name at the same time.
    Contended,
    /// The rollout is refused.
    Refused(Applied),
}

fn missing(message: String) -> Applied {
    Applied::Refused { reason: Reason::new(Reason::TARGET_MISSING), message }
}

async fn create_workload(
    cluster: &Cluster,
    rollout: &Rollout,
    template: &Template,
    made: &Deployment,
) -> Result<Created> {
    let Rollout { workload, app, .. } = rollout;
    let title = format!("{} {} in the namespace {}", workload.kind, workload.name, app.namespace);
    // The Service comes first: once the Deployment is there, it carries our stamp, and no Service would be made.
    let service = match ensure_service(cluster, rollout, template).await {
        Ok(service) => service,
        Err(failure) if error::is_not_found(&failure) => return Ok(Created::Refused(missing(no_namespace(rollout)))),
        Err(failure) => {
            let why = error::refusal(&failure).ok_or_else(|| error::classify(failure))?;
            return Ok(Created::Refused(refused(format!("the cluster refuses a Service for {title}: {why}"))));
        }
    };
    let failure = match cluster.create(rollout.namespace(), made).await {
        Ok(made) => return Ok(Created::Made(Box::new(made))),
        Err(failure) => failure,
    };
    let refusal = match error::is_not_found(&failure) {
        true => Some(missing(no_namespace(rollout))),
        false => error::refusal(&failure).map(|why| refused(format!("the cluster refuses the {title}: {why}"))),
    };
    if let (Some(_), Some(service)) = (&refusal, service) {
        cluster.delete::<Service>(rollout.namespace(), &service.metadata).await?;
    }
    match refusal {
        Some(refusal) => Ok(Created::Refused(refusal)),
        None => read_again(failure).map(|_| Created::Contended),
    }
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
