//! What the file holds, and the rules by which it changes.

use std::collections::BTreeMap;

use rollhook_core::{
    Error, Result,
    app::{App, AppUid, HOLDS_MAX, Hold},
    deploy::{Deploy, Revision, State as DeployState, Status, Trigger},
    ports::{Admission, Admitted, Claim, Page, Record, Replica, UNFINISHED_MAX, View},
    request::IdempotencyKey,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Everything.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) operator_hash: Option<[u8; 32]>,
    pub(crate) ledgers: BTreeMap<AppUid, Ledger>,
    /// The apps with work and their owners, longest waiting first.
    pub(crate) work: Vec<(AppUid, Option<Replica>)>,
    /// By name: the replica's incarnation, and until when it counts as living.
    pub(crate) replicas: BTreeMap<String, (u64, Timestamp)>,
}

/// All that belongs to one registration.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) app: App,
    pub(crate) token: Option<(Vec<u8>, Timestamp)>,
    /// By revision, without gaps.
    entries: Vec<Deploy>,
    keys: Vec<(IdempotencyKey, Revision, Timestamp)>,
    /// The latest time that was stored, below which none may follow.
    written: Timestamp,
}

impl State {
    pub(crate) fn ledger(&self, app: AppUid) -> Result<&Ledger> {
        self.ledgers.get(&app).ok_or(Error::NotFound("app"))
    }

    pub(crate) fn ledger_mut(&mut self, app: AppUid) -> Result<&mut Ledger> {
        self.ledgers.get_mut(&app).ok_or(Error::NotFound("app"))
    }

    pub(crate) fn admit(&mut self, admission: Admission, now: Timestamp) -> Result<Admitted> {
        let app = admission.app;
        let admitted = self.ledger_mut(app)?.admit(admission, now);
        if matches!(admitted, Admitted::New { .. }) {
            self.queue(app);
        }
        Ok(admitted)
    }

    pub(crate) fn record(&mut self, record: Record, now: Timestamp) -> Result<()> {
        let Record { app, claim, changes, lift, rest } = record;
        self.ledger(app)?;
        if claim.is_some_and(|incarnation| !self.owns(incarnation, app)) {
            return Err(Error::Conflict("claim"));
        }
        let ledger = self.ledger_mut(app)?;
        ledger.change(changes, now)?;
        if !lift.is_empty() {
            ledger.app.holds.retain(|hold| !lift.contains(&hold.by));
            ledger.app.guard += 1;
        }
        // An app that is polled has work whatever the engine says.
        if rest && ledger.unfinished().is_empty() && !ledger.app.is_polled() {
            self.work.retain(|(busy, _)| *busy != app);
        } else {
            self.queue(app);
        }
        Ok(())
    }

    pub(crate) fn queue(&mut self, app: AppUid) {
        if self.work.iter().all(|(busy, _)| *busy != app) {
            self.work.push((app, None));
        }
    }

    /// A claim that ran out is good until another replica takes the app.
    fn owns(&self, incarnation: u64, app: AppUid) -> bool {
        let owner = self.work.iter().find(|(busy, _)| *busy == app).and_then(|(_, owner)| owner.as_ref());
        let is_latest = |owner: &Replica| self.replicas.get(&owner.name).is_some_and(|latest| latest.0 == incarnation);
        owner.is_some_and(|owner| owner.incarnation == incarnation && is_latest(owner))
    }

    /// Notes a sign of life and gives out apps, those already owned first.
    pub(crate) fn claim(&mut self, claim: Claim, now: Timestamp) -> Vec<AppUid> {
        let Claim { replica, ttl, limit } = claim;
        if ttl.is_zero() {
            // A late farewell of an earlier incarnation must not end the present one.
            self.replicas.retain(|name, (incarnation, _)| *name != replica.name || *incarnation != replica.incarnation);
            return Vec::new();
        }
        self.replicas.insert(replica.name.clone(), (replica.incarnation, now.after(ttl)));
        let replicas = &self.replicas;
        let lives = |owner: &Replica| {
            replicas.get(&owner.name).is_some_and(|(latest, end)| *latest == owner.incarnation && now < *end)
        };
        let own = self.work.iter().filter(|(_, owner)| owner.as_ref() == Some(&replica)).count();
        let mut room = limit.saturating_sub(own);
        let mut named = Vec::new();
        for (app, owner) in &mut self.work {
            let mine = owner.as_ref() == Some(&replica);
            if !mine && (room == 0 || owner.as_ref().is_some_and(lives)) {
                continue;
            }
            room -= usize::from(!mine);
            *owner = Some(replica.clone());
            named.push(*app);
        }
        named.truncate(limit);
        named
    }
}

impl Ledger {
    pub(crate) fn new(app: App) -> Self {
        Self { written: app.created_at, app, token: None, entries: Vec::new(), keys: Vec::new() }
    }

    /// The time to store with a write: the clock's, but never before what was stored.
    pub(crate) fn stamp(&mut self, now: Timestamp) -> Timestamp {
        self.written = self.written.max(now);
        self.written
    }

    fn last(&self) -> Option<Revision> {
        self.entries.last().map(|deploy| deploy.revision)
    }

    fn at(&self, revision: Revision) -> Option<&Deploy> {
        self.entries.get(usize::try_from(revision.get() - 1).ok()?)
    }

    fn put(&mut self, deploy: Deploy) {
        match self.entries.iter_mut().rev().find(|stored| stored.revision == deploy.revision) {
            Some(stored) => *stored = deploy,
            None => self.entries.push(deploy),
        }
    }

    fn unfinished(&self) -> Vec<Deploy> {
        self.entries.iter().filter(|deploy| !deploy.is_terminal()).cloned().collect()
    }

    pub(crate) fn view(&self, now: Timestamp) -> View {
        let newest = |is: fn(&Deploy) -> bool| self.entries.iter().rev().find(|deploy| is(deploy)).cloned();
        View {
            now: self.written.max(now),
            app: self.app.clone(),
            last: self.last(),
            unfinished: self.unfinished(),
            current: newest(|deploy| deploy.status() == Status::Succeeded),
            on_cluster: newest(|deploy| deploy.touched),
            last_restore: newest(Deploy::is_restore).map(|deploy| deploy.revision),
        }
    }

    pub(crate) fn page(&self, page: Page) -> Vec<Deploy> {
        let wanted = |deploy: &&Deploy| {
            page.before.is_none_or(|before| deploy.revision < before)
                && (!page.succeeded || deploy.status() == Status::Succeeded)
        };
        self.entries.iter().rev().filter(wanted).take(page.limit).cloned().collect()
    }

    fn admit(&mut self, admission: Admission, now: Timestamp) -> Admitted {
        let now = self.written.max(now);
        self.keys.retain(|(_, _, expiry)| *expiry > now);
        if let Some(key) = &admission.key {
            let known = self.keys.iter().find(|(known, ..)| known.header == key.header && known.key == key.key);
            match known.map(|(known, revision, _)| (known.request == key.request, self.at(*revision))) {
                Some((true, Some(deploy))) => return Admitted::Replay(deploy.clone()),
                Some(_) => return Admitted::KeyReused,
                None => {}
            }
        }
        if admission.guard != self.app.guard || admission.after.is_some_and(|after| after != self.last()) {
            return Admitted::Stale;
        }
        let unfinished = self.unfinished();
        if !admission.supersede && unfinished.len() >= UNFINISHED_MAX {
            return Admitted::Full;
        }
        self.add(admission, unfinished, now)
    }

    fn add(&mut self, admission: Admission, unfinished: Vec<Deploy>, now: Timestamp) -> Admitted {
        let (now, revision) = (self.stamp(now), Revision::following(self.last()));
        let mut superseded = Vec::new();
        if admission.supersede {
            let rollback = admission.draft.trigger == Trigger::Rollback;
            for deploy in unfinished {
                superseded.push(deploy.revision);
                let ended = deploy.moved(DeployState::Superseded { by: revision, rollback });
                self.put(Deploy { updated_at: now, ..ended });
            }
        }
        if let Some(hold) = admission.hold {
            self.app.holds.push(Hold { by: revision, ..hold });
            self.app.holds.drain(..self.app.holds.len().saturating_sub(HOLDS_MAX));
            self.app.guard += 1;
        }
        if let Some(key) = admission.key {
            let expiry = now.after(key.header.kept_for());
            self.keys.push((key, revision, expiry));
        }
        let deploy = admission.draft.entry(admission.id, revision, now);
        self.put(deploy.clone());
        Admitted::New { deploy, superseded }
    }

    /// Writes the changes, each of which must follow what is stored. Where one does not, the caller drops all of them.
    fn change(&mut self, changes: Vec<Deploy>, now: Timestamp) -> Result<()> {
        let now = if changes.is_empty() { now } else { self.stamp(now) };
        for change in changes {
            let stored = self.at(change.revision);
            if !stored.is_some_and(|stored| !stored.is_terminal() && change.step == stored.step + 1) {
                return Err(Error::Conflict("deploy"));
            }
            self.put(Deploy { updated_at: now, ..change });
        }
        Ok(())
    }
}
