//! The bytes of bodies, or of answers, that the server may hold at once.
//!
//! A body for which there is no room waits. Each address of strangers, and each known caller, has a share of its pools, which
//! is never more than what the others leave free: however many hold room, the next one finds some, and none fills the room
//! of another one. Where bodies wait, the holder with the least room is served first. Strangers take nothing of the pools of
//! known callers, those of one environment or project leave room to others, and small bodies never wait for large ones.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{
    body::{BODY_MAX, PUSH_MAX},
    callers::Caller,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// The largest body of [`SMALL`]: most pushes of git hosts fit, whose signature shows only at their end.
pub(crate) const SMALL_MAX: usize = 64 * KIB;
/// The bytes of bodies up to [`SMALL_MAX`].
const SMALL: Pool = Pool { all: 8 * MIB, share: MIB / 4, environment: 4 * MIB, project: 6 * MIB };
/// The bytes of larger bodies up to 1 MiB.
const BODIES: Pool = Pool { all: 16 * MIB, share: 4 * MIB, environment: 8 * MIB, project: 12 * MIB };
/// The bytes of larger bodies: two holders may each send the largest push at once, of two environments.
const PUSHES: Pool = Pool { all: 2 * PUSH_MAX, share: PUSH_MAX, environment: PUSH_MAX, project: PUSH_MAX / 2 * 3 };

/// The most bytes of bodies that are held at once.
#[derive(Clone, Copy)]
struct Pool {
    all: usize,
    /// The most of one holder, at most half of all.
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

impl Holder {
    /// Returns the parties whose shares a body takes of: the holder, its environment and its project.
    fn parties(self) -> [Option<Party>; 3] {
        let (environment, project) = match self {
            Self::Stranger(_) => (None, None),
            Self::Known(caller) => (caller.environment, caller.project),
        };
        [Some(Party::Holder(self)), environment.map(Party::Environment), project.map(Party::Project)]
    }
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
pub(crate) struct Room(Option<Taken>);

impl Room {
    /// Returns whether no room was taken.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
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
    small: Arc<Shared>,
    bodies: Arc<Shared>,
    pushes: Arc<Shared>,
}

impl Default for Pools {
    fn default() -> Self {
        Self { small: Shared::new(SMALL), bodies: Shared::new(BODIES), pushes: Shared::new(PUSHES) }
    }
}

impl Budget {
    /// Waits until there is room for a body of this length.
    pub(crate) async fn take(&self, holder: Holder, length: usize) -> Room {
        let pools = match holder {
            Holder::Stranger(_) => &self.strangers,
            Holder::Known(_) => &self.known,
        };
        let pool = if length <= SMALL_MAX {
            &pools.small
        } else if length <= BODY_MAX {
            &pools.bodies
        } else {
            &pools.pushes
        };
        pool.take(holder, length).await
    }
}

/// A pool, and its use.
struct Shared {
    pool: Pool,
    state: Mutex<State>,
}

/// The bytes that are taken of a pool, and the bodies that wait for some.
#[derive(Default)]
struct State {
    taken: usize,
    by_party: HashMap<Party, usize>,
    /// The waiting bodies of each holder, in the order in which they came.
    waiting: HashMap<Holder, VecDeque<Waiter>>,
    /// The number of the next body that waits.
    next: u64,
}

/// A body that waits.
struct Waiter {
    number: u64,
    bytes: usize,
    served: oneshot::Sender<Room>,
}

/// Bytes that a body takes of a pool, until this is dropped.
struct Taken {
    of: Arc<Shared>,
    holder: Holder,
    bytes: usize,
}

/// The place of a waiting body, which it leaves once this is dropped.
struct Place<'a> {
    of: &'a Arc<Shared>,
    holder: Holder,
    number: u64,
}

impl Shared {
    fn new(pool: Pool) -> Arc<Self> {
        Arc::new(Self { pool, state: Mutex::default() })
    }

    async fn take(self: &Arc<Self>, holder: Holder, bytes: usize) -> Room {
        let (served, room) = oneshot::channel();
        let number = self.lock().enter(holder, bytes, served);
        let _place = Place { of: self, holder, number };
        self.serve();
        room.await.unwrap_or_default()
    }

    /// Gives room to the bodies whose turn it is, as long as there is some.
    fn serve(self: &Arc<Self>) {
        loop {
            let next = self.lock().next(self.pool);
            let Some((holder, Waiter { bytes, served, .. })) = next else { return };
            // A body whose caller is gone by now returns the room.
            let _ = served.send(Room(Some(Taken { of: self.clone(), holder, bytes })));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a waiting body, and returns its number.
    fn enter(&mut self, holder: Holder, bytes: usize, served: oneshot::Sender<Room>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.entry(holder).or_default().push_back(Waiter { number, bytes, served });
        number
    }

    /// Removes a waiting body, and returns whether it still waited.
    fn leave(&mut self, holder: Holder, number: u64) -> bool {
        let Some(queue) = self.waiting.get_mut(&holder) else { return false };
        let place = queue.binary_search_by_key(&number, |waiter| waiter.number);
        let removed = place.ok().and_then(|place| queue.remove(place));
        if queue.is_empty() {
            self.waiting.remove(&holder);
        }
        removed.is_some()
    }

    /// Takes the room of the body whose turn it is, which waits no longer; returns `None` if none waits, or there is no room
    /// for that one.
    fn next(&mut self, pool: Pool) -> Option<(Holder, Waiter)> {
        let heads = self.waiting.iter().filter_map(|(holder, queue)| Some((*holder, queue.front()?)));
        let waiting = heads.filter(|(holder, head)| self.has_share(pool, *holder, head.bytes));
        let (holder, head) = waiting.min_by_key(|(holder, head)| (self.turn(*holder), head.number))?;
        // As much stays free as the holder with the most room has: the next holder finds it.
        if self.held(Party::Holder(holder)) + head.bytes > pool.all - self.taken {
            return None;
        }
        let queue = self.waiting.get_mut(&holder)?;
        let waiter = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&holder);
        }
        self.taken += waiter.bytes;
        for party in holder.parties().into_iter().flatten() {
            *self.by_party.entry(party).or_default() += waiter.bytes;
        }
        Some((holder, waiter))
    }

    fn has_share(&self, pool: Pool, holder: Holder, bytes: usize) -> bool {
        holder.parties().into_iter().flatten().all(|party| {
            let most = match party {
                Party::Holder(_) => pool.share,
                Party::Environment(_) => pool.environment,
                Party::Project(_) => pool.project,
            };
            self.held(party) + bytes <= most
        })
    }

    /// Returns the key by which holders take turns: those with the least room first, of projects and environments before
    /// their callers.
    fn turn(&self, holder: Holder) -> [usize; 3] {
        let [own, environment, project] = holder.parties().map(|party| party.map(|party| self.held(party)));
        let own = own.unwrap_or_default();
        let environment = environment.unwrap_or(own);
        [project.unwrap_or(environment), environment, own]
    }

    fn held(&self, party: Party) -> usize {
        self.by_party.get(&party).copied().unwrap_or_default()
    }

    fn give_back(&mut self, holder: Holder, bytes: usize) {
        self.taken -= bytes;
        for party in holder.parties().into_iter().flatten() {
            if let Some(held) = self.by_party.get_mut(&party) {
                *held -= bytes;
                if *held == 0 {
                    self.by_party.remove(&party);
                }
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.lock().give_back(self.holder, self.bytes);
        self.of.serve();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let was_waiting = self.of.lock().leave(self.holder, self.number);
        // It may have been the one that others waited for.
        if was_waiting {
            self.of.serve();
        }
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

    fn known(party: u64, environment: u64, project: u64) -> Holder {
        Holder::Known(Caller { party, environment: Some(environment), project: Some(project) })
    }

    fn now(budget: &Budget, holder: Holder, length: usize) -> Option<Room> {
        budget.take(holder, length).now_or_never()
    }

    /// Takes room for bodies of this length until one waits.
    fn fill(budget: &Budget, holder: Holder, length: usize) -> Vec<Room> {
        (0..1_000).map_while(|_| now(budget, holder, length)).collect()
    }

    #[test]
    fn holder_that_fills_its_share_delays_no_other() {
        let callers = Callers::default();
        let [one, another] = ["rh_one", "rh_another"].map(|token| Holder::Known(callers.holder(token)));
        for (length, of_one, of_other) in [(SMALL_MAX, 4, 4), (BODY_MAX, 4, 4), (PUSH_MAX, 1, 1), (5 * BODY_MAX, 5, 3)]
        {
            let budget = Budget::default();
            for (filling, other) in [(stranger(1), stranger(2)), (one, another)] {
                let held = fill(&budget, filling, length);
                assert_eq!(held.len(), of_one);
                let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(budget.take(filling, length))).collect();
                let is_waiting = waiting.iter_mut().all(|room| room.as_mut().now_or_never().is_none());
                assert!(is_waiting, "its further bodies wait");
                assert_eq!(fill(&budget, other, length).len(), of_other, "others have room");
                drop(held);
                assert!(waiting[0].as_mut().now_or_never().is_some(), "they are served once it has room");
            }
        }
    }

    #[test]
    fn addresses_that_hold_all_they_may_leave_room_to_the_next_one() {
        for (length, addresses) in [(SMALL_MAX, 30), (30 * KIB, 30), (BODY_MAX, 5), (BODY_MAX / 4, 7)] {
            let budget = Budget::default();
            let mut held = Vec::new();
            for last in 0..addresses {
                let of_one = fill(&budget, stranger(last), length);
                assert!(!of_one.is_empty(), "address {last} with bodies of {length}");
                held.push(of_one);
            }
            assert!(now(&budget, stranger(255), length).is_some());
        }
    }

    #[test]
    fn small_body_waits_for_no_large_one() {
        let budget = Budget::default();
        let _held: Vec<_> = (0..100).flat_map(|last| fill(&budget, stranger(last), SMALL_MAX + 1)).collect();
        assert!(now(&budget, stranger(255), SMALL_MAX + 1).is_none());
        assert!(now(&budget, stranger(255), SMALL_MAX).is_some());
    }

    #[test]
    fn waiting_holders_with_the_least_room_are_served_first() {
        let budget = Budget::default();
        let mut held: Vec<_> = (0..16).filter_map(|last| now(&budget, stranger(last), BODY_MAX)).collect();
        assert_eq!(held.len(), 16);
        let mut greedy: Vec<_> = (0..15).map(|last| Box::pin(budget.take(stranger(last), BODY_MAX))).collect();
        assert!(greedy.iter_mut().all(|room| room.as_mut().now_or_never().is_none()));
        let mut modest = Box::pin(budget.take(stranger(99), BODY_MAX));
        assert!(modest.as_mut().now_or_never().is_none());
        held.pop();
        assert!(greedy.iter_mut().all(|room| room.as_mut().now_or_never().is_none()));
        assert!(modest.as_mut().now_or_never().is_some(), "it came last, and has nothing");
    }

    #[test]
    fn body_that_no_longer_waits_holds_nobody_up() {
        let budget = Budget::default();
        let held: Vec<_> = [1, 2].into_iter().filter_map(|last| now(&budget, stranger(last), PUSH_MAX - MIB)).collect();
        assert_eq!(held.len(), 2);
        let mut large = Box::pin(budget.take(stranger(3), PUSH_MAX));
        let mut less = Box::pin(budget.take(stranger(4), 2 * MIB));
        assert!(large.as_mut().now_or_never().is_none() && less.as_mut().now_or_never().is_none());
        drop(large);
        assert!(less.as_mut().now_or_never().is_some());
    }

    #[test]
    fn holders_of_one_environment_or_project_delay_no_other() {
        let budget = Budget::default();
        let take = |holder| fill(&budget, holder, BODY_MAX);
        let of_test: Vec<_> = (0..10).flat_map(|party| take(known(party, 1, 1))).collect();
        assert_eq!(of_test.len(), 8);
        let of_prod: Vec<_> = (10..20).flat_map(|party| take(known(party, 2, 1))).collect();
        assert!((2..=4).contains(&of_prod.len()), "the project has at most three quarters");
        assert!(take(known(20, 3, 2)).len() >= 2);
        drop((of_test, of_prod));
        assert_eq!(take(known(0, 1, 1)).len(), 4);
    }

    #[test]
    fn pushes_of_one_environment_take_half_of_the_room() {
        let budget = Budget::default();
        let held = now(&budget, known(1, 1, 1), PUSH_MAX);
        assert!(held.is_some() && now(&budget, known(2, 1, 1), 2 * MIB).is_none());
        assert!(now(&budget, known(3, 2, 1), PUSH_MAX).is_none(), "a project has three quarters");
        assert!(now(&budget, known(4, 3, 2), PUSH_MAX).is_some());
    }

    #[test]
    fn holders_that_hold_nothing_are_forgotten() {
        let budget = Budget::default();
        for last in 0..=255 {
            let held = now(&budget, stranger(last), BODY_MAX);
            let waiting = (0..10).filter_map(|_| now(&budget, stranger(last), BODY_MAX)).count();
            assert!(held.is_some() && waiting > 0);
        }
        let state = budget.strangers.bodies.lock();
        assert!(state.by_party.is_empty() && state.waiting.is_empty() && state.taken == 0);
    }
}
