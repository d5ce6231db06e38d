//! The progress of a rollout by kubectl's own rules, per kind, from the counts that the controllers write.
//!
//! The counts speak of the specification that the controller last saw. Straight after a patch that is the one before
//! it, so its generation is compared before anything else is believed.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, DeploymentCondition, StatefulSet},
    batch::v1::CronJob,
};

use super::object::Object;

/// The progress of a workload's rollout by the counts of its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RolloutStatus {
    /// Whether the controller has observed the specification as it is now.
    pub(crate) is_observed: bool,
    /// The number of pods of the new revision that are wanted.
    pub(crate) wanted: i32,
    /// The number of pods of the new revision.
    pub(crate) updated: i32,
    /// The number of pods of earlier revisions.
    pub(crate) old: i32,
    /// The number of pods that are being deleted, of any revision; `None` unless it is a Deployment of a cluster that counts them.
    pub(crate) terminating: Option<i32>,
    /// The number of pods that have been ready for long enough.
    pub(crate) available: i32,
    /// Whether all pods are of the new revision, available or not: the update strategy has nothing left to do.
    pub(crate) is_everywhere: bool,
    /// Whether the rollout is complete.
    pub(crate) is_complete: bool,
    /// A remark for the history.
    pub(crate) note: Option<String>,
}

/// The progress of the workload's rollout.
pub(crate) fn of(object: &Object) -> RolloutStatus {
    match object {
        Object::Deployment(object) => deployment(object),
        Object::StatefulSet(object) => stateful_set(object),
        Object::DaemonSet(object) => daemon_set(object),
        Object::CronJob(object) => cron_job(object),
    }
}

fn deployment(object: &Deployment) -> RolloutStatus {
    let status = object.status.clone().unwrap_or_default();
    let wanted = object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let updated = status.updated_replicas.unwrap_or(0);
    let old = status.replicas.unwrap_or(0) - updated;
    let available = status.available_replicas.unwrap_or(0);
    let is_observed = is_observed(object.metadata.generation, status.observed_generation);
    let is_everywhere = is_observed && updated >= wanted && old <= 0;
    let is_complete = is_everywhere && available >= updated;
    let (terminating, note) = (status.terminating_replicas, none_runs(wanted));
    RolloutStatus { is_observed, wanted, updated, old, terminating, available, is_everywhere, is_complete, note }
}

fn stateful_set(object: &StatefulSet) -> RolloutStatus {
    let status = object.status.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0).clamp(0, replicas);
    let wanted = replicas - partition;
    let updated = status.updated_replicas.unwrap_or(0);
    let available = status.available_replicas.or(status.ready_replicas).unwrap_or(0);
    let is_observed = is_observed(object.metadata.generation, status.observed_generation);
    let ready = status.ready_replicas.unwrap_or(0) >= replicas && available >= replicas;
    // With a partition, both revisions stay.
    let one_revision = partition > 0 || status.current_revision == status.update_revision;
    // A partition that was raised meanwhile leaves the pods below it as they are, some of them updated.
    let held = (replicas - updated).clamp(0, partition);
    let note = match held {
        0 => none_runs(replicas),
        held => Some(format!("{} of {replicas} pods run it: the partition holds {held} back", replicas - held)),
    };
    RolloutStatus {
        is_observed,
        wanted,
        updated,
        old: status.replicas - updated - held,
        terminating: None,
        available,
        is_everywhere: is_observed && updated >= replicas,
        is_complete: is_observed && updated >= wanted && ready && one_revision,
        note,
    }
}

fn daemon_set(object: &DaemonSet) -> RolloutStatus {
    let status = object.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or(0);
    let available = status.number_available.unwrap_or(0);
    let is_observed = is_observed(object.metadata.generation, status.observed_generation);
    let is_everywhere = is_observed && updated >= wanted;
    let is_complete = is_everywhere && available >= wanted;
    let note = (wanted == 0).then(|| "no node is chosen for it: no pod runs".to_owned());
    let old = status.current_number_scheduled - updated;
    let terminating = None;
    RolloutStatus { is_observed, wanted, updated, old, terminating, available, is_everywhere, is_complete, note }
}

fn cron_job(object: &CronJob) -> RolloutStatus {
    let suspended = object.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    let note = match suspended {
        true => "the CronJob is suspended: it takes effect once that is over",
        false => "takes effect at the next schedule",
    };
    let note = Some(note.to_owned());
    RolloutStatus { is_observed: true, is_everywhere: true, is_complete: true, note, ..RolloutStatus::default() }
}

fn is_observed(generation: Option<i64>, observed: Option<i64>) -> bool {
    observed.unwrap_or(0) >= generation.unwrap_or(0) && observed.unwrap_or(0) > 0
}

fn none_runs(replicas: i32) -> Option<String> {
    (replicas == 0).then(|| "0 replicas: no pod runs".to_owned())
}

/// The Deployment's condition of this type, if it has this status.
pub(crate) fn condition<'a>(object: &'a Object, type_: &str, status: &str) -> Option<&'a DeploymentCondition> {
    let Object::Deployment(deployment) = object else { return None };
    let conditions = deployment.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::samples;

    #[test]
    fn deployment_is_complete_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                          "availableReplicas": 3});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            of(&samples::deployment(json!({"status": status})))
        };
        assert!(but("replicas", json!(3)).is_complete);
        // The trap: the counts of the rollout before, straight after a patch.
        assert!(!but("observedGeneration", json!(2)).is_complete);
        assert!(!but("updatedReplicas", json!(2)).is_complete);
        assert!(!but("replicas", json!(4)).is_complete, "an old pod is left");
        assert!(!but("availableReplicas", json!(2)).is_complete);
        assert!(!of(&samples::deployment(json!({"status": {}}))).is_complete);
    }

    #[test]
    fn no_replicas_are_complete_with_a_note() {
        let object = samples::deployment(json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 3}}));
        let status = of(&object);
        assert!(status.is_complete);
        assert_eq!(status.note.as_deref(), Some("0 replicas: no pod runs"));
    }

    #[test]
    fn stateful_set_is_complete_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                          "availableReplicas": 3, "currentRevision": "api-2", "updateRevision": "api-2"});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            of(&samples::stateful_set(json!({"status": status}))).is_complete
        };
        assert!(but("replicas", json!(3)));
        assert!(!but("observedGeneration", json!(2)));
        assert!(!but("updatedReplicas", json!(2)));
        assert!(!but("readyReplicas", json!(2)));
        assert!(!but("availableReplicas", json!(2)));
        assert!(!but("currentRevision", json!("api-1")));
    }

    #[test]
    fn partition_is_complete_with_its_share_of_pods_and_a_note() {
        let object = |updated: i32| {
            samples::stateful_set(json!({
                "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
                "status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3,
                           "availableReplicas": 3, "currentRevision": "api-1", "updateRevision": "api-2"},
            }))
        };
        assert!(!of(&object(0)).is_complete);
        let status = of(&object(1));
        assert!(status.is_complete);
        assert_eq!(status.note.as_deref(), Some("1 of 3 pods run it: the partition holds 2 back"));
    }

    #[test]
    fn partition_that_was_raised_after_pods_were_updated_is_told_with_true_numbers() {
        let object = |partition: i32, updated: i32| {
            of(&samples::stateful_set(json!({
                "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}},
                "status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3,
                           "availableReplicas": 3, "currentRevision": "api-1", "updateRevision": "api-2"},
            })))
        };
        let status = object(2, 2);
        assert_eq!(status.note.as_deref(), Some("2 of 3 pods run it: the partition holds 1 back"));
        assert_eq!((status.is_complete, status.is_everywhere, status.old), (true, false, 0));
        let status = object(2, 3);
        assert_eq!((status.is_complete, status.is_everywhere, status.note), (true, true, None));
    }

    #[test]
    fn daemon_set_is_complete_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                          "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2, "numberMisscheduled": 0});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            of(&samples::daemon_set(json!({"status": status})))
        };
        assert!(but("numberReady", json!(2)).is_complete);
        assert!(!but("observedGeneration", json!(2)).is_complete);
        assert!(!but("updatedNumberScheduled", json!(1)).is_complete);
        assert!(!but("numberAvailable", json!(1)).is_complete);
        assert_eq!(
            but("desiredNumberScheduled", json!(0)).note.as_deref(),
            Some("no node is chosen for it: no pod runs")
        );
    }

    #[test]
    fn cron_job_is_complete_at_once_with_a_note() {
        let note = |spec: Value| of(&samples::cron_job(json!({"spec": spec}))).note.unwrap();
        assert_eq!(note(json!({})), "takes effect at the next schedule");
        assert!(note(json!({"suspend": true})).contains("suspended"));
    }
}
