//! The model: every deploy of an app in one list, and all else computed from it.

use std::collections::BTreeSet;

use rollhook_core::{
    app::{App, Hold, OnFailure},
    deploy::{Deploy, Newer, Origin, Reason, Revision, Sequence, State, Status, Trigger},
    ledger::{
        Admission, Admitted, Built, ExpectedLatest, HOLDS_MAX, KeyUse, OtherDeploys, Record, Refused, UNFINISHED_MAX,
    },
    lock::{Lock, LockScope, Locked},
    ports::Page,
    replica::ReplicaId,
    request::IdempotencyKey,
    requirement::ScopedRequirement,
    time::Timestamp,
};

use super::steps::Done;

/// How many versions stay available for rollbacks from each that is returned from.
const TARGETS: usize = 10;

/// One app.
pub(super) struct Reference {
    pub(super) app: App,
    /// Every deploy that there ever was, ascending.
    pub(super) deploys: Vec<Deploy>,
    pub(super) forgotten: BTreeSet<Revision>,
    pub(super) keys: Vec<(IdempotencyKey, KeyUse)>,
    pub(super) lease: Option<ReplicaId>,
    pub(super) queued_at: Option<Timestamp>,
    /// The latest time that was stored.
    pub(super) time: Timestamp,
    /// The highest sequence since it was forgotten, and the newest deploy that has brought it.
    pub(super) highest: Option<(Sequence, Revision)>,
}

impl Reference {
    pub(super) fn new(app: App) -> Self {
        let queued_at = app.policy.poll.map(|_| app.created_at);
        let time = app.created_at;
        let (deploys, forgotten, keys) = Default::default();
        Self { app, deploys, forgotten, keys, lease: None, queued_at, time, highest: None }
    }

    pub(super) fn latest(&self) -> Option<Revision> {
        self.deploys.last().map(|deploy| deploy.revision)
    }

    pub(super) fn unfinished(&self) -> Vec<Deploy> {
        self.deploys.iter().filter(|deploy| !deploy.is_terminal()).cloned().collect()
    }

    pub(super) fn newest(&self, wanted: impl Fn(&Deploy) -> bool) -> Option<&Deploy> {
        self.deploys.iter().rev().find(|deploy| wanted(deploy))
    }

    pub(super) fn current(&self) -> Option<&Deploy> {
        self.newest(|deploy| deploy.status() == Status::Succeeded)
    }

    pub(super) fn on_cluster(&self) -> Option<&Deploy> {
        self.newest(|deploy| deploy.touched)
    }

    pub(super) fn latest_in_order(&self) -> Option<&Deploy> {
        self.newest(|deploy| !is_late(deploy))
    }

    pub(super) fn last_restore(&self) -> Option<Revision> {
        self.newest(Deploy::is_restore).map(|deploy| deploy.revision)
    }

    /// The ended deploys that were not forgotten, newest first.
    pub(super) fn archived(&self) -> Vec<Deploy> {
        let ended = self.deploys.iter().rev().filter(|deploy| deploy.is_terminal());
        ended.filter(|deploy| !self.forgotten.contains(&deploy.revision)).cloned().collect()
    }

    pub(super) fn page(&self, page: Page) -> Vec<Deploy> {
        let wanted = |deploy: &&Deploy| {
            page.before.is_none_or(|before| deploy.revision < before)
                && (!page.succeeded || deploy.status() == Status::Succeeded)
                && !self.forgotten.contains(&deploy.revision)
        };
        self.deploys.iter().rev().filter(wanted).take(page.limit).cloned().collect()
    }

    /// The use of a key, expired or not.
    pub(super) fn used(&self, key: &IdempotencyKey) -> Option<KeyUse> {
        let same = |(known, _): &&(IdempotencyKey, KeyUse)| (known.header, &known.key) == (key.header, &key.key);
        self.keys.iter().rev().find(same).map(|(_, used)| *used)
    }

    /// Follows what was committed as one change, and compares the answers.
    pub(super) fn follow(&mut self, done: &[Done], now: Timestamp) {
        let mut changed = BTreeSet::new();
        for done in done {
            match done {
                Done::Admit(admission, answer) => {
                    let expected = self.admit(admission, now, &mut changed);
                    assert_eq!(answer, &expected, "the answer to {admission:?}");
                }
                Done::Record(record, answer) => {
                    let refusals = self.refusals(record, &changed);
                    match answer {
                        Ok(()) => assert!(refusals.is_empty(), "recorded, though {refusals:?}: {record:?}"),
                        Err(refused) => assert!(refusals.contains(refused), "{refused:?} of {refusals:?}: {record:?}"),
                    }
                    if answer.is_ok() {
                        self.record(record, now, &mut changed);
                    }
                }
                Done::Built(built, answer) => {
                    let (driver, changes) = (Some(built.driver.clone()), vec![built.deploy.clone()]);
                    let refusals = self.refusals(&Record { driver, changes, ..Record::default() }, &changed);
                    match answer {
                        Ok(anew) => {
                            assert!(refusals.is_empty(), "recorded, though {refusals:?}: {built:?}");
                            assert_eq!(*anew, self.built(built, now, &mut changed), "entered anew: {built:?}");
                        }
                        Err(refused) => assert!(refusals.contains(refused), "{refused:?} of {refusals:?}: {built:?}"),
                    }
                }
                Done::Lease(replica) => {
                    self.touch(now);
                    self.lease = Some(replica.clone());
                }
                Done::Configure(policy)
                    if self.app.policy == **policy && (policy.poll.is_none() || self.queued_at.is_some()) => {}
                Done::Configure(policy) => {
                    let time = self.touch(now);
                    self.app.policy = (**policy).clone();
                    if policy.poll.is_some() {
                        self.queued_at.get_or_insert(time);
                    }
                }
                Done::ReleaseHolds if self.app.holds.is_empty() => {}
                Done::ReleaseHolds => {
                    self.touch(now);
                    self.app.holds.clear();
                }
                Done::ForgetSequence => {
                    if self.highest.take().is_some() {
                        self.touch(now);
                    }
                }
                Done::Lock(None, lock) if self.app.locks.app == *lock => {}
                Done::Lock(None, lock) => {
                    self.app.locks.app.clone_from(lock);
                    self.touch(now);
                }
                Done::Lock(Some(sequence), _) if *sequence <= self.app.locks.sequence => {}
                Done::Lock(Some(sequence), lock) => {
                    self.app.locks.environment.clone_from(lock);
                    self.app.locks.sequence = *sequence;
                    self.touch(now);
                }
                Done::Require(scoped) => {
                    let (copy, stored) = match scoped {
                        ScopedRequirement::Project(copy) => (copy, &mut self.app.requirements.project),
                        ScopedRequirement::Environment(copy) => (copy, &mut self.app.requirements.environment),
                    };
                    if copy.sequence > stored.sequence {
                        stored.clone_from(copy);
                        self.touch(now);
                    }
                }
                Done::Forget(keep, forgotten) => {
                    self.touch(now);
                    self.app.policy.keep = *keep;
                    let expected = self.surplus(now, &changed);
                    assert_eq!(forgotten.iter().copied().collect::<BTreeSet<_>>(), expected, "what retention forgets");
                    self.forgotten.extend(expected);
                }
            }
        }
    }

    /// Times never decrease: the store's clock, but not before what was stored.
    fn touch(&mut self, now: Timestamp) -> Timestamp {
        self.time = self.time.max(now);
        self.time
    }

    fn admit(&mut self, admission: &Admission, now: Timestamp, changed: &mut BTreeSet<Revision>) -> Admitted {
        let time = self.time.max(now);
        if let Some(key) = &admission.key
            && let Some(used) = self.used(key).filter(|used| used.expires_at > now)
        {
            let same = used.request == key.request;
            return if same { Admitted::Replayed(used.revision) } else { Admitted::KeyReused };
        }
        if matches!(admission.expected, ExpectedLatest::Exactly(expected) if expected != self.latest()) {
            return Admitted::Outdated;
        }
        let is_rollback = admission.deploy.trigger == Trigger::Rollback;
        if !is_rollback && let Some(locked) = self.locked(now) {
            return Admitted::Locked(Box::new(locked));
        }
        let unfinished = self.unfinished();
        let sequence = admission.deploy.order.sequence();
        let newer = self.highest.filter(|(highest, _)| sequence.is_some_and(|sequence| sequence < *highest));
        let supersedes = newer.is_none() && admission.others == OtherDeploys::EndSuperseded;
        let is_restore = is_rollback && admission.deploy.actor.is_service();
        if unfinished.len() >= UNFINISHED_MAX && !supersedes && !is_restore && newer.is_none() {
            return Admitted::Full;
        }
        if supersedes && unfinished.iter().any(|deploy| changed.contains(&deploy.revision)) {
            return Admitted::NextCommit;
        }
        let revision = Revision::new(self.deploys.len() as u64 + 1).unwrap();
        let superseded = if supersedes { unfinished } else { Vec::new() };
        for deploy in &superseded {
            let state = State::Superseded { by: revision, rollback: is_rollback, newer: None };
            self.put(Deploy { updated_at: time, ..deploy.moved(state) });
            changed.insert(deploy.revision);
        }
        let key_expires_at = admission.key.as_ref().map(|key| time.after(key.header.kept_for()));
        if let (Some(key), Some(expires_at)) = (&admission.key, key_expires_at) {
            self.keys.push((key.clone(), KeyUse { request: key.request, revision, expires_at }));
        }
        if let Some(hold) = admission.hold.as_ref().filter(|_| newer.is_none()) {
            self.app.holds.push(Hold { by: revision, ..hold.clone() });
            if self.app.holds.len() > HOLDS_MAX {
                self.app.holds.remove(0);
            }
        }
        self.touch(now);
        self.queued_at.get_or_insert(time);
        self.lease = self.lease.take().or_else(|| admission.driver.clone());
        let mut deploy = entry(admission, revision, time, key_expires_at);
        match (newer, sequence) {
            (Some((sequence, by)), _) => {
                deploy =
                    deploy.moved(State::Superseded { by, rollback: false, newer: Some(Newer::Sequence(sequence)) });
            }
            (None, Some(sequence)) => self.highest = Some((sequence, revision)),
            (None, None) => {}
        }
        changed.insert(revision);
        self.deploys.push(deploy.clone());
        let superseded = superseded.iter().map(|deploy| deploy.revision).collect();
        Admitted::New { deploy: deploy.into(), superseded }
    }

    /// The lock that refuses deploys, of two the one that ends last, and of equals the environment's.
    fn locked(&self, now: Timestamp) -> Option<Locked> {
        let is_over = |lock: &&Lock| lock.until.is_some_and(|until| until <= now);
        let app = self.app.locks.app.as_ref().filter(|lock| !is_over(lock));
        let environment = self.app.locks.environment.as_ref().filter(|lock| !is_over(lock));
        let (scope, lock) = match (app, environment) {
            (None, None) => return None,
            (Some(app), None) => (LockScope::App, app),
            (None, Some(environment)) => (LockScope::Environment, environment),
            (Some(app), Some(environment)) => match (app.until, environment.until) {
                (None, Some(_)) => (LockScope::App, app),
                (Some(one), Some(other)) if one > other => (LockScope::App, app),
                _ => (LockScope::Environment, environment),
            },
        };
        let left = lock.until.map(|until| until.since(now));
        Some(Locked { scope, lock: lock.clone(), left })
    }

    /// Every reason for which the record must not be made.
    fn refusals(&self, record: &Record, changed: &BTreeSet<Revision>) -> Vec<Refused> {
        let mut refusals = Vec::new();
        if record.driver.is_some() && record.driver != self.lease {
            refusals.push(Refused::NotLeased);
        }
        for (number, change) in record.changes.iter().enumerate() {
            let stored = self.newest(|deploy| deploy.revision == change.revision);
            let follows = stored.is_some_and(|stored| !stored.is_terminal() && change.step == stored.step + 1);
            let is_repeated = record.changes[..number].iter().any(|earlier| earlier.revision == change.revision);
            if !follows || is_repeated || stored.is_some_and(|stored| self.is_unmet(stored, change)) {
                refusals.push(Refused::Outdated);
            }
            if changed.contains(&change.revision) {
                refusals.push(Refused::NextCommit);
            }
        }
        refusals
    }

    /// Whether signatures are required, and the deploy would go on with an image that nobody has found signed.
    fn is_unmet(&self, stored: &Deploy, change: &Deploy) -> bool {
        let copies = &self.app.requirements;
        let is_required = copies.project.requirement.is_some() || copies.environment.requirement.is_some();
        let is_built = stored.image.is_none() && change.image.is_some();
        let waits = matches!(stored.status(), Status::Queued | Status::Building);
        let begins = waits && matches!(change.status(), Status::Releasing | Status::RollingOut);
        is_required && (is_built || begins && change.trigger != Trigger::Rollback)
    }

    fn record(&mut self, record: &Record, now: Timestamp, changed: &mut BTreeSet<Revision>) {
        let time = self.touch(now);
        for change in &record.changes {
            self.put(Deploy { updated_at: time, ..change.clone() });
            changed.insert(change.revision);
        }
        self.app.holds.retain(|hold| !record.release_holds.contains(&hold.by));
        let has_work = !self.unfinished().is_empty() || self.app.policy.poll.is_some() || self.owes_a_restore();
        if record.idle && !has_work {
            (self.queued_at, self.lease) = (None, None);
        } else {
            self.queued_at.get_or_insert(time);
        }
    }

    /// Records an image; it is entered anew if a higher revision is ready or was on the cluster.
    fn built(&mut self, built: &Built, now: Timestamp, changed: &mut BTreeSet<Revision>) -> Option<Revision> {
        let time = self.touch(now);
        self.queued_at.get_or_insert(time);
        let first = Deploy { updated_at: time, ..built.deploy.clone() };
        changed.insert(first.revision);
        let is_in_the_way = |other: &&Deploy| other.touched || (!other.is_terminal() && other.image.is_some());
        if !self.deploys.iter().filter(is_in_the_way).any(|other| other.revision > first.revision) {
            self.put(first);
            return None;
        }
        let revision = Revision::new(self.deploys.len() as u64 + 1).unwrap();
        let state = State::Superseded { by: revision, rollback: false, newer: None };
        if let Some((_, highest)) = self.highest.as_mut().filter(|(_, highest)| *highest == first.revision) {
            *highest = revision;
        }
        self.put(Deploy { state, ..first.clone() });
        changed.insert(revision);
        self.deploys.push(Deploy {
            id: built.id,
            revision,
            from: Some(Origin::Built(first.revision)),
            effective: revision,
            state: State::Queued,
            step: 0,
            created_at: time,
            ..first
        });
        Some(revision)
    }

    /// Whether the service has a failed rollout to put right, while nothing is unfinished.
    fn owes_a_restore(&self) -> bool {
        let Some(top) = self.on_cluster() else { return false };
        let ended_badly = match &top.state {
            State::Failed { .. } | State::Superseded { .. } => true,
            State::Cancelled { reason, .. } => reason.as_str() != Reason::APP_DELETED,
            State::Queued
            | State::Building { .. }
            | State::Releasing { .. }
            | State::RollingOut { .. }
            | State::Succeeded { .. } => false,
        };
        // A restore that failed, or never got to the cluster, is not made again.
        let was_tried = top.is_restore() || self.latest_in_order().is_some_and(Deploy::is_restore);
        self.app.policy.on_failure == OnFailure::Restore && ended_badly && !was_tried && self.current().is_some()
    }

    /// The archived deploys on which nothing depends any more; one that ends in the same change is not archived yet.
    fn surplus(&self, now: Timestamp, changed: &BTreeSet<Revision>) -> BTreeSet<Revision> {
        let archived: Vec<Deploy> =
            self.archived().into_iter().filter(|deploy| !changed.contains(&deploy.revision)).collect();
        let mut kept: BTreeSet<Revision> =
            archived.iter().take(self.app.policy.keep as usize).map(|deploy| deploy.revision).collect();
        kept.extend(self.last_restore());
        kept.extend(self.highest.map(|(_, revision)| revision));
        kept.extend(targets(&archived, None));
        for deploy in [self.current(), self.on_cluster()].into_iter().flatten() {
            kept.extend([deploy.revision, deploy.effective]);
            kept.extend(targets(&archived, Some(deploy.effective)));
        }
        let repeatable = archived.iter().filter(|deploy| deploy.kept_until.is_some_and(|until| until > now));
        kept.extend(repeatable.map(|deploy| deploy.revision));
        archived.iter().map(|deploy| deploy.revision).filter(|revision| !kept.contains(revision)).collect()
    }

    fn put(&mut self, deploy: Deploy) {
        let stored = self.deploys.iter_mut().find(|stored| stored.revision == deploy.revision);
        *stored.unwrap() = deploy;
    }
}

/// Whether a deploy ended as it came, after one with a higher sequence.
fn is_late(deploy: &Deploy) -> bool {
    matches!(deploy.state, State::Superseded { by, .. } if by < deploy.revision)
}

/// The versions that repeated rollbacks return to, from the newest good one up to a revision on.
fn targets(archived: &[Deploy], from: Option<Revision>) -> Vec<Revision> {
    let mut chain: Vec<&Deploy> = Vec::new();
    let below = archived.iter().filter(|deploy| from.is_none_or(|from| deploy.revision <= from));
    for deploy in below.filter(|deploy| deploy.status() == Status::Succeeded) {
        if chain.last().is_none_or(|last| !last.same_image(deploy)) && chain.len() < TARGETS {
            chain.push(deploy);
        }
    }
    chain.into_iter().map(|deploy| deploy.revision).collect()
}

/// The queued deploy of an accept.
fn entry(admission: &Admission, revision: Revision, time: Timestamp, kept_until: Option<Timestamp>) -> Deploy {
    let new = admission.deploy.clone();
    Deploy {
        id: admission.id,
        revision,
        image: new.image,
        commit: new.commit,
        sequence: new.order.sequence(),
        trigger: new.trigger,
        actor: new.actor,
        from: new.from,
        effective: new.effective.unwrap_or(revision),
        adopted: new.adopted,
        scale: new.scale,
        configuration: new.configuration.and_then(|brought| brought.0),
        configures: new.configuration.is_some(),
        state: State::Queued,
        touched: false,
        release: None,
        unreleased: new.unreleased,
        verification: None,
        resolution: None,
        digest: None,
        step: 0,
        created_at: time,
        updated_at: time,
        kept_until,
        trace: new.trace,
        committed_at: new.committed_at,
    }
}
