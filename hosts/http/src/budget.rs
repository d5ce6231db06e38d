//! The bytes of bodies that the server may hold at once.
//!
//! A body for which there is no room waits. Each address of strangers, and each known caller, has a share of its pools, so
//! that it never takes the room of another one: bodies beyond the share wait for each other. Strangers take nothing of the
//! pools of known callers, and those of one environment or project leave room to others.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    body::{BODY_MAX, PUSH_MAX},
    callers::Caller,
};

/// The bytes of bodies up to 1 MiB.
const BODIES: Pool = Pool { all: 16 * MIB, share: 4 * MIB, environment: 8 * MIB, project: 12 * MIB };
/// The bytes of larger bodies: two holders may each send the largest push at once, also of one environment.
const PUSHES: Pool = Pool { all: 2 * PUSH_MAX, share: PUSH_MAX, environment: 2 * PUSH_MAX, project: 2 * PUSH_MAX };
const MIB: usize = 1024 * 1024;

/// The most bytes of bodies that are held at once.
#[derive(Clone, Copy)]
struct Pool {
    all: usize,
    /// The most of one holder.
    share: usize,
    /// The most of the known callers of one environment.
    environment: usize,
    /// The most of the known callers of one project.
    project: usize,
}

/// Who sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A caller of this network.
    Stranger(IpAddr),
    /// A caller whose token this process recognises.
    Known(Caller),
}

/// A party that has a share of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Party {
    Holder(Holder),
    Environment(u64),
    Project(u64),
}

/// The room that a body takes, until this is dropped.
#[derive(Default)]
pub(crate) struct Room(Vec<OwnedSemaphorePermit>);

impl Room {
    /// Returns whether no room was taken.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

/// The room for all bodies.
#[derive(Default)]
pub(crate) struct Budget {
    strangers: Pools,
    known: Pools,
}

/// The pools of strangers, or of known callers.
struct Pools {
    bodies: Shared,
    pushes: Shared,
}

impl Default for Pools {
    fn default() -> Self {
        Self { bodies: Shared::new(BODIES), pushes: Shared::new(PUSHES) }
    }
}

impl Budget {
    /// Waits until there is room for a body of this length.
    pub(crate) async fn take(&self, holder: Holder, length: usize) -> Room {
        let pools = match holder {
            Holder::Stranger(_) => &self.strangers,
            Holder::Known(_) => &self.known,
        };
        let pool = if length > BODY_MAX { &pools.pushes } else { &pools.bodies };
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        let mut room = Room::default();
        for semaphore in pool.of(holder) {
            // The semaphores are never closed.
            room.0.extend(semaphore.acquire_many_owned(bytes).await);
        }
        room
    }
}

/// A pool, and the part of each party.
struct Shared {
    pool: Pool,
    all: Arc<Semaphore>,
    /// The free part of each party's share.
    shares: Mutex<HashMap<Party, Weak<Semaphore>>>,
}

impl Shared {
    fn new(pool: Pool) -> Self {
        Self { pool, all: Arc::new(Semaphore::new(pool.all)), shares: Mutex::default() }
    }

    /// Returns what a body of this holder takes of. The smallest share comes first: bodies that wait for it hold nothing of
    /// the pool, and have no place in its queue.
    fn of(&self, holder: Holder) -> Vec<Arc<Semaphore>> {
        let (environment, project) = match holder {
            Holder::Stranger(_) => (None, None),
            Holder::Known(caller) => (caller.environment, caller.project),
        };
        let Pool { share, environment: of_environment, project: of_project, .. } = self.pool;
        let mut all = vec![self.share(Party::Holder(holder), share)];
        all.extend(environment.map(|key| self.share(Party::Environment(key), of_environment)));
        all.extend(project.map(|key| self.share(Party::Project(key), of_project)));
        all.push(self.all.clone());
        all
    }

    fn share(&self, party: Party, most: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&party).and_then(Weak::upgrade) {
            return share;
        }
        // Unused shares are removed when the number has doubled.
        if shares.len() >= 64 && shares.len().is_power_of_two() {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(most));
        shares.insert(party, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use crate::callers::Callers;

    use super::*;

    fn stranger(last: u8) -> Holder {
        Holder::Stranger(IpAddr::from([10, 0, 0, last]))
    }

    fn now(budget: &Budget, holder: Holder, length: usize) -> Option<Room> {
        budget.take(holder, length).now_or_never()
    }

    #[test]
    fn holder_that_fills_its_share_delays_no_other() {
        let callers = Callers::default();
        let [one, another] = ["rh_one", "rh_another"].map(|token| Holder::Known(callers.holder(token)));
        for (length, of_one) in [(BODY_MAX, 4), (PUSH_MAX, 1), (5 * BODY_MAX, 5)] {
            let budget = Budget::default();
            for (filling, other) in [(stranger(1), stranger(2)), (one, another)] {
                let take =
                    |holder| -> Option<Vec<Room>> { (0..of_one).map(|_| now(&budget, holder, length)).collect() };
                let held = take(filling).unwrap();
                let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(budget.take(filling, length))).collect();
                let is_waiting = waiting.iter_mut().all(|room| room.as_mut().now_or_never().is_none());
                assert!(is_waiting, "its further bodies wait");
                assert!(take(other).is_some() && take(one).is_some() == (filling != one), "others have as much");
                drop(held);
            }
        }
    }

    #[test]
    fn holders_of_one_environment_or_project_delay_no_other() {
        let known = |party, environment, project| Holder::Known(Caller { party, environment, project });
        let budget = Budget::default();
        let take = |holder| (0..4).map_while(|_| now(&budget, holder, BODY_MAX)).collect::<Vec<_>>();
        let of_test: Vec<_> = (0..10).flat_map(|party| take(known(party, Some(1), Some(1)))).collect();
        assert_eq!(of_test.len(), 8);
        let of_prod: Vec<_> = (10..20).flat_map(|party| take(known(party, Some(2), Some(1)))).collect();
        assert_eq!(of_prod.len(), 4, "the project has three quarters");
        assert_eq!(take(known(20, Some(3), Some(2))).len(), 4);
        drop((of_test, of_prod));
        assert_eq!(take(known(0, Some(1), Some(1))).len(), 4);
    }

    #[test]
    fn shares_that_nobody_uses_are_forgotten() {
        let budget = Budget::default();
        for last in 0..=255 {
            assert!(now(&budget, stranger(last), BODY_MAX).is_some());
        }
        assert!(budget.strangers.bodies.shares.lock().unwrap().len() <= 65);
    }
}
