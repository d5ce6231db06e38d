//! The bytes of bodies that the server may hold at once.
//!
//! A body for which there is no room waits. Each address has a share of every pool of strangers, so that it never takes
//! the room of another one: bodies beyond the share wait for each other.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{BODY_MAX, PUSH_MAX};

/// The bytes of bodies up to 1 MiB of strangers, in all and per address.
const BODIES: Pool = Pool { all: 16 * 1024 * 1024, share: 4 * 1024 * 1024 };
/// The bytes of larger bodies of strangers: two addresses may each send the largest push at once.
const PUSHES: Pool = Pool { all: 2 * PUSH_MAX, share: PUSH_MAX };
/// The bytes of bodies up to 1 MiB of callers whose token this process recognises.
const KNOWN_BODIES: usize = 16 * 1024 * 1024;
/// The bytes of larger bodies of callers whose token this process recognises.
const KNOWN_PUSHES: usize = PUSH_MAX + 3 * 1024 * 1024;

/// The most bytes of strangers' bodies that are held at once.
#[derive(Clone, Copy)]
struct Pool {
    all: usize,
    /// The most of one address.
    share: usize,
}

/// Who sends a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holder {
    /// A caller of this network.
    Stranger(IpAddr),
    /// A caller whose token this process recognises.
    Known,
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
pub(crate) struct Budget {
    bodies: Shared,
    pushes: Shared,
    known_bodies: Arc<Semaphore>,
    known_pushes: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        let [known_bodies, known_pushes] = [KNOWN_BODIES, KNOWN_PUSHES].map(|bytes| Arc::new(Semaphore::new(bytes)));
        Self { bodies: Shared::new(BODIES), pushes: Shared::new(PUSHES), known_bodies, known_pushes }
    }
}

impl Budget {
    /// Waits until there is room for a body of this length.
    pub(crate) async fn take(&self, holder: Holder, length: usize) -> Room {
        let is_large = length > BODY_MAX;
        let taken_of = match holder {
            Holder::Stranger(client) if is_large => self.pushes.of(client),
            Holder::Stranger(client) => self.bodies.of(client),
            Holder::Known if is_large => vec![self.known_pushes.clone()],
            Holder::Known => vec![self.known_bodies.clone()],
        };
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        let mut room = Room::default();
        for semaphore in taken_of {
            // The semaphores are never closed.
            room.0.extend(semaphore.acquire_many_owned(bytes).await);
        }
        room
    }
}

/// A pool, and the part of each address.
struct Shared {
    all: Arc<Semaphore>,
    share: usize,
    /// The free part of each address's share.
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl Shared {
    fn new(pool: Pool) -> Self {
        Self { all: Arc::new(Semaphore::new(pool.all)), share: pool.share, shares: Mutex::default() }
    }

    /// Returns what a body of this address takes of. The share comes first: bodies that wait for it hold nothing of the
    /// pool, and have no place in its queue.
    fn of(&self, client: IpAddr) -> Vec<Arc<Semaphore>> {
        vec![self.share(client), self.all.clone()]
    }

    fn share(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        // Unused shares are removed when the number has doubled.
        if shares.len() >= 64 && shares.len().is_power_of_two() {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(client, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn stranger(last: u8) -> Holder {
        Holder::Stranger(IpAddr::from([10, 0, 0, last]))
    }

    fn now(budget: &Budget, holder: Holder, length: usize) -> Option<Room> {
        budget.take(holder, length).now_or_never()
    }

    #[test]
    fn address_that_fills_its_share_delays_no_other() {
        for (length, of_one) in [(BODY_MAX, 4), (PUSH_MAX, 1), (5 * BODY_MAX, 5)] {
            let budget = Budget::default();
            let held: Vec<Room> = (0..of_one).map(|_| now(&budget, stranger(1), length).unwrap()).collect();
            let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(budget.take(stranger(1), length))).collect();
            assert!(waiting.iter_mut().all(|room| room.as_mut().now_or_never().is_none()), "its further bodies wait");
            let others: Option<Vec<Room>> = (0..of_one).map(|_| now(&budget, stranger(2), length)).collect();
            assert!(others.is_some(), "another address has as much");
            assert!(now(&budget, Holder::Known, length).is_some());
            drop(held);
        }
    }

    #[test]
    fn shares_that_nobody_uses_are_forgotten() {
        let budget = Budget::default();
        for last in 0..=255 {
            assert!(now(&budget, stranger(last), BODY_MAX).is_some());
        }
        assert!(budget.bodies.shares.lock().unwrap().len() <= 65);
    }
}
