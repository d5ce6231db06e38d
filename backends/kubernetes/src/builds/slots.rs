//! Build slots: never more builds run at once than there are slots, and never two of one app; first come, first served.
//!
//! One ConfigMap holds the slots: the Jobs that may run, by name and uid. It is only replaced as it was read, so that
//! all replicas agree on it. A Job is made suspended, and resumed only when it has a slot, by a patch that is valid for
//! the Job just as it was read. A slot is free again once its Job is over or gone. So there are never too many builds,
//! even if a replica is paused in the middle: a slot is taken away only from a Job that has changed since it was
//! suspended, and then the late patch is refused.
//!
//! An app has at most one build that waits or runs, so that the order in which Jobs were made is fair between apps: an
//! app that has just built queues up behind all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use rollhook_core::{Error, app::AppUid, deploy::Reason};

use super::{
    names::{STOPPED, deploy_id},
    observe::{elapsed, is_over, is_suspended},
    outcome::StoredFailure,
};

/// The Jobs that have a slot: their uids by their names.
pub(super) type Slots = BTreeMap<String, String>;

/// Assigns up to `limit` slots, given those that are held and the Jobs as they were read after them.
pub(super) fn assign(held: &Slots, jobs: &[Job], limit: usize) -> Slots {
    let mut next: Slots = jobs
        .iter()
        .filter(|job| !is_over(job))
        // A build that runs without a slot, because the ConfigMap was deleted, still counts.
        .filter(|job| held.get(name(job)).is_some_and(|uid| uid == id(job)) || runs(job))
        .map(|job| (name(job).to_owned(), id(job).to_owned()))
        .collect();
    let mut apps: BTreeSet<AppUid> = jobs.iter().filter(|job| next.contains_key(name(job))).filter_map(app).collect();
    let mut waiting: Vec<&Job> = jobs.iter().filter(|job| is_waiting(job) && !next.contains_key(name(job))).collect();
    waiting.sort_by_key(|job| (job.metadata.creation_timestamp.as_ref().map(|time| time.0), name(job)));
    for job in waiting {
        if next.len() < limit && app(job).is_some_and(|app| apps.insert(app)) {
            next.insert(name(job).to_owned(), id(job).to_owned());
        }
    }
    next
}

/// The Jobs that have a slot and are still suspended.
pub(super) fn to_resume<'a>(held: &Slots, jobs: &'a [Job]) -> Vec<&'a Job> {
    let has_slot = |job: &&Job| held.get(name(job)).is_some_and(|uid| uid == id(job));
    jobs.iter().filter(|job| is_waiting(job)).filter(has_slot).collect()
}

/// The failure of a Job that cannot be resumed because of this error. Returns `None` if the error may pass. A denial
/// may, as the API server may have just started, or permissions may be about to be granted.
pub(super) fn permanent(error: &Error, job: &Job, now: Timestamp, patience: Duration) -> Option<StoredFailure> {
    let passes = match error {
        Error::Unavailable { .. } | Error::Conflict(_) | Error::NotFound(_) => true,
        Error::Denied { .. } => {
            let made = job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
            elapsed(made, now) < patience
        }
        Error::Invalid { .. } | Error::Corrupt { .. } => false,
    };
    (!passes).then(|| StoredFailure::new(Reason::BUILD_REFUSED, format!("The build cannot be started: {error}.")))
}

/// Whether the Job waits for a slot, or to be resumed.
pub(super) fn is_waiting(job: &Job) -> bool {
    is_suspended(job) && !is_over(job) && !is_stopped(job)
}

fn runs(job: &Job) -> bool {
    let active = job.status.as_ref().and_then(|status| status.active).unwrap_or(0) > 0;
    active || (!is_suspended(job) && !is_stopped(job))
}

fn is_stopped(job: &Job) -> bool {
    job.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(STOPPED))
}

fn name(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

fn id(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

fn app(job: &Job) -> Option<AppUid> {
    deploy_id(&job.metadata).map(|id| id.app)
}

#[cfg(test)]
mod tests {
    use rollhook_core::{deploy::Revision, ports::DeployId};
    use serde_json::{Value, json};

    use super::*;
    use crate::builds::names;

    fn job(app: u128, revision: u64, second: u32, further: Value) -> Job {
        let build = DeployId { app: AppUid::from_bits(app), revision: Revision::new(revision).unwrap() };
        let mut job = json!({
            "metadata": {
                "name": names::job(build), "uid": format!("uid-{app}-{revision}"), "labels": names::labels(build),
                "creationTimestamp": format!("2026-11-21T10:00:{second:02}Z"),
            },
            "spec": {"suspend": true, "template": {}},
        });
        for (key, value) in further.as_object().unwrap() {
            job[key] = value.clone();
        }
        serde_json::from_value(job).unwrap()
    }

    fn running(app: u128, revision: u64) -> Job {
        job(app, revision, 0, json!({"spec": {"suspend": false, "template": {}}, "status": {"active": 1}}))
    }

    fn over(app: u128, revision: u64) -> Job {
        job(app, revision, 0, json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}))
    }

    fn names_of(held: &Slots) -> Vec<(u128, u64)> {
        let of = |name: &String| {
            let (app, revision) = name.strip_prefix("build-").unwrap().split_once('-').unwrap();
            (app.parse::<AppUid>().unwrap().as_bits(), revision.parse().unwrap())
        };
        held.keys().map(of).collect()
    }

    #[test]
    fn slots_go_to_the_builds_that_waited_longest_and_one_to_an_app() {
        let jobs = [
            job(3, 9, 5, json!({})),
            job(1, 7, 1, json!({})),
            job(1, 8, 2, json!({})),
            job(2, 1, 3, json!({})),
            job(4, 1, 4, json!({})),
        ];
        assert_eq!(names_of(&assign(&Slots::new(), &jobs, 2)), [(1, 7), (2, 1)]);
        assert_eq!(names_of(&assign(&Slots::new(), &jobs, 9)), [(1, 7), (2, 1), (3, 9), (4, 1)]);
        let held = assign(&Slots::new(), &jobs, 2);
        assert_eq!(assign(&held, &jobs, 2), held, "assigning again changes nothing");
        assert_eq!(to_resume(&held, &jobs).len(), 2);
    }

    #[test]
    fn slot_is_kept_until_its_job_is_over() {
        let jobs = [running(1, 1), job(2, 1, 1, json!({})), job(1, 2, 0, json!({}))];
        let held: Slots = [(name(&jobs[0]).to_owned(), id(&jobs[0]).to_owned())].into();
        assert_eq!(assign(&held, &jobs, 1), held);
        let jobs = [over(1, 1), job(2, 1, 1, json!({})), job(1, 2, 2, json!({}))];
        assert_eq!(names_of(&assign(&held, &jobs, 1)), [(2, 1)], "an app that has just built waits behind the others");
        let terminating = json!({"status": {"terminating": 1, "conditions": [{"type": "Failed", "status": "True"}]}});
        let jobs = [job(1, 1, 0, terminating), job(2, 1, 1, json!({}))];
        assert_eq!(assign(&held, &jobs, 1), held, "its pod is not gone");
    }

    #[test]
    fn slot_belongs_to_the_uid_of_a_job() {
        let jobs = [job(1, 1, 0, json!({}))];
        let held: Slots = [(name(&jobs[0]).to_owned(), "uid of one before".to_owned())].into();
        assert!(to_resume(&held, &jobs).is_empty());
        assert_eq!(assign(&held, &jobs, 1), [(name(&jobs[0]).to_owned(), id(&jobs[0]).to_owned())].into());
    }

    #[test]
    fn running_build_without_a_slot_counts_and_fewer_slots_stop_none() {
        let jobs = [running(1, 1), running(2, 1), job(3, 1, 1, json!({}))];
        assert_eq!(names_of(&assign(&Slots::new(), &jobs, 2)), [(1, 1), (2, 1)]);
        assert_eq!(names_of(&assign(&Slots::new(), &jobs, 1)), [(1, 1), (2, 1)]);
    }

    #[test]
    fn job_that_cannot_be_resumed_fails_unless_the_error_may_pass() {
        let job = job(1, 1, 0, json!({}));
        let after = |seconds| "2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(seconds);
        let failure = |error: &Error, seconds| permanent(error, &job, after(seconds), Duration::from_secs(60));
        let failed = failure(&Error::invalid("the cluster refuses the Secret: too large"), 1).unwrap();
        assert_eq!(failed.reason.as_str(), Reason::BUILD_REFUSED);
        assert!(failed.message.contains("too large"), "{}", failed.message);
        assert!(failure(&Error::Corrupt { what: "the Job cannot be read".to_owned(), cause: None }, 1).is_some());
        let denied = Error::Denied { what: "secrets is forbidden".to_owned(), cause: None };
        assert!(failure(&denied, 1).is_none() && failure(&denied, 61).is_some());
        assert!(failure(&Error::Unavailable { what: "away".to_owned(), cause: None }, 9999).is_none());
    }

    #[test]
    fn stopped_build_gets_no_slot() {
        let mut ended = job(1, 1, 0, json!({}));
        ended.metadata.annotations = Some([(STOPPED.to_owned(), "{}".to_owned())].into());
        let jobs = [ended, job(2, 1, 1, json!({}))];
        assert_eq!(names_of(&assign(&Slots::new(), &jobs, 1)), [(2, 1)]);
    }
}
