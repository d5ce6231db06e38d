//! What a batch concerns, in memory: read from the file before, decided on here, written back after.
//!
//! Nothing in here does I/O. Each decision sees what the ones before it in the same batch did, and changes all that it
//! has to change or nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rollhook_core::{
    Error, Result,
    app::{App, AppUid, HOLDS_MAX, Hold},
    deploy::{Deploy, Revision, State, Status, Trigger},
    ports::{Admission, Admitted, Record, UNFINISHED_MAX},
    request::IdempotencyKey,
    time::Timestamp,
};
use serde::de::DeserializeOwned;

use crate::rows::{REVISION_MAX, entry_id, from_json, header_number, is_terminal, signed, status_number};

/// Everything that a batch reads and changes.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) now: Timestamp,
    /// The place that the next app with new work gets.
    pub(crate) next_place: i64,
    pub(crate) heads: HashMap<AppUid, Head>,
    /// By id: the entries that the batch concerns.
    pub(crate) entries: BTreeMap<i64, Entry>,
    pub(crate) keys: BTreeMap<KeyName, Known>,
}

/// The changing part of an app.
pub(crate) struct Head {
    pub(crate) app: i64,
    pub(crate) guard: u64,
    pub(crate) last: Option<Revision>,
    pub(crate) current: Option<Revision>,
    /// The newest that touched the cluster and ended: what it ended with stays.
    pub(crate) ended_on_cluster: Option<Revision>,
    /// The unfinished ones that touched it, as far as is known: a refused order takes its touch back.
    pub(crate) touching: BTreeSet<Revision>,
    pub(crate) last_restore: Option<Revision>,
    pub(crate) unfinished: BTreeSet<Revision>,
    pub(crate) place: Option<i64>,
    pub(crate) owner: Option<i64>,
    /// Whether the owner is its replica's present incarnation.
    pub(crate) owner_is_known: bool,
    pub(crate) last_time: Timestamp,
    /// The registration, where the batch may change it.
    pub(crate) body: Body<App>,
    /// Whether the app is polled; not asked where nothing rests.
    pub(crate) polled: bool,
    pub(crate) changed: bool,
    pub(crate) body_changed: bool,
}

/// One entry.
pub(crate) struct Entry {
    pub(crate) status: i64,
    pub(crate) step: i64,
    pub(crate) body: Body<Deploy>,
    pub(crate) changed: bool,
}

/// Stored JSON, parsed when it is needed.
pub(crate) enum Body<T> {
    /// Not read from the file.
    Absent,
    /// As it was read.
    Text(Vec<u8>),
    /// As it is now.
    Value(Box<T>),
}

/// App, header and text of an idempotency key.
pub(crate) type KeyName = (i64, i64, String);

/// What a key was used for.
pub(crate) struct Known {
    pub(crate) request: Vec<u8>,
    pub(crate) revision: Revision,
    pub(crate) expires_at: Timestamp,
    pub(crate) changed: bool,
}

impl<T: DeserializeOwned> Body<T> {
    fn value(&mut self, what: impl Fn() -> String) -> Result<&mut T> {
        if let Self::Text(text) = self {
            *self = Self::Value(Box::new(from_json(text, &what)?));
        }
        match self {
            Self::Value(value) => Ok(value),
            Self::Absent | Self::Text(_) => Err(Error::Corrupt { what: what(), cause: None }),
        }
    }
}

impl Entry {
    fn of(deploy: Deploy) -> Self {
        Self {
            status: status_number(deploy.status()),
            step: i64::from(deploy.step),
            body: Body::Value(Box::new(deploy)),
            changed: true,
        }
    }
}

impl Head {
    /// The time for the app's next write: the clock's, unless it was set back.
    fn time(&self, now: Timestamp) -> Timestamp {
        now.max(self.last_time)
    }

    /// The newest that touched the cluster.
    pub(crate) fn on_cluster(&self) -> Option<Revision> {
        self.ended_on_cluster.max(self.touching.last().copied())
    }

    fn queue(&mut self, next_place: &mut i64) {
        if self.place.is_none() {
            self.place = Some(*next_place);
            *next_place += 1;
        }
    }

    fn note(&mut self, deploy: &Deploy) {
        let revision = deploy.revision;
        mark(&mut self.unfinished, revision, !deploy.is_terminal());
        mark(&mut self.touching, revision, !deploy.is_terminal() && deploy.touched);
        let raise = |newest: &mut Option<Revision>, holds: bool| {
            if holds {
                *newest = (*newest).max(Some(revision));
            }
        };
        raise(&mut self.last, true);
        raise(&mut self.current, deploy.status() == Status::Succeeded);
        raise(&mut self.ended_on_cluster, deploy.is_terminal() && deploy.touched);
        raise(&mut self.last_restore, deploy.is_restore());
        self.last_time = deploy.updated_at;
        self.changed = true;
    }

    fn change_holds(&mut self, change: impl FnOnce(&mut Vec<Hold>)) -> Result<()> {
        let app = self.body.value(|| "an app's registration cannot be read".to_owned())?;
        change(&mut app.holds);
        app.guard += 1;
        self.guard = app.guard;
        self.body_changed = true;
        Ok(())
    }
}

impl Ledger {
    /// Accepts a deploy, or says why not.
    pub(crate) fn admit(&mut self, admission: &Admission) -> Result<Admitted> {
        let head = self.heads.get(&admission.app).ok_or(Error::NotFound("app"))?;
        let time = head.time(self.now);
        if let Some(replayed) = admission.key.as_ref().and_then(|key| self.used(head.app, key, time)) {
            return self.replay(replayed);
        }
        let head = self.heads.get(&admission.app).ok_or(Error::NotFound("app"))?;
        if admission.guard != head.guard || admission.after.is_some_and(|after| after != head.last) {
            return Ok(Admitted::Stale);
        }
        if !admission.supersede && head.unfinished.len() >= UNFINISHED_MAX {
            return Ok(Admitted::Full);
        }
        let revision = Revision::following(head.last);
        if revision.get() > REVISION_MAX {
            return Err(Error::invalid("the app has as many entries as the store can number"));
        }
        self.add(admission, revision, time)
    }

    /// The revision that the key made, or none where it was another request's; nothing where the key is free.
    fn used(&self, app: i64, key: &IdempotencyKey, time: Timestamp) -> Option<Option<i64>> {
        let known = self.keys.get(&key_name(app, key))?;
        let same = known.request == key.request;
        (known.expires_at > time).then(|| same.then(|| entry_id(app, known.revision.get())))
    }

    fn replay(&mut self, entry: Option<i64>) -> Result<Admitted> {
        match entry {
            Some(id) => Ok(Admitted::Replay(self.deploy(id)?.clone())),
            None => Ok(Admitted::KeyReused),
        }
    }

    fn deploy(&mut self, id: i64) -> Result<&mut Deploy> {
        let what = || format!("entry {} of an app's history cannot be read", id & i64::from(u32::MAX));
        let entry = self.entries.get_mut(&id).ok_or_else(|| Error::Corrupt { what: what(), cause: None })?;
        entry.body.value(what)
    }

    fn add(&mut self, admission: &Admission, revision: Revision, now: Timestamp) -> Result<Admitted> {
        // All that can fail comes first, so that nothing is changed when it does.
        let ended = if admission.supersede { self.ended_by(admission, revision, now)? } else { Vec::new() };
        let head = self.heads.get_mut(&admission.app).ok_or(Error::NotFound("app"))?;
        if let Some(hold) = &admission.hold {
            head.change_holds(|holds| {
                holds.push(Hold { by: revision, ..hold.clone() });
                holds.drain(..holds.len().saturating_sub(HOLDS_MAX));
            })?;
        }
        let superseded = ended.iter().map(|deploy| deploy.revision).collect();
        let deploy = admission.draft.clone().entry(admission.id, revision, now);
        for deploy in ended.into_iter().chain([deploy.clone()]) {
            head.note(&deploy);
            self.entries.insert(entry_id(head.app, deploy.revision.get()), Entry::of(deploy));
        }
        head.queue(&mut self.next_place);
        if let Some(key) = &admission.key {
            let expires_at = now.after(key.header.kept_for());
            let known = Known { request: key.request.to_vec(), revision, expires_at, changed: true };
            self.keys.insert(key_name(head.app, key), known);
        }
        Ok(Admitted::New { deploy, superseded })
    }

    /// The app's unfinished entries, ended by the new one.
    fn ended_by(&mut self, admission: &Admission, by: Revision, now: Timestamp) -> Result<Vec<Deploy>> {
        let head = self.heads.get(&admission.app).ok_or(Error::NotFound("app"))?;
        let ids: Vec<i64> = head.unfinished.iter().map(|revision| entry_id(head.app, revision.get())).collect();
        let rollback = admission.draft.trigger == Trigger::Rollback;
        let end = |deploy: &mut Deploy| Deploy { updated_at: now, ..deploy.moved(State::Superseded { by, rollback }) };
        ids.into_iter().map(|id| self.deploy(id).map(end)).collect()
    }

    /// Changes entries, or says why not.
    pub(crate) fn record(&mut self, record: &Record) -> Result<()> {
        let head = self.heads.get_mut(&record.app).ok_or(Error::NotFound("app"))?;
        let owns = |claim| head.owner == Some(signed(claim)) && head.owner_is_known;
        if record.claim.is_some_and(|claim| !owns(claim)) {
            return Err(Error::Conflict("claim"));
        }
        let mut seen = HashSet::new();
        let mut follows = |change: &Deploy| {
            seen.insert(change.revision)
                && self
                    .entries
                    .get(&entry_id(head.app, change.revision.get()))
                    .is_some_and(|stored| !is_terminal(stored.status) && i64::from(change.step) == stored.step + 1)
        };
        if !record.changes.iter().all(&mut follows) {
            return Err(Error::Conflict("deploy"));
        }
        if !record.lift.is_empty() {
            head.change_holds(|holds| holds.retain(|hold| !record.lift.contains(&hold.by)))?;
        }
        let now = head.time(self.now);
        for change in &record.changes {
            let change = Deploy { updated_at: now, ..change.clone() };
            head.note(&change);
            self.entries.insert(entry_id(head.app, change.revision.get()), Entry::of(change));
        }
        if record.rest && head.unfinished.is_empty() && !head.polled {
            head.changed |= head.place.is_some();
            // It stays its owner's for as long as that one lives: what comes next is driven without another claim.
            head.place = None;
        } else {
            head.changed |= head.place.is_none();
            head.queue(&mut self.next_place);
        }
        Ok(())
    }
}

fn mark(set: &mut BTreeSet<Revision>, revision: Revision, member: bool) {
    if member {
        set.insert(revision);
    } else {
        set.remove(&revision);
    }
}

/// The name that a key has in the store.
pub(crate) fn key_name(app: i64, key: &IdempotencyKey) -> KeyName {
    (app, header_number(key.header), key.key.clone())
}
