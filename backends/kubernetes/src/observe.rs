//! Reads a workload: for the registration of an app, and for the progress of a rollout.

use rollhook_core::{
    Result,
    ports::{DriverIdentity, Observation, Phase, TargetRequest, Validated},
};

use crate::{
    apply,
    at_rest::TargetsAtRest,
    client::Cluster,
    rules::{observation, registration::Registration, retained},
    workload::Rollout,
};

/// The cluster's identity: the uid of its namespace `kube-system`, which is as old as the cluster and named by no
/// configuration.
pub(crate) async fn identity(cluster: &Cluster) -> Result<DriverIdentity> {
    let uid = cluster.namespace_uid("kube-system").await?;
    Ok(DriverIdentity(format!("kubernetes {uid}")))
}

/// The settings of a registration, completed from the workload as it is.
pub(crate) async fn validate(cluster: &Cluster, request: &TargetRequest) -> Result<Validated> {
    let registration = match Registration::parse(request) {
        Ok(registration) => registration,
        Err(invalid) => return Ok(Validated::Invalid(invalid)),
    };
    let namespace = request.app.namespace.as_str();
    let workload = cluster.workload(namespace, registration.kind(), &registration.name).await?;
    Ok(registration.validate(workload.as_ref()))
}

/// The state of the rollout. It is noted, so that the first look at the workload at rest costs no call.
pub(crate) async fn observe(cluster: &Cluster, rollout: &Rollout, targets: &TargetsAtRest) -> Result<Observation> {
    let Some(object) = cluster.observed_target(rollout).await? else { return Ok(observation::of_missing(rollout)) };
    // Read after the workload: the pods are never older than the counts of their controller.
    let pods = cluster.pods(rollout, &object).await?;
    let seen = observation::of(rollout, &object, &pods, jiff::Timestamp::now());
    if retained::runs_other_bits(&object, rollout, &pods.kept) {
        // The pods that were kept are no success: the next observation is of those that are made now.
        apply::stamp_anew(cluster, rollout, &object).await?;
        return Ok(seen.with(|seen| seen.phase = Phase::Progressing));
    }
    Ok(targets.note(rollout, &object, seen).seen)
}
