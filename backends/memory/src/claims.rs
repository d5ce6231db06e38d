//! Who drives which app: the apps that have work, in the order in which they came, and the replicas that live.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_core::{
    app::AppUid,
    ports::{Claim, Replica},
    time::Timestamp,
};

/// Apps with work, their owners, and the replicas' signs of life.
#[derive(Default)]
pub(crate) struct Claims {
    next_place: u64,
    queue: BTreeSet<(u64, AppUid)>,
    work: BTreeMap<AppUid, Work>,
    alive: BTreeMap<String, Life>,
}

struct Work {
    place: u64,
    owner: Option<Replica>,
}

struct Life {
    incarnation: u64,
    seen: Timestamp,
    ttl: Duration,
}

impl Claims {
    /// The app has work from now on; one that has keeps its place.
    pub(crate) fn queue(&mut self, app: AppUid) {
        let place = self.next_place;
        self.work.entry(app).or_insert_with(|| {
            self.queue.insert((place, app));
            self.next_place += 1;
            Work { place, owner: None }
        });
    }

    /// The app has no work, and nobody owns it.
    pub(crate) fn forget(&mut self, app: AppUid) {
        if let Some(work) = self.work.remove(&app) {
            self.queue.remove(&(work.place, app));
        }
    }

    /// Whether the app is this incarnation's; a claim that ran out is good until another takes the app.
    pub(crate) fn owns(&self, incarnation: u64, app: AppUid) -> bool {
        let owner = self.work.get(&app).and_then(|work| work.owner.as_ref());
        owner.is_some_and(|owner| {
            owner.incarnation == incarnation
                && self.alive.get(&owner.name).is_some_and(|life| life.incarnation == incarnation)
        })
    }

    /// Notes a sign of life and gives out apps, those already owned first, so that no newcomer displaces them.
    pub(crate) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Vec<AppUid> {
        let Replica { name, incarnation } = &claim.replica;
        if claim.ttl.is_zero() {
            // A late farewell of an earlier incarnation must not end the present one.
            if self.alive.get(name).is_some_and(|life| life.incarnation == *incarnation) {
                self.alive.remove(name);
            }
            return Vec::new();
        }
        self.alive.insert(name.clone(), Life { incarnation: *incarnation, seen: now, ttl: claim.ttl });
        for life in self.alive.values_mut() {
            // After the clock was set back a claim still lasts no longer than its time.
            life.seen = life.seen.min(now);
        }
        let named = self.choose(&claim.replica, claim.limit, now);
        for app in &named {
            if let Some(work) = self.work.get_mut(app) {
                work.owner = Some(claim.replica.clone());
            }
        }
        named
    }

    fn choose(&self, replica: &Replica, limit: usize, now: Timestamp) -> Vec<AppUid> {
        let mut owned = Vec::new();
        let mut free = Vec::new();
        for (place, app) in &self.queue {
            let owner = self.work.get(app).and_then(|work| work.owner.as_ref());
            if owner == Some(replica) {
                owned.push((*place, *app));
            } else if free.len() < limit && owner.is_none_or(|owner| !self.lives(owner, now)) {
                free.push((*place, *app));
            }
        }
        owned.truncate(limit);
        free.truncate(limit - owned.len());
        owned.append(&mut free);
        owned.sort_unstable();
        owned.into_iter().map(|(_, app)| app).collect()
    }

    fn lives(&self, replica: &Replica, now: Timestamp) -> bool {
        self.alive
            .get(&replica.name)
            .is_some_and(|life| life.incarnation == replica.incarnation && now.since(life.seen) < life.ttl)
    }
}
