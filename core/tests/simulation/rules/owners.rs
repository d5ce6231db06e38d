//! The owners of apps: one replica at a time, and an app with work is never without one for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_core::app::AppUid;

use super::Moment;
use crate::{journal::Journal, recording_ports::Life};

/// How long a replica's leases last without another heartbeat.
const LEASE: Duration = Duration::from_secs(15);
/// How long work may be without an owner while a replica lives (rule 6).
const ORPHANED: Duration = Duration::from_secs(30);

/// The owners as the store named them.
#[derive(Default)]
pub(crate) struct Owners {
    named: BTreeMap<AppUid, Life>,
    /// Each life's heartbeats, as the store took them.
    beats: BTreeMap<u64, Vec<Beat>>,
    /// The number of heartbeats that the store has taken.
    taken: u64,
    /// The newest life of each name that the store has heard of: the ones before have no leases any more.
    newest: BTreeMap<String, u64>,
    /// When each app's owner was named that is not the one before.
    changed: BTreeMap<AppUid, Duration>,
    /// Since when an app has had work and no owner that runs.
    orphans: BTreeMap<AppUid, Duration>,
}

/// A heartbeat that the store has taken.
#[derive(Clone, Copy)]
struct Beat {
    /// Its place among all: several may be of one moment.
    order: u64,
    moment: Moment,
}

impl Owners {
    /// The life that the store has named last.
    fn named(&self, app: AppUid) -> Option<u64> {
        self.named.get(&app).map(|life| life.number)
    }

    /// The store has taken a heartbeat, and named who lives.
    pub(crate) fn beats(&mut self, life: &Life, moment: Moment) {
        self.taken += 1;
        self.beats.entry(life.number).or_default().push(Beat { order: self.taken, moment });
        self.newest.insert(life.name.clone(), life.number);
    }

    /// The store holds an app's lease for this life.
    pub(crate) fn leased(&mut self, life: &Life, app: AppUid, moment: Moment, journal: &Journal) {
        let Some(former) = self.named.insert(app, life.clone()).filter(|former| former.number != life.number) else {
            return;
        };
        self.orphans.remove(&app);
        self.changed.insert(app, moment.own);
        journal.log(&life.name, || format!("takes over {app} from {}", former.name));
        let restarted = former.name == life.name;
        // Whether the former lived is decided by what the store said to a heartbeat; the commit that follows may be
        // slow, and whoever was paused meanwhile finds another version.
        let beats = |life: &Life| self.beats.get(&life.number).map_or(&[][..], Vec::as_slice);
        let silent_at = |asked: Beat| {
            let before = beats(&former).iter().rev().find(|beat| beat.order < asked.order);
            asked.moment.most.saturating_sub(before.map(|beat| beat.moment.most).unwrap_or_default())
        };
        let is_recent = |asked: &Beat| asked.moment.now.as_secs() + 60 >= moment.now.as_secs();
        let now = Beat { order: self.taken + 1, moment };
        let silent = beats(life).iter().copied().filter(is_recent).map(silent_at).max().unwrap_or(silent_at(now));
        journal.count(if restarted { "rule 14: a restart freed its own lease" } else { "rule 6: a lease ran out" });
        let is_replaced = self.newest.get(&former.name).is_some_and(|newest| *newest > former.number);
        journal.expect(restarted || is_replaced || silent >= LEASE, || {
            format!("{} lost {app} to {} after {silent:?} of silence", former.name, life.name)
        });
    }

    /// Notes that the replica has given up all its apps.
    pub(crate) fn leaves(&mut self, life: &Life) {
        self.named.retain(|_, owner| owner.number != life.number);
    }

    /// Whether the life may believe that the app is its own: a replica whose lease has run out hears of it within that
    /// time.
    pub(super) fn may_look(&self, life: &Life, app: AppUid, now: Duration) -> bool {
        let changed = self.changed.get(&app).copied().unwrap_or_default();
        self.named(app).is_none_or(|owner| owner == life.number) || now.saturating_sub(changed) < LEASE
    }

    /// Notes that the app has no owner.
    pub(super) fn forgets(&mut self, app: AppUid) {
        self.named.remove(&app);
        self.orphans.remove(&app);
    }

    /// Judges how long apps with work have been without an owner that runs, where a replica could have taken them since
    /// `able`.
    pub(crate) fn overdue(
        &mut self,
        working: &BTreeSet<AppUid>,
        running: &BTreeSet<u64>,
        able: Option<Duration>,
        now: Duration,
        journal: &Journal,
    ) {
        self.orphans.retain(|app, _| working.contains(app));
        for app in working {
            if self.named.get(app).is_some_and(|owner| running.contains(&owner.number)) {
                self.orphans.remove(app);
                continue;
            }
            let since = *self.orphans.entry(*app).or_insert(now);
            let Some(able) = able else { continue };
            let waited = now.saturating_sub(since.max(able));
            journal.expect(waited <= ORPHANED, || format!("nobody has driven {app} for {waited:?}"));
        }
    }
}
