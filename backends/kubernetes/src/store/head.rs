//! Where an app's history stands, and every decision that changes it: pure, written back as a whole by one replacement
//! of the App.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    Error, Result,
    app::{HOLDS_MAX, Hold},
    deploy::{Commit, Deploy, Revision, State, Status, Trigger},
    image::{Digest, ImageRef},
    ports::Record,
    time::Timestamp,
};
use serde_json::{Map, Value};

use super::{
    codec,
    crd::{AppStatus, Owner},
};

/// An app's status, parsed.
///
/// Entries up to `folded` are taken into account: those that are unfinished stand in `open` with all of their state, the
/// others have ended. Entries above it are queued, as they were accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Head {
    pub(crate) guard: u64,
    pub(crate) holds: Vec<Hold>,
    pub(crate) folded: u64,
    pub(crate) open: BTreeMap<Revision, Changing>,
    /// Ends that are not in their objects yet.
    pub(crate) pending: BTreeMap<Revision, Changing>,
    pub(crate) current: Option<Revision>,
    pub(crate) ended_on_cluster: Option<Revision>,
    pub(crate) last_restore: Option<Revision>,
    pub(crate) owner: Option<Owner>,
    pub(crate) work_since: Option<Timestamp>,
    pub(crate) last_time: Timestamp,
    pub(crate) extra: Map<String, Value>,
}

/// The part of an entry that changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changing {
    pub(crate) revision: Revision,
    pub(crate) step: u32,
    pub(crate) state: State,
    pub(crate) touched: bool,
    /// Where it is not the accepted one.
    pub(crate) image: Option<ImageRef>,
    /// Where it is not the accepted one.
    pub(crate) commit: Option<Commit>,
    pub(crate) digest: Option<Digest>,
    pub(crate) updated_at: Timestamp,
    pub(crate) extra: Map<String, Value>,
}

/// What an entry's object says that never changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    /// The entry as it was accepted.
    pub(crate) deploy: Deploy,
    pub(crate) supersede: bool,
    pub(crate) hold: Option<Hold>,
}

impl Accepted {
    /// Whether it changes more than its own entry, so that it must be folded before anybody acts on what he read.
    pub(crate) fn has_effects(&self) -> bool {
        self.supersede || self.hold.is_some()
    }

    /// The entry as this state has it.
    pub(crate) fn with(&self, changing: &Changing) -> Deploy {
        let accepted = self.deploy.clone();
        Deploy {
            image: changing.image.clone().or(accepted.image),
            commit: changing.commit.clone().or(accepted.commit),
            state: changing.state.clone(),
            touched: changing.touched,
            digest: changing.digest.clone(),
            step: changing.step,
            updated_at: changing.updated_at,
            ..accepted
        }
    }
}

impl Changing {
    /// The state of an entry that has not changed yet, or of one that has, beside what was accepted.
    pub(crate) fn of(deploy: &Deploy, accepted: &Deploy) -> Self {
        Self {
            revision: deploy.revision,
            step: deploy.step,
            state: deploy.state.clone(),
            touched: deploy.touched,
            image: deploy.image.clone().filter(|_| deploy.image != accepted.image),
            commit: deploy.commit.clone().filter(|_| deploy.commit != accepted.commit),
            digest: deploy.digest.clone(),
            updated_at: deploy.updated_at,
            extra: Map::new(),
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.state.status().is_terminal()
    }
}

impl Head {
    /// The newest that touched the cluster.
    pub(crate) fn on_cluster(&self) -> Option<Revision> {
        let touching = self.open.values().rev().find(|entry| entry.touched).map(|entry| entry.revision);
        self.ended_on_cluster.max(touching)
    }

    /// The entry's state, where it is not in the entry's own object.
    pub(crate) fn state(&self, revision: Revision) -> Option<&Changing> {
        self.open.get(&revision).or_else(|| self.pending.get(&revision))
    }

    /// The time for the app's next write: the clock's, unless that was set back.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now.max(self.last_time)
    }

    /// Takes an entry into account: the one above `folded`. Returns whom it superseded, ascending.
    pub(crate) fn fold(&mut self, entry: &Accepted, now: Timestamp) -> Vec<Revision> {
        let Accepted { deploy, supersede, hold } = entry;
        let revision = deploy.revision;
        self.last_time = self.last_time.max(deploy.created_at);
        let mut superseded = Vec::new();
        if *supersede {
            let updated_at = self.time(now);
            let rollback = deploy.trigger == Trigger::Rollback;
            for entry in self.open.clone().into_values() {
                superseded.push(entry.revision);
                let state = State::Superseded { by: revision, rollback };
                self.note(Changing { state, step: entry.step + 1, updated_at, ..entry });
            }
        }
        if let Some(hold) = hold {
            self.holds.push(Hold { by: revision, ..hold.clone() });
            let surplus = self.holds.len().saturating_sub(HOLDS_MAX);
            self.holds.drain(..surplus);
            self.guard += 1;
        }
        if deploy.is_restore() {
            self.last_restore = self.last_restore.max(Some(revision));
        }
        self.folded = revision.get();
        self.work_since.get_or_insert(deploy.created_at);
        self.open.insert(revision, Changing::of(deploy, deploy));
        superseded
    }

    /// Changes entries, or says why not. `accepted` is what is known of the entries that the record is about.
    pub(crate) fn record(
        &mut self,
        record: &Record,
        accepted: &BTreeMap<Revision, Deploy>,
        now: Timestamp,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut follows = |change: &Deploy| {
            seen.insert(change.revision)
                && accepted.contains_key(&change.revision)
                && self.open.get(&change.revision).is_some_and(|stored| change.step == stored.step + 1)
        };
        if !record.changes.iter().all(&mut follows) {
            return Err(Error::Conflict("deploy"));
        }
        let updated_at = self.time(now);
        for change in &record.changes {
            let Some(accepted) = accepted.get(&change.revision) else { continue };
            let extra = self.open.get(&change.revision).map(|stored| stored.extra.clone()).unwrap_or_default();
            self.note(Changing { updated_at, extra, ..Changing::of(change, accepted) });
        }
        if !record.lift.is_empty() {
            self.holds.retain(|hold| !record.lift.contains(&hold.by));
            self.guard += 1;
        }
        if record.rest && self.open.is_empty() {
            // It stays its owner's for as long as that one lives: what comes next is driven without another claim.
            self.work_since = None;
        } else {
            self.work_since.get_or_insert(updated_at);
        }
        Ok(())
    }

    fn note(&mut self, entry: Changing) {
        let revision = entry.revision;
        self.last_time = self.last_time.max(entry.updated_at);
        if !entry.is_terminal() {
            self.open.insert(revision, entry);
            return;
        }
        if entry.state.status() == Status::Succeeded {
            self.current = self.current.max(Some(revision));
        }
        if entry.touched {
            self.ended_on_cluster = self.ended_on_cluster.max(Some(revision));
        }
        self.open.remove(&revision);
        self.pending.insert(revision, entry);
    }

    /// Takes entries out whose objects are gone; `before` is the newest that succeeded of those that are left.
    pub(crate) fn lose(&mut self, lost: &[Revision], before: Option<Revision>) {
        self.open.retain(|revision, _| !lost.contains(revision));
        self.pending.retain(|revision, _| !lost.contains(revision));
        for place in [&mut self.current, &mut self.ended_on_cluster] {
            if place.is_some_and(|revision| lost.contains(&revision)) {
                *place = before;
            }
        }
    }

    /// The status that an object holds.
    pub(crate) fn of(status: AppStatus, what: impl Fn() -> String + Copy) -> Result<Self> {
        let states = |entries: &[super::crd::EntryState]| -> Result<BTreeMap<Revision, Changing>> {
            let pair = |entry| codec::changing(entry, what).map(|state| (state.revision, state));
            entries.iter().map(pair).collect()
        };
        let time = |text: &String| codec::time(text, what);
        Ok(Self {
            guard: status.guard,
            holds: status.holds.iter().map(|hold| codec::value(hold, what)).collect::<Result<_>>()?,
            folded: status.folded,
            open: states(&status.open)?,
            pending: states(&status.pending)?,
            current: status.current.and_then(Revision::new),
            ended_on_cluster: status.ended_on_cluster.and_then(Revision::new),
            last_restore: status.last_restore.and_then(Revision::new),
            owner: status.owner,
            work_since: status.work_since.as_ref().map(time).transpose()?,
            last_time: time(&status.last_time)?,
            extra: status.extra,
        })
    }

    /// The status, as an object holds it.
    pub(crate) fn into_status(self) -> Result<AppStatus> {
        Ok(AppStatus {
            guard: self.guard,
            holds: self.holds.iter().map(codec::json).collect::<Result<_>>()?,
            folded: self.folded,
            open: self.open.values().map(codec::entry_state).collect::<Result<_>>()?,
            pending: self.pending.values().map(codec::entry_state).collect::<Result<_>>()?,
            current: self.current.map(Revision::get),
            ended_on_cluster: self.ended_on_cluster.map(Revision::get),
            last_restore: self.last_restore.map(Revision::get),
            owner: self.owner,
            work_since: self.work_since.map(codec::time_text),
            last_time: codec::time_text(self.last_time),
            extra: self.extra,
        })
    }
}

#[cfg(test)]
mod tests;
