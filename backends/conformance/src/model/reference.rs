//! The model: what a store must answer, in the fewest words, without a thought for speed.

use std::{collections::BTreeMap, time::Duration};

use rollhook_core::{
    app::{App, Hold},
    deploy::{Deploy, Revision, State, Status, Trigger},
    ports::{Admission, Admitted, Claim, Page, Record, Replica},
    request::IdempotencyKey,
    time::Timestamp,
};

/// One app; its entries' times are all zero.
pub(super) struct Ledger {
    pub(super) app: App,
    pub(super) entries: Vec<Deploy>,
    keys: Vec<(IdempotencyKey, Revision, Duration)>,
    work: bool,
    owner: Owner,
}

enum Owner {
    Nobody,
    Is(Replica),
    /// It was, when the app came to rest: a store may forget it then, or not.
    Was(Replica),
}

/// Who lives: by name, the incarnation, when it was last seen, and for how long that counts.
#[derive(Default)]
pub(super) struct Replicas(BTreeMap<String, (u64, Duration, Duration)>);

/// Whether something must be, must not be, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    Be,
    NotBe,
    Either,
}

impl Replicas {
    /// Notes the claim, as far as replicas go.
    pub(super) fn note(&mut self, claim: &Claim, now: Duration) {
        let Replica { name, incarnation } = &claim.replica;
        if !claim.ttl.is_zero() {
            self.0.insert(name.clone(), (*incarnation, now, claim.ttl));
        } else if self.is(&claim.replica) {
            self.0.remove(name);
        }
    }

    fn is(&self, replica: &Replica) -> bool {
        self.0.get(&replica.name).is_some_and(|(incarnation, ..)| *incarnation == replica.incarnation)
    }

    fn lives(&self, replica: &Replica, now: Duration) -> bool {
        self.is(replica) && self.0.get(&replica.name).is_some_and(|(_, seen, ttl)| now < *seen + *ttl)
    }
}

impl Ledger {
    pub(super) fn new(app: App) -> Self {
        Self { app, entries: Vec::new(), keys: Vec::new(), work: false, owner: Owner::Nobody }
    }

    pub(super) fn last(&self) -> Option<Revision> {
        self.entries.last().map(|deploy| deploy.revision)
    }

    pub(super) fn unfinished(&self) -> Vec<Deploy> {
        self.entries.iter().filter(|deploy| !deploy.is_terminal()).cloned().collect()
    }

    pub(super) fn newest(&self, wanted: impl Fn(&Deploy) -> bool) -> Option<Deploy> {
        self.entries.iter().rev().find(|deploy| wanted(deploy)).cloned()
    }

    pub(super) fn page(&self, page: Page) -> Vec<Deploy> {
        let wanted = |deploy: &&Deploy| {
            page.before.is_none_or(|before| deploy.revision < before)
                && (!page.succeeded || deploy.status() == Status::Succeeded)
        };
        self.entries.iter().rev().filter(wanted).take(page.limit).cloned().collect()
    }

    pub(super) fn admit(&mut self, admission: &Admission, now: Duration) -> Admitted {
        self.keys.retain(|(key, _, since)| now < *since + key.header.kept_for());
        let same = |key: &IdempotencyKey, other: &IdempotencyKey| (key.header, &key.key) == (other.header, &other.key);
        if let Some(key) = &admission.key
            && let Some((known, revision, _)) = self.keys.iter().find(|(known, ..)| same(known, key))
        {
            let entry = || self.newest(|deploy| deploy.revision == *revision).unwrap();
            return if known.request == key.request { Admitted::Replay(entry()) } else { Admitted::KeyReused };
        }
        if admission.guard != self.app.guard || admission.after.is_some_and(|after| after != self.last()) {
            return Admitted::Stale;
        }
        let revision = Revision::following(self.last());
        let superseded = if admission.supersede { self.unfinished() } else { Vec::new() };
        for deploy in &superseded {
            let rollback = admission.draft.trigger == Trigger::Rollback;
            self.put(deploy.moved(State::Superseded { by: revision, rollback }));
        }
        if let Some(hold) = admission.hold.clone() {
            self.app.holds.push(Hold { by: revision, ..hold });
            self.app.guard += 1;
        }
        self.keys.extend(admission.key.clone().map(|key| (key, revision, now)));
        let deploy = admission.draft.clone().entry(admission.id, revision, Timestamp::default());
        self.entries.push(deploy.clone());
        self.work = true;
        Admitted::New { deploy, superseded: superseded.iter().map(|deploy| deploy.revision).collect() }
    }

    /// Whether the record's changes follow what is stored.
    pub(super) fn follows(&self, record: &Record) -> bool {
        record.changes.iter().all(|change| {
            let stored = self.newest(|deploy| deploy.revision == change.revision);
            stored.is_some_and(|stored| !stored.is_terminal() && change.step == stored.step + 1)
        })
    }

    /// Whether the record's claim covers the app.
    pub(super) fn covered(&self, record: &Record, replicas: &Replicas, now: Duration) -> Must {
        let Some(claim) = record.claim else { return Must::Be };
        match &self.owner {
            Owner::Is(owner) if owner.incarnation == claim && replicas.lives(owner, now) => Must::Be,
            Owner::Is(owner) | Owner::Was(owner) if owner.incarnation == claim && replicas.is(owner) => Must::Either,
            Owner::Is(_) | Owner::Was(_) | Owner::Nobody => Must::NotBe,
        }
    }

    pub(super) fn record(&mut self, record: Record) {
        for change in record.changes {
            self.put(Deploy { updated_at: Timestamp::default(), ..change });
        }
        if !record.lift.is_empty() {
            self.app.holds.retain(|hold| !record.lift.contains(&hold.by));
            self.app.guard += 1;
        }
        self.work = !record.rest || !self.unfinished().is_empty();
        if !self.work
            && let Owner::Is(owner) = &self.owner
        {
            self.owner = Owner::Was(owner.clone());
        }
    }

    /// Whether a claim names the app.
    pub(super) fn named(&self, claim: &Claim, replicas: &Replicas, now: Duration) -> Must {
        if !self.work || claim.ttl.is_zero() {
            return Must::NotBe;
        }
        match &self.owner {
            Owner::Is(owner) if *owner != claim.replica && replicas.lives(owner, now) => Must::NotBe,
            Owner::Was(owner) if *owner != claim.replica && replicas.lives(owner, now) => Must::Either,
            Owner::Is(_) | Owner::Was(_) | Owner::Nobody => Must::Be,
        }
    }

    /// Follows a claim's answer.
    pub(super) fn claimed(&mut self, claim: &Claim, named: bool, replicas: &Replicas) {
        if named {
            self.owner = Owner::Is(claim.replica.clone());
        }
        if let Owner::Is(owner) | Owner::Was(owner) = &self.owner
            && !replicas.is(owner)
        {
            self.owner = Owner::Nobody;
        }
    }

    fn put(&mut self, deploy: Deploy) {
        let stored = self.entries.iter_mut().find(|stored| stored.revision == deploy.revision);
        *stored.unwrap() = deploy;
    }
}
