//! Who drives what: one replica at a time, and never nobody for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_core::app::AppUid;

use super::Moment;
use crate::{journal::Journal, wire::Life};

/// How long a replica's claims last without another sign of life.
const LEASE: Duration = Duration::from_secs(15);
/// How long work may be without an owner while somebody lives (rule 6).
const ORPHANED: Duration = Duration::from_secs(30);

/// The owners as the store named them.
#[derive(Default)]
pub(crate) struct Owners {
    named: BTreeMap<AppUid, Life>,
    /// Each life's last sign.
    signs: BTreeMap<u64, Moment>,
    /// When each app's owner was named that is not the one before.
    changed: BTreeMap<AppUid, Duration>,
    /// Since when an app has had work and no owner that runs.
    orphans: BTreeMap<AppUid, Duration>,
}

impl Owners {
    /// The life that the store has named last.
    fn named(&self, app: AppUid) -> Option<u64> {
        self.named.get(&app).map(|life| life.number)
    }

    /// The store has answered a sign of life with these apps.
    pub(crate) fn claims(&mut self, life: &Life, apps: &[AppUid], moment: Moment, journal: &Journal) {
        self.signs.insert(life.number, moment);
        for app in apps {
            let Some(former) = self.named.insert(*app, life.clone()).filter(|former| former.number != life.number)
            else {
                continue;
            };
            self.orphans.remove(app);
            self.changed.insert(*app, moment.own);
            journal.tell(&life.name, || format!("takes over {app} from {}", former.name));
            let restarted = former.name == life.name;
            let sign = self.signs.get(&former.number).copied().unwrap_or_default();
            let silent = moment.most.saturating_sub(sign.most);
            journal.count(if restarted { "rule 14: a restart freed its own lease" } else { "rule 6: a lease ran out" });
            journal.expect(restarted || silent >= LEASE, || {
                format!("{} lost {app} to {} after {silent:?} of silence", former.name, life.name)
            });
        }
    }

    /// It has given up everything.
    pub(crate) fn leaves(&mut self, life: &Life) {
        self.named.retain(|_, owner| owner.number != life.number);
    }

    /// Whether the life may believe that the app is its own: whose lease has run out hears of it within that time.
    pub(super) fn may_look(&self, life: &Life, app: AppUid, now: Duration) -> bool {
        let changed = self.changed.get(&app).copied().unwrap_or_default();
        self.named(app).is_none_or(|owner| owner == life.number) || now.saturating_sub(changed) < LEASE
    }

    /// The app is nobody's.
    pub(super) fn forgets(&mut self, app: AppUid) {
        self.named.remove(&app);
        self.orphans.remove(&app);
    }

    /// An engine's record was accepted.
    pub(crate) fn records(&self, life: &Life, app: AppUid, journal: &Journal) {
        let owner = self.named(app);
        journal.expect(owner == Some(life.number), || {
            format!("{} recorded for {app}, whose owner is {:?}", life.name, self.named.get(&app))
        });
    }

    /// Judges how long apps with work have been without an owner that runs, where somebody could have taken them since
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
