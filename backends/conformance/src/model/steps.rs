//! Performing the ledger's functions on a change, with what the choices of a step mean there.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::{Hold, OnFailure, Policy, Source},
    deploy::{Deploy, Reason, Revision, Sequence, State, Status, Trigger},
    ledger::{
        Admission, Admitted, Built, Change, ExpectedLatest, KeyLookup, KeyUse, NewDeploy, OtherDeploys, Record,
        Refused, UNFINISHED_MAX, retention,
    },
    lock::Lock,
    replica::ReplicaId,
    request::IdempotencyKey,
    requirement::{RequirementCopy, ScopedRequirement},
    time::Timestamp,
};

use super::ops::{Accept, Driver, Expected, Kind, Move, Next, What};
use crate::samples;

/// A function of the ledger as it was called, and its answer.
#[derive(Clone, Debug)]
pub(super) enum Done {
    Admit(Box<Admission>, Admitted),
    Record(Record, Result<(), Refused>),
    /// The build, and the revision of a new entry.
    Built(Box<Built>, Result<Option<Revision>, Refused>),
    Lease(ReplicaId),
    Configure(Box<Policy>),
    ReleaseHolds,
    ForgetSequence,
    /// The number of the environment's change, if the lock is the environment's.
    Lock(Option<u64>, Option<Lock>),
    Require(ScopedRequirement),
    /// The number of kept deploys, and the revisions that are forgotten.
    Forget(u32, Vec<Revision>),
}

impl Done {
    /// Whether a deploy was refused that its key, if it is in use, would have answered.
    pub(super) fn depends_on_its_key(&self) -> bool {
        let is_refused = |answer: &Admitted| {
            matches!(answer, Admitted::Outdated | Admitted::Full | Admitted::Locked(_) | Admitted::NextCommit)
        };
        matches!(self, Self::Admit(admission, answer) if admission.key.is_some() && is_refused(answer))
    }
}

/// The input of a step, beside the change.
pub(super) struct Given<'a> {
    pub(super) now: Timestamp,
    pub(super) replicas: &'a [ReplicaId],
    /// The keys that were read, with their uses.
    pub(super) keys: &'a [(IdempotencyKey, Option<KeyUse>)],
    /// The archive, newest first, if the step needs it.
    pub(super) archived: &'a [Deploy],
}

/// The key of an accept.
pub(super) fn key(accept: &Accept) -> Option<IdempotencyKey> {
    accept.key.filter(|_| accept.times == 1).map(|(key, request, _)| samples::key(&format!("run-{key}"), request))
}

/// Calls the function of the ledger.
pub(super) fn perform(change: &mut Change, what: &What, given: &Given<'_>) -> Vec<Done> {
    match what {
        What::Admit(accept) => (0..accept.times).filter_map(|_| admit(change, accept, given)).collect(),
        What::Record(movement) => {
            let record = record(change, movement, given);
            let answer = change.record(record.clone(), given.now);
            vec![Done::Record(record, answer)]
        }
        What::Built { deploy, driver } => {
            let built = built(change, *deploy, *driver, given);
            let call = |built: Built| (built.clone(), change.built(built, given.now));
            built.map(call).map(|(built, answer)| Done::Built(Box::new(built), answer)).into_iter().collect()
        }
        What::Configure { polled, restore } => {
            let policy = Policy::default().with(|policy| {
                policy.poll = polled.then(|| Duration::from_secs(60));
                policy.on_failure = if *restore { OnFailure::Restore } else { OnFailure::Leave };
            });
            change.configure(Source::Image, policy.clone(), given.now);
            vec![Done::Configure(Box::new(policy))]
        }
        What::ReleaseHolds => {
            change.release_holds(given.now);
            vec![Done::ReleaseHolds]
        }
        What::ForgetSequence => {
            change.forget_sequence(given.now);
            vec![Done::ForgetSequence]
        }
        What::Lock { environment, minutes } => {
            let end = |minutes: &u8| given.now.after(Duration::from_secs(60 * u64::from(*minutes)));
            let until = minutes.as_ref().filter(|minutes| **minutes > 0).map(end);
            let lock = minutes.map(|_| Lock { at: given.now, ..samples::lock(until.map(Timestamp::as_millis)) });
            let sequence = environment.map(u64::from);
            match sequence {
                Some(sequence) => change.copy_lock(lock.clone(), sequence, given.now),
                None => change.lock(lock.clone(), given.now),
            }
            vec![Done::Lock(sequence, lock)]
        }
        What::Require { of_environment, sequence, is_required } => {
            let requirement = is_required.then(samples::requirement);
            let copy = RequirementCopy { requirement, sequence: (*sequence).into() };
            let scoped = match of_environment {
                true => ScopedRequirement::Environment(copy),
                false => ScopedRequirement::Project(copy),
            };
            change.copy_requirement(scoped.clone(), given.now);
            vec![Done::Require(scoped)]
        }
        What::Forget { keep } => {
            let keep = u32::from(*keep);
            Arc::make_mut(&mut change.state.app).policy.keep = keep;
            let is_left = |deploy: &&Deploy| !change.forgotten.contains(&deploy.revision);
            let archived: Vec<Deploy> = given.archived.iter().filter(is_left).cloned().collect();
            let surplus = retention::surplus(&change.state, &archived, given.now);
            change.forget(surplus.clone(), given.now);
            vec![Done::Forget(keep, surplus)]
        }
    }
}

fn admit(change: &mut Change, accept: &Accept, given: &Given<'_>) -> Option<Done> {
    let latest = change.state.latest;
    let target = latest.unwrap_or(Revision::FIRST);
    let tag = format!("v{}", accept.image);
    let order = accept.sequence.and_then(|sequence| Sequence::new(sequence.into())).into();
    let deploy = match accept.kind {
        Kind::Deploy => NewDeploy { order, ..samples::deploy(&tag) },
        Kind::Build => NewDeploy { order, ..samples::build(accept.image.into()) },
        Kind::Rollback => samples::rollback(&tag, target),
        // The service makes one only where nothing newer is ready, so that there are never many.
        Kind::Restore if change.state.unfinished.len() > UNFINISHED_MAX => return None,
        Kind::Restore => samples::restore(&tag, target),
    };
    // What is not built yet ends by a person's rollback alone.
    let is_built = change.state.unfinished.iter().all(|deploy| deploy.image.is_some());
    let supersedes = accept.supersede && (is_built || matches!(accept.kind, Kind::Rollback));
    let key = key(accept);
    let lookup = match given.keys.iter().find(|(read, _)| key.as_ref().is_some_and(|key| key.key == read.key)) {
        Some((_, used)) => KeyLookup::Read(*used),
        None => KeyLookup::Unread,
    };
    let admission = Admission {
        key,
        expected: match accept.expected {
            Expected::Any => ExpectedLatest::Any,
            Expected::Right => ExpectedLatest::Exactly(latest),
            Expected::Wrong => ExpectedLatest::Exactly(latest.map_or(Some(Revision::FIRST), |_| None)),
        },
        others: if supersedes { OtherDeploys::EndSuperseded } else { OtherDeploys::GoOn },
        hold: accept.hold.then(|| Hold { digest: Some(samples::digest(1)), ..samples::hold(&tag) }),
        driver: accept.driver.map(|replica| given.replicas[usize::from(replica)].clone()),
        ..samples::admission(deploy)
    };
    let answer = change.admit(admission.clone(), lookup, given.now);
    Some(Done::Admit(Box::new(admission), answer))
}

/// The end of a build, of one of the deploys that wait for an image.
fn built(change: &Change, number: u8, driver: u8, given: &Given<'_>) -> Option<Built> {
    let waiting: Vec<_> = change.state.unfinished.iter().filter(|deploy| deploy.is_to_be_built()).collect();
    let deploy = waiting.get(usize::from(number) % waiting.len().max(1))?;
    let image = Some(samples::image("built"));
    let building = State::Building { since: given.now, source: Default::default(), paused: Default::default() };
    let deploy = Deploy { image, ..deploy.moved(building) };
    let driver = given.replicas[usize::from(driver)].clone();
    Some(Built { driver, deploy, id: samples::admission_id() })
}

/// The record, whose deploys take steps that a driver may take, but for their numbers.
fn record(change: &Change, movement: &Move, given: &Given<'_>) -> Record {
    let state = &change.state;
    let driver = match movement.driver {
        Driver::None => None,
        Driver::Holder => state.lease.clone(),
        Driver::Replica(replica) => Some(given.replicas[usize::from(replica)].clone()),
    };
    let mut after: Vec<Deploy> = state.unfinished.iter().map(|deploy| (**deploy).clone()).collect();
    let mut changes = Vec::new();
    for (index, steps, next) in &movement.deploys {
        let ended = state.current.iter().chain(&state.ended_on_cluster).next();
        // Now and then one that has ended, or is changed by this record already.
        let deploy = match (ended, after.len()) {
            (Some(ended), _) if *index >= 250 => (**ended).clone(),
            (_, 0) => continue,
            (_, count) => after[usize::from(*index) % count].clone(),
        };
        if *index < 240 && changes.iter().any(|known: &Deploy| known.revision == deploy.revision) {
            continue;
        }
        let next = next_of(&deploy, *next, &after, given.now);
        let next = Deploy { step: deploy.step + u32::from(*steps), ..next };
        after.iter_mut().filter(|known| known.revision == next.revision).for_each(|known| *known = next.clone());
        changes.push(next);
    }
    let released = state.app.holds.first().filter(|_| movement.release_hold).map(|hold| hold.by);
    let release_holds = released.into_iter().collect();
    Record { driver, changes, release_holds, idle: movement.idle, ..Record::default() }
}

/// The deploy in its next state, or cancelled where it cannot be in that one; `all` are the unfinished ones.
fn next_of(deploy: &Deploy, next: Next, all: &[Deploy], now: Timestamp) -> Deploy {
    let others = || all.iter().filter(|other| other.revision != deploy.revision);
    let first_to_be_built = all.iter().find(|other| other.is_to_be_built()).map(|first| first.revision);
    let cancelled = || deploy.moved(samples::cancelled("by the model"));
    let with_image = |state| {
        let image = deploy.image.clone().or_else(|| Some(samples::image("built")));
        Deploy { image, touched: true, ..deploy.moved(state) }
    };
    match next {
        Next::Building if deploy.is_to_be_built() && first_to_be_built == Some(deploy.revision) => {
            deploy.moved(State::Building { since: now, source: Default::default(), paused: Default::default() })
        }
        Next::RollingOut if others().all(|other| other.status() != Status::RollingOut) => {
            with_image(State::RollingOut { since: now, outage: Default::default() })
        }
        Next::Succeeded => {
            let digest = Some(samples::digest(u8::from(deploy.revision.get().is_multiple_of(3))));
            Deploy { digest, ..with_image(samples::succeeded()) }
        }
        Next::Failed => {
            let (reason, message) = (Reason::new(Reason::DEADLINE), "It took too long.".to_owned());
            deploy.moved(State::Failed { reason, message, evidence: Some(samples::evidence()) })
        }
        Next::Refused => Deploy { touched: false, ..deploy.moved(samples::failed()) },
        Next::Superseded if deploy.is_to_be_built() => cancelled(),
        Next::Superseded => match all.last().filter(|newest| newest.revision > deploy.revision) {
            Some(newest) => {
                let rollback = newest.trigger == Trigger::Rollback;
                deploy.moved(State::Superseded { by: newest.revision, rollback, newer: None })
            }
            None => cancelled(),
        },
        Next::Building | Next::RollingOut | Next::Cancelled => cancelled(),
    }
}
