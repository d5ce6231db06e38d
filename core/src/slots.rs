//! Slots for work of which only so much runs at once, given in turns to the environments that wait for one.
//!
//! A free slot goes to the waiting environment that holds the fewest, of those to the one that was served least lately, and
//! there to the work that came first. So an environment with many apps fills all slots that no other one wants, and another
//! one waits for the end of one piece of work, and not for a queue. Background work goes behind all other.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use futures_util::task::AtomicWaker;

use crate::app::Namespace;

/// Slots that environments share, each by the namespace that stands for it, or by another key.
pub struct Slots<K: Ord + Clone = Namespace>(Arc<Shared<K>>);

/// A slot that is held, until this is dropped.
pub struct Slot<K: Ord + Clone = Namespace> {
    of: Arc<Shared<K>>,
    environment: K,
}

struct Shared<K: Ord + Clone> {
    all: usize,
    /// The most slots of one environment.
    each: usize,
    state: Mutex<State<K>>,
}

struct State<K: Ord + Clone> {
    held: usize,
    /// The environments that hold or wait for slots.
    environments: BTreeMap<K, Environment<K>>,
    /// The turn of the environment that was served last.
    last_turn: u64,
    /// The number of the next work that waits.
    next: u64,
}

struct Environment<K: Ord + Clone> {
    held: usize,
    /// Grows whenever the environment is served.
    turn: u64,
    /// The work that waits, in the order in which it came.
    waiting: VecDeque<Waiter<K>>,
}

struct Waiter<K: Ord + Clone> {
    number: u64,
    rank: Rank,
    served: Arc<Served<K>>,
}

/// The rank of work that waits: a lower one has a slot once no higher one can take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A deploy or a person waits for the work.
    Awaited,
    /// The work has time.
    Background,
}

/// The slot that waiting work is given.
struct Served<K: Ord + Clone> {
    slot: Mutex<Option<Slot<K>>>,
    waker: AtomicWaker,
}

/// The place of waiting work, which it leaves once this is dropped.
struct Place<'a, K: Ord + Clone> {
    of: &'a Shared<K>,
    environment: &'a K,
    number: u64,
}

impl<K: Ord + Clone> Slots<K> {
    /// Returns so many slots.
    pub fn new(all: usize) -> Self {
        Self::with_share(all, all)
    }

    /// Returns so many slots, of which one environment holds at most its share.
    pub fn with_share(all: usize, each: usize) -> Self {
        let state = State { held: 0, environments: BTreeMap::new(), last_turn: 0, next: 0 };
        Self(Arc::new(Shared { all, each, state: Mutex::new(state) }))
    }

    /// Waits for a slot for work of this environment.
    pub async fn acquire(&self, environment: &K) -> Slot<K> {
        self.acquire_ranked(environment, Rank::Awaited).await
    }

    /// Waits for a slot for work of this environment and rank.
    pub async fn acquire_ranked(&self, environment: &K, rank: Rank) -> Slot<K> {
        let served = Arc::new(Served { slot: Mutex::new(None), waker: AtomicWaker::new() });
        let number = self.0.lock().enter(environment, rank, Arc::clone(&served));
        let _place = Place { of: &*self.0, environment, number };
        self.0.serve();
        poll_fn(|context| {
            served.waker.register(context.waker());
            locked(&served.slot).take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Returns whether no slot is held, and no clone waits for one.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<K: Ord + Clone> Clone for Slots<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord + Clone> Shared<K> {
    /// Gives the free slots to the work whose turn it is.
    fn serve(self: &Arc<Self>) {
        loop {
            let next = self.lock().next(self.all, self.each);
            let Some((environment, served)) = next else { return };
            // Work that is gone by now returns the slot.
            *locked(&served.slot) = Some(Slot { of: Arc::clone(self), environment });
            served.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        locked(&self.state)
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Ord + Clone> State<K> {
    /// Adds waiting work, and returns its number.
    fn enter(&mut self, environment: &K, rank: Rank, served: Arc<Served<K>>) -> u64 {
        let number = self.next;
        self.next += 1;
        // One that comes anew goes before the one that was served last, and behind all others.
        let turn = self.last_turn.saturating_sub(1);
        let new = || Environment { held: 0, turn, waiting: VecDeque::new() };
        let waiting = &mut self.environments.entry(environment.clone()).or_insert_with(new).waiting;
        let place = waiting.iter().position(|other| other.rank > rank).unwrap_or(waiting.len());
        waiting.insert(place, Waiter { number, rank, served });
        number
    }

    /// Removes waiting work, if it still waits.
    fn leave(&mut self, environment: &K, number: u64) {
        let Some(known) = self.environments.get_mut(environment) else { return };
        known.waiting.retain(|waiter| waiter.number != number);
        self.forget_unused(environment);
    }

    /// Takes a slot for the work whose turn it is, which waits no longer; returns `None` if none waits, or no slot is free.
    fn next(&mut self, all: usize, each: usize) -> Option<(K, Arc<Served<K>>)> {
        if self.held >= all {
            return None;
        }
        let is_served = |environment: &Environment<K>| !environment.waiting.is_empty() && environment.held < each;
        let waiting = self.environments.iter_mut().filter(|(_, environment)| is_served(environment));
        let (name, environment) = waiting.min_by_key(|(_, environment)| {
            let first = environment.waiting.front();
            (first.map(|waiter| waiter.rank), environment.held, environment.turn, first.map(|waiter| waiter.number))
        })?;
        let waiter = environment.waiting.pop_front()?;
        self.last_turn += 2;
        environment.turn = self.last_turn;
        environment.held += 1;
        self.held += 1;
        Some((name.clone(), waiter.served))
    }

    fn give_back(&mut self, environment: &K) {
        self.held -= 1;
        if let Some(known) = self.environments.get_mut(environment) {
            known.held -= 1;
        }
        self.forget_unused(environment);
    }

    fn forget_unused(&mut self, environment: &K) {
        if self.environments.get(environment).is_some_and(|known| known.held == 0 && known.waiting.is_empty()) {
            self.environments.remove(environment);
        }
    }
}

impl<K: Ord + Clone> Drop for Slot<K> {
    fn drop(&mut self) {
        self.of.lock().give_back(&self.environment);
        self.of.serve();
    }
}

impl<K: Ord + Clone> Drop for Place<'_, K> {
    fn drop(&mut self) {
        self.of.lock().leave(self.environment, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt;

    use super::*;

    type Work<'a> = Pin<Box<dyn Future<Output = Slot> + 'a>>;

    fn block_on(work: impl Future<Output = ()>) {
        work.now_or_never().unwrap();
    }

    fn environment(name: &str) -> Namespace {
        name.parse().unwrap()
    }

    /// Returns the slot if it was given by now.
    async fn given(work: &mut Work<'_>) -> Option<Slot> {
        std::future::poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(slot) => Poll::Ready(Some(slot)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Begins work of these environments in this order, and ends it one after the other. Returns the environments in the
    /// order in which they had a slot.
    async fn served(slots: &Slots, order: &[&str]) -> Vec<String> {
        let names: Vec<Namespace> = order.iter().map(|name| environment(name)).collect();
        let mut waiting: Vec<(usize, Work<'_>)> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            waiting.push((index, Box::pin(slots.acquire(name))));
        }
        let (mut held, mut served) = (VecDeque::new(), Vec::new());
        while served.len() < order.len() {
            for (index, work) in &mut waiting {
                if let Some(slot) = given(work).await {
                    held.push_back(slot);
                    served.push((*index, order[*index].to_owned()));
                }
            }
            waiting.retain(|(index, _)| served.iter().all(|(known, _)| known != index));
            drop(held.pop_front());
        }
        served.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn waiting_environment_gets_the_next_free_slot_before_those_that_hold_some() {
        block_on(async {
            let slots = Slots::new(2);
            assert_eq!(served(&slots, &["a", "a", "a", "a", "b", "b"]).await, ["a", "a", "b", "a", "b", "a"]);
            assert_eq!(served(&slots, &["a", "a", "a"]).await, ["a", "a", "a"], "an environment alone has all slots");
            assert!(slots.0.lock().environments.is_empty() && slots.0.lock().held == 0);
        });
    }

    #[test]
    fn one_slot_goes_round() {
        block_on(async {
            let order = ["a", "a", "a", "b", "b", "c"];
            assert_eq!(served(&Slots::new(1), &order).await, ["a", "b", "c", "a", "b", "a"]);
        });
    }

    #[test]
    fn environments_that_come_again_and_again_hold_up_no_other() {
        block_on(async {
            let (slots, names) = (Slots::new(1), ["a", "b", "c"].map(environment));
            let running = slots.acquire(&names[0]).await;
            let mut of_a: Work<'_> = Box::pin(slots.acquire(&names[0]));
            let mut others: Vec<Work<'_>> =
                names[1..].iter().map(|name| Box::pin(slots.acquire(name)) as Work<'_>).collect();
            assert!(given(&mut of_a).await.is_none());
            for other in &mut others {
                assert!(given(other).await.is_none());
            }
            drop(running);
            let (of_b, of_c) = (given(&mut others[0]).await, given(&mut others[1]).await);
            assert!(of_b.is_some() && of_c.is_none());
            drop(of_b);
            let of_c = given(&mut others[1]).await;
            assert!(of_c.is_some());
            let mut again: Work<'_> = Box::pin(slots.acquire(&names[1]));
            assert!(given(&mut again).await.is_none());
            drop(of_c);
            assert!(given(&mut of_a).await.is_some());
        });
    }

    #[test]
    fn work_that_is_given_up_keeps_no_slot_and_no_place() {
        block_on(async {
            let (slots, names) = (Slots::new(1), ["a", "b"].map(environment));
            let running = slots.acquire(&names[0]).await;
            let mut first: Work<'_> = Box::pin(slots.acquire(&names[1]));
            let mut second: Work<'_> = Box::pin(slots.acquire(&names[1]));
            assert!(given(&mut first).await.is_none() && given(&mut second).await.is_none());
            drop(running);
            // Served, and gone before it knew.
            drop(first);
            let slot = given(&mut second).await;
            assert!(slot.is_some());
            let mut third: Work<'_> = Box::pin(slots.acquire(&names[0]));
            assert!(given(&mut third).await.is_none());
            drop(third);
            drop(slot);
            assert!(slots.0.lock().environments.is_empty() && slots.0.lock().held == 0);
        });
    }

    #[test]
    fn work_in_the_background_goes_behind_all_other() {
        block_on(async {
            let (slots, names) = (Slots::new(1), ["a", "b"].map(environment));
            let running = slots.acquire(&names[0]).await;
            let later = |name| Box::pin(slots.acquire_ranked(name, Rank::Background)) as Work<'_>;
            let (mut of_b, mut later_of_a) = (later(&names[1]), later(&names[0]));
            assert!(given(&mut of_b).await.is_none() && given(&mut later_of_a).await.is_none());
            let mut first: Work<'_> = Box::pin(slots.acquire(&names[0]));
            let mut second: Work<'_> = Box::pin(slots.acquire(&names[0]));
            assert!(given(&mut first).await.is_none() && given(&mut second).await.is_none());
            let mut slot = running;
            for next in [&mut first, &mut second, &mut of_b, &mut later_of_a] {
                drop(slot);
                slot = given(next).await.unwrap();
            }
        });
    }

    #[test]
    fn environment_has_no_more_than_its_share() {
        block_on(async {
            let (slots, names) = (Slots::with_share(2, 1), ["a", "b"].map(environment));
            let running = slots.acquire(&names[0]).await;
            let mut second: Work<'_> = Box::pin(slots.acquire(&names[0]));
            assert!(given(&mut second).await.is_none(), "the free slot is for others");
            let other = slots.acquire(&names[1]).await;
            drop(running);
            assert!(given(&mut second).await.is_some());
            drop(other);
        });
    }
}
