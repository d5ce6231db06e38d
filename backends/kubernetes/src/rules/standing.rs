//! When a rollout is over: kubectl's own rules, per kind, on the counts that the controllers write.
//!
//! The counts speak of the specification that the controller last saw. Straight after a patch that is the one before
//! it, so its generation is compared before anything else is believed.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, DeploymentCondition, StatefulSet},
    batch::v1::CronJob,
};

use super::object::Object;

/// Where a workload's rollout stands by its controller's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether the counts speak of the specification as it is now.
    pub(crate) seen: bool,
    /// How many pods of the new revision there are to be.
    pub(crate) wanted: i32,
    /// How many there are.
    pub(crate) updated: i32,
    /// How many pods of earlier revisions there are.
    pub(crate) old: i32,
    /// How many pods have been ready for long enough.
    pub(crate) available: i32,
    /// Whether the rollout is over.
    pub(crate) done: bool,
    /// A remark for the history.
    pub(crate) note: Option<String>,
}

/// Where the workload stands.
pub(crate) fn standing(object: &Object) -> Standing {
    match object {
        Object::Deployment(object) => deployment(object),
        Object::StatefulSet(object) => stateful_set(object),
        Object::DaemonSet(object) => daemon_set(object),
        Object::CronJob(object) => cron_job(object),
    }
}

fn deployment(object: &Deployment) -> Standing {
    let status = object.status.clone().unwrap_or_default();
    let wanted = object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let updated = status.updated_replicas.unwrap_or(0);
    let old = status.replicas.unwrap_or(0) - updated;
    let available = status.available_replicas.unwrap_or(0);
    let seen = is_seen(object.metadata.generation, status.observed_generation);
    let done = seen && updated >= wanted && old <= 0 && available >= updated;
    Standing { seen, wanted, updated, old, available, done, note: none_runs(wanted) }
}

fn stateful_set(object: &StatefulSet) -> Standing {
    let status = object.status.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0).clamp(0, replicas);
    let wanted = replicas - partition;
    let updated = status.updated_replicas.unwrap_or(0);
    let available = status.available_replicas.or(status.ready_replicas).unwrap_or(0);
    let seen = is_seen(object.metadata.generation, status.observed_generation);
    let ready = status.ready_replicas.unwrap_or(0) >= replicas && available >= replicas;
    // With a partition the two revisions stay apart for good.
    let one_revision = partition > 0 || status.current_revision == status.update_revision;
    let note = match partition {
        0 => none_runs(replicas),
        held => Some(format!("{wanted} of {replicas} pods run it: the partition holds {held} back")),
    };
    Standing {
        seen,
        wanted,
        updated,
        old: status.replicas - updated - partition,
        available,
        done: seen && updated >= wanted && ready && one_revision,
        note,
    }
}

fn daemon_set(object: &DaemonSet) -> Standing {
    let status = object.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or(0);
    let available = status.number_available.unwrap_or(0);
    let seen = is_seen(object.metadata.generation, status.observed_generation);
    let done = seen && updated >= wanted && available >= wanted;
    let note = (wanted == 0).then(|| "no node is chosen for it: no pod runs".to_owned());
    Standing { seen, wanted, updated, old: status.current_number_scheduled - updated, available, done, note }
}

fn cron_job(object: &CronJob) -> Standing {
    let suspended = object.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    let note = match suspended {
        true => "the CronJob is suspended: it takes effect once that is over",
        false => "takes effect at the next schedule",
    };
    Standing { seen: true, done: true, note: Some(note.to_owned()), ..Standing::default() }
}

fn is_seen(generation: Option<i64>, observed: Option<i64>) -> bool {
    observed.unwrap_or(0) >= generation.unwrap_or(0) && observed.unwrap_or(0) > 0
}

fn none_runs(replicas: i32) -> Option<String> {
    (replicas == 0).then(|| "0 replicas: no pod runs".to_owned())
}

/// The Deployment's condition of this type, where it has this status.
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
    fn a_deployment_is_done_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                          "availableReplicas": 3});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            standing(&samples::deployment(json!({"status": status})))
        };
        assert!(but("replicas", json!(3)).done);
        // The trap: the counts of the rollout before, straight after a patch.
        assert!(!but("observedGeneration", json!(2)).done);
        assert!(!but("updatedReplicas", json!(2)).done);
        assert!(!but("replicas", json!(4)).done, "an old pod is left");
        assert!(!but("availableReplicas", json!(2)).done);
        assert!(!standing(&samples::deployment(json!({"status": {}}))).done);
    }

    #[test]
    fn no_replicas_are_done_and_it_is_said() {
        let object = samples::deployment(json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 3}}));
        let standing = standing(&object);
        assert!(standing.done);
        assert_eq!(standing.note.as_deref(), Some("0 replicas: no pod runs"));
    }

    #[test]
    fn a_stateful_set_is_done_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                          "availableReplicas": 3, "currentRevision": "api-2", "updateRevision": "api-2"});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            standing(&samples::stateful_set(json!({"status": status}))).done
        };
        assert!(but("replicas", json!(3)));
        assert!(!but("observedGeneration", json!(2)));
        assert!(!but("updatedReplicas", json!(2)));
        assert!(!but("readyReplicas", json!(2)));
        assert!(!but("availableReplicas", json!(2)));
        assert!(!but("currentRevision", json!("api-1")));
    }

    #[test]
    fn a_partition_is_done_when_its_share_is_and_it_is_said() {
        let object = |updated: i32| {
            samples::stateful_set(json!({
                "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
                "status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3,
                           "availableReplicas": 3, "currentRevision": "api-1", "updateRevision": "api-2"},
            }))
        };
        assert!(!standing(&object(0)).done);
        let standing = standing(&object(1));
        assert!(standing.done);
        assert_eq!(standing.note.as_deref(), Some("1 of 3 pods run it: the partition holds 2 back"));
    }

    #[test]
    fn a_daemon_set_is_done_by_kubectls_rules() {
        let done = json!({"observedGeneration": 3, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                          "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2, "numberMisscheduled": 0});
        let but = |key: &str, value: Value| {
            let mut status = done.clone();
            status[key] = value;
            standing(&samples::daemon_set(json!({"status": status})))
        };
        assert!(but("numberReady", json!(2)).done);
        assert!(!but("observedGeneration", json!(2)).done);
        assert!(!but("updatedNumberScheduled", json!(1)).done);
        assert!(!but("numberAvailable", json!(1)).done);
        assert_eq!(
            but("desiredNumberScheduled", json!(0)).note.as_deref(),
            Some("no node is chosen for it: no pod runs")
        );
    }

    #[test]
    fn a_cron_job_is_done_at_once_and_says_when_it_counts() {
        let note = |spec: Value| standing(&samples::cron_job(json!({"spec": spec}))).note.unwrap();
        assert_eq!(note(json!({})), "takes effect at the next schedule");
        assert!(note(json!({"suspend": true})).contains("suspended"));
    }
}
