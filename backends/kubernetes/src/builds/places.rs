//! Who may run: never more builds at once than there are places, and never two of one app; first come, first served.
//!
//! One ConfigMap holds the places: the Jobs that may run, by name and uid. It is only ever replaced as it was read, so
//! that what is in it is agreed upon. A Job is made suspended, and let go only when it has a place, by a patch that is
//! valid for the Job just as it was read. A place is free again once its Job is over or gone. Put together, that is never
//! too many, whoever is paused in the middle: a place is taken away only from a Job that has changed since it was
//! suspended, and then the late patch is refused.
//!
//! An app has at most one build that waits or runs, so that the order in which Jobs were made is fair between apps: one
//! that has had its turn queues up behind all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use rollhook_core::{Error, app::AppUid, deploy::Reason};

use super::{
    end::Failure,
    names::{VERDICT, stamp},
    seen::{is_over, is_suspended},
};

/// The Jobs that have a place: each one's uid by its name.
pub(super) type Held = BTreeMap<String, String>;

/// Who has a place next, of what was held and the Jobs as they were read after that.
pub(super) fn next(held: &Held, jobs: &[Job], places: usize) -> Held {
    let mut next: Held = jobs
        .iter()
        .filter(|job| !is_over(job))
        // One that runs without a place, because somebody has removed the places, still counts.
        .filter(|job| held.get(name(job)).is_some_and(|uid| uid == id(job)) || runs(job))
        .map(|job| (name(job).to_owned(), id(job).to_owned()))
        .collect();
    let mut apps: BTreeSet<AppUid> = jobs.iter().filter(|job| next.contains_key(name(job))).filter_map(app).collect();
    let mut waiting: Vec<&Job> = jobs.iter().filter(|job| is_waiting(job) && !next.contains_key(name(job))).collect();
    waiting.sort_by_key(|job| (job.metadata.creation_timestamp.as_ref().map(|time| time.0), name(job)));
    for job in waiting {
        if next.len() < places && app(job).is_some_and(|app| apps.insert(app)) {
            next.insert(name(job).to_owned(), id(job).to_owned());
        }
    }
    next
}

/// The Jobs that have a place and were not let go yet.
pub(super) fn to_let_go<'a>(held: &Held, jobs: &'a [Job]) -> Vec<&'a Job> {
    let has_place = |job: &&Job| held.get(name(job)).is_some_and(|uid| uid == id(job));
    jobs.iter().filter(|job| is_waiting(job)).filter(has_place).collect()
}

/// How a Job ends that has a place and cannot be let go for this reason; none where that may pass. A denial may, where the
/// API server has only just started, or is about to be given its permissions.
pub(super) fn hopeless(error: &Error, job: &Job, now: Timestamp, patience: Duration) -> Option<Failure> {
    let passes = match error {
        Error::Unavailable { .. } | Error::Conflict(_) | Error::NotFound(_) => true,
        Error::Denied { .. } => {
            let made = job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
            Duration::try_from(now.duration_since(made)).unwrap_or_default() < patience
        }
        Error::Invalid { .. } | Error::Corrupt { .. } => false,
    };
    (!passes).then(|| Failure::new(Reason::BUILD_REFUSED, format!("The build cannot be started: {error}.")))
}

/// Whether it waits for a place, or to be let go.
pub(super) fn is_waiting(job: &Job) -> bool {
    is_suspended(job) && !is_over(job) && !has_verdict(job)
}

fn runs(job: &Job) -> bool {
    let active = job.status.as_ref().and_then(|status| status.active).unwrap_or(0) > 0;
    active || (!is_suspended(job) && !has_verdict(job))
}

fn has_verdict(job: &Job) -> bool {
    job.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(VERDICT))
}

fn name(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

fn id(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

fn app(job: &Job) -> Option<AppUid> {
    stamp(&job.metadata).map(|stamp| stamp.app)
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

    fn names_of(held: &Held) -> Vec<(u128, u64)> {
        let of = |name: &String| {
            let (app, revision) = name.strip_prefix("build-").unwrap().split_once('-').unwrap();
            (app.parse::<AppUid>().unwrap().as_bits(), revision.parse().unwrap())
        };
        held.keys().map(of).collect()
    }

    #[test]
    fn places_go_to_who_came_first_and_one_to_an_app() {
        let jobs = [
            job(3, 9, 5, json!({})),
            job(1, 7, 1, json!({})),
            job(1, 8, 2, json!({})),
            job(2, 1, 3, json!({})),
            job(4, 1, 4, json!({})),
        ];
        assert_eq!(names_of(&next(&Held::new(), &jobs, 2)), [(1, 7), (2, 1)]);
        assert_eq!(names_of(&next(&Held::new(), &jobs, 9)), [(1, 7), (2, 1), (3, 9), (4, 1)]);
        let held = next(&Held::new(), &jobs, 2);
        assert_eq!(next(&held, &jobs, 2), held, "asked again, nothing changes");
        assert_eq!(to_let_go(&held, &jobs).len(), 2);
    }

    #[test]
    fn a_place_is_kept_until_its_job_is_over() {
        let jobs = [running(1, 1), job(2, 1, 1, json!({})), job(1, 2, 0, json!({}))];
        let held: Held = [(name(&jobs[0]).to_owned(), id(&jobs[0]).to_owned())].into();
        assert_eq!(next(&held, &jobs, 1), held);
        let jobs = [over(1, 1), job(2, 1, 1, json!({})), job(1, 2, 2, json!({}))];
        assert_eq!(names_of(&next(&held, &jobs, 1)), [(2, 1)], "whoever had a turn waits behind the others");
        let terminating = json!({"status": {"terminating": 1, "conditions": [{"type": "Failed", "status": "True"}]}});
        let jobs = [job(1, 1, 0, terminating), job(2, 1, 1, json!({}))];
        assert_eq!(next(&held, &jobs, 1), held, "its pod is not gone");
    }

    #[test]
    fn a_place_is_a_jobs_and_not_its_names() {
        let jobs = [job(1, 1, 0, json!({}))];
        let held: Held = [(name(&jobs[0]).to_owned(), "uid of one before".to_owned())].into();
        assert!(to_let_go(&held, &jobs).is_empty());
        assert_eq!(next(&held, &jobs, 1), [(name(&jobs[0]).to_owned(), id(&jobs[0]).to_owned())].into());
    }

    #[test]
    fn what_runs_without_a_place_counts_and_fewer_places_end_nothing() {
        let jobs = [running(1, 1), running(2, 1), job(3, 1, 1, json!({}))];
        assert_eq!(names_of(&next(&Held::new(), &jobs, 2)), [(1, 1), (2, 1)]);
        assert_eq!(names_of(&next(&Held::new(), &jobs, 1)), [(1, 1), (2, 1)]);
    }

    #[test]
    fn a_job_that_cannot_be_let_go_ends_once_there_is_no_hope() {
        let job = job(1, 1, 0, json!({}));
        let after = |seconds| "2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(seconds);
        let verdict = |error: &Error, seconds| hopeless(error, &job, after(seconds), Duration::from_secs(60));
        let told = verdict(&Error::invalid("the cluster refuses the Secret: too large"), 1).unwrap();
        assert_eq!(told.reason.as_str(), Reason::BUILD_REFUSED);
        assert!(told.message.contains("too large"), "{}", told.message);
        assert!(verdict(&Error::Corrupt { what: "the Job cannot be read".to_owned(), cause: None }, 1).is_some());
        let denied = Error::Denied { what: "secrets is forbidden".to_owned(), cause: None };
        assert!(verdict(&denied, 1).is_none() && verdict(&denied, 61).is_some());
        assert!(verdict(&Error::Unavailable { what: "away".to_owned(), cause: None }, 9999).is_none());
    }

    #[test]
    fn what_was_ended_by_us_gets_no_place() {
        let mut ended = job(1, 1, 0, json!({}));
        ended.metadata.annotations = Some([(VERDICT.to_owned(), "{}".to_owned())].into());
        let jobs = [ended, job(2, 1, 1, json!({}))];
        assert_eq!(names_of(&next(&Held::new(), &jobs, 1)), [(2, 1)]);
    }
}
