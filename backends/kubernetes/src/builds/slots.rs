//! Build slots: never more builds run at once than there are slots, and never two of one app; environments take turns.
//!
//! A free slot goes to the waiting environment that holds the fewest, of those to the one that was served least lately, and
//! there to the build that came first: an environment with many apps delays others by a build, and not by its queue.
//!
//! One ConfigMap holds the slots: the Jobs that may run, by name and uid, and the turns of the environments. It is only replaced as it was read, so that
//! all replicas agree on it. A Job is made suspended, and resumed only when it has a slot, by a patch that is valid for
//! the Job just as it was read. A slot is free again once its Job is over or gone. So there are never too many builds,
//! even if a replica is paused in the middle: a slot is taken away only from a Job that has changed since it was
//! suspended, and then the late patch is refused.
//!
//! An app has at most one build that waits or runs, so that the order in which Jobs were made is fair between apps of an
//! environment: an app that has just built queues up behind all others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use rollhook_core::{Error, app::AppUid, deploy::Reason};

use super::{
    names::{STOPPED, StoredSpec, deploy_id},
    observe::elapsed,
    outcome::StoredFailure,
};
use crate::rules::jobs::{is_over, is_suspended};

/// The prefix of the keys of the ConfigMap that hold turns; the other keys are names of Jobs.
const TURN: &str = "turn.";

/// The slots, as the ConfigMap holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// The Jobs that have a slot: their uids by their names.
    held: BTreeMap<String, String>,
    /// The environments that have builds, by their namespaces, and the turn of each, which grows when it is given a slot.
    turns: BTreeMap<String, u64>,
}

/// The builds of an environment.
#[derive(Default)]
struct Environment<'a> {
    held: usize,
    turn: u64,
    /// The builds that wait, in the order in which they came.
    waiting: VecDeque<&'a Job>,
}

impl Slots {
    /// Returns the slots of a ConfigMap's data. A turn that cannot be read is none.
    pub(super) fn of(data: BTreeMap<String, String>) -> Self {
        let (turns, held) = data.into_iter().partition::<BTreeMap<_, _>, _>(|(key, _)| key.starts_with(TURN));
        let turn = |(key, turn): (String, String)| Some((key.strip_prefix(TURN)?.to_owned(), turn.parse().ok()?));
        Self { held, turns: turns.into_iter().filter_map(turn).collect() }
    }

    /// Returns the data of the ConfigMap.
    pub(super) fn into_data(self) -> BTreeMap<String, String> {
        let turns =
            self.turns.into_iter().map(|(environment, turn)| (format!("{TURN}{environment}"), turn.to_string()));
        self.held.into_iter().chain(turns).collect()
    }

    fn has(&self, job: &Job) -> bool {
        self.held.get(name(job)).is_some_and(|uid| uid == id(job))
    }
}

/// Assigns up to `limit` slots, given those that are held and the Jobs as they were read after them.
pub(super) fn assign(slots: &Slots, jobs: &[Job], limit: usize) -> Slots {
    let mut held: BTreeMap<String, String> = jobs
        .iter()
        .filter(|job| !is_over(job))
        // A build that runs without a slot, because the ConfigMap was deleted, still counts.
        .filter(|job| slots.has(job) || runs(job))
        .map(|job| (name(job).to_owned(), id(job).to_owned()))
        .collect();
    let mut last_turn = slots.turns.values().max().copied().unwrap_or_default();
    // An environment that comes anew goes before the one that was served last, and behind all others.
    let new = last_turn.saturating_sub(1);
    let mut apps: BTreeSet<AppUid> = jobs.iter().filter(|job| held.contains_key(name(job))).filter_map(app).collect();
    let mut environments: BTreeMap<String, Environment<'_>> = BTreeMap::new();
    let mut by_age: Vec<&Job> = jobs.iter().collect();
    by_age.sort_by_key(|job| age(job));
    for job in by_age {
        let (has_slot, waits) = (held.contains_key(name(job)), is_waiting(job));
        if !has_slot && !waits {
            continue;
        }
        let environment = environment_of(job);
        let turn = slots.turns.get(&environment).copied().unwrap_or(new);
        let builds = environments.entry(environment).or_insert_with(|| Environment { turn, ..Environment::default() });
        if has_slot {
            builds.held += 1;
        } else if app(job).is_some_and(|app| apps.insert(app)) {
            builds.waiting.push_back(job);
        }
    }
    while held.len() < limit {
        let waiting = environments.values_mut().filter(|builds| !builds.waiting.is_empty());
        let next = waiting.min_by_key(|builds| (builds.held, builds.turn, builds.waiting.front().map(|job| age(job))));
        let Some((builds, job)) = next.and_then(|builds| builds.waiting.pop_front().map(|job| (builds, job))) else {
            break;
        };
        last_turn += 2;
        builds.turn = last_turn;
        builds.held += 1;
        held.insert(name(job).to_owned(), id(job).to_owned());
    }
    Slots { held, turns: environments.into_iter().map(|(environment, builds)| (environment, builds.turn)).collect() }
}

/// The Jobs that have a slot and are still suspended.
pub(super) fn to_resume<'a>(slots: &Slots, jobs: &'a [Job]) -> Vec<&'a Job> {
    jobs.iter().filter(|job| is_waiting(job) && slots.has(job)).collect()
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

/// The key by which builds are in the order in which they came.
fn age(job: &Job) -> (Option<Timestamp>, &str) {
    (job.metadata.creation_timestamp.as_ref().map(|time| time.0), name(job))
}

/// The namespace of the environment that a build is of. Builds that do not say it are of one of their own.
pub(super) fn environment_of(job: &Job) -> String {
    StoredSpec::read(job).map(|spec| spec.app.namespace.to_string()).unwrap_or_default()
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

    /// A waiting build of an environment, made in this second.
    fn of(environment: &str, app: u128, second: u32) -> Job {
        let mut job = job(app, 1, second, json!({}));
        let stored = StoredSpec {
            app: format!("{environment}/app-{app}").parse().unwrap(),
            source: rollhook_conformance::samples::git_source(),
            commit: "0123456".parse().unwrap(),
            slots: 1,
        };
        let stored = serde_json::to_string(&stored).unwrap();
        job.metadata.annotations = Some([(names::SPEC.to_owned(), stored)].into());
        job
    }

    /// The apps in the order in which each has a slot, where the oldest of so many builds at once ends first.
    fn served(mut jobs: Vec<Job>, limit: usize) -> Vec<u128> {
        let (mut slots, mut served) = (Slots::default(), Vec::new());
        while !jobs.is_empty() {
            slots = Slots::of(assign(&slots, &jobs, limit).into_data());
            let mut new: Vec<u128> = names_of(&slots).into_iter().map(|(app, _)| app).collect();
            new.retain(|app| !served.contains(app));
            served.extend(new);
            let ended = served.iter().find(|app| jobs.iter().any(|job| names_of_job(job) == **app)).copied();
            jobs.retain(|job| Some(names_of_job(job)) != ended);
        }
        assert_eq!(assign(&slots, &[], limit).into_data(), BTreeMap::new(), "nothing is kept of what is over");
        served
    }

    fn names_of_job(job: &Job) -> u128 {
        app(job).unwrap().as_bits()
    }

    fn with_slot(job: &Job, uid: &str) -> Slots {
        Slots::of([(name(job).to_owned(), uid.to_owned())].into())
    }

    fn names_of(slots: &Slots) -> Vec<(u128, u64)> {
        let of = |name: &String| {
            let (app, revision) = name.strip_prefix("build-").unwrap().split_once('-').unwrap();
            (app.parse::<AppUid>().unwrap().as_bits(), revision.parse().unwrap())
        };
        slots.held.keys().map(of).collect()
    }

    #[test]
    fn environments_take_turns() {
        let queue = || vec![of("shop-a", 1, 1), of("shop-a", 2, 2), of("shop-a", 3, 3), of("shop-a", 4, 4)];
        let others = [of("shop-b", 11, 5), of("shop-b", 12, 6), of("shop-c", 21, 7)];
        assert_eq!(served([queue(), others.to_vec()].concat(), 1), [1, 11, 21, 2, 12, 3, 4]);
        assert_eq!(served(queue(), 3), [1, 2, 3, 4], "an environment alone has all slots");
        // One that comes while all slots are held waits for one build.
        let slots = assign(&Slots::default(), &queue(), 2);
        assert_eq!(names_of(&slots), [(1, 1), (2, 1)]);
        let jobs = [queue()[1..].to_vec(), others.to_vec()].concat();
        let slots = assign(&slots, &jobs, 2);
        assert_eq!(names_of(&slots), [(2, 1), (11, 1)]);
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
        assert_eq!(names_of(&assign(&Slots::default(), &jobs, 2)), [(1, 7), (2, 1)]);
        assert_eq!(names_of(&assign(&Slots::default(), &jobs, 9)), [(1, 7), (2, 1), (3, 9), (4, 1)]);
        let held = assign(&Slots::default(), &jobs, 2);
        assert_eq!(assign(&held, &jobs, 2), held, "assigning again changes nothing");
        assert_eq!(to_resume(&held, &jobs).len(), 2);
    }

    #[test]
    fn slot_is_kept_until_its_job_is_over() {
        let jobs = [running(1, 1), job(2, 1, 1, json!({})), job(1, 2, 0, json!({}))];
        let held = with_slot(&jobs[0], id(&jobs[0]));
        assert_eq!(names_of(&assign(&held, &jobs, 1)), [(1, 1)]);
        let jobs = [over(1, 1), job(2, 1, 1, json!({})), job(1, 2, 2, json!({}))];
        assert_eq!(names_of(&assign(&held, &jobs, 1)), [(2, 1)], "an app that has just built waits behind the others");
        let terminating = json!({"status": {"terminating": 1, "conditions": [{"type": "Failed", "status": "True"}]}});
        let jobs = [job(1, 1, 0, terminating), job(2, 1, 1, json!({}))];
        assert_eq!(names_of(&assign(&held, &jobs, 1)), [(1, 1)], "its pod is not gone");
    }

    #[test]
    fn slot_belongs_to_the_uid_of_a_job() {
        let jobs = [job(1, 1, 0, json!({}))];
        let held = with_slot(&jobs[0], "uid of one before");
        assert!(to_resume(&held, &jobs).is_empty());
        assert_eq!(assign(&held, &jobs, 1).held, with_slot(&jobs[0], id(&jobs[0])).held);
    }

    #[test]
    fn running_build_without_a_slot_counts_and_fewer_slots_stop_none() {
        let jobs = [running(1, 1), running(2, 1), job(3, 1, 1, json!({}))];
        assert_eq!(names_of(&assign(&Slots::default(), &jobs, 2)), [(1, 1), (2, 1)]);
        assert_eq!(names_of(&assign(&Slots::default(), &jobs, 1)), [(1, 1), (2, 1)]);
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
        assert_eq!(names_of(&assign(&Slots::default(), &jobs, 1)), [(2, 1)]);
    }
}
