//! Slots for work of which only so much runs at once on a machine, given in turns to the environments that wait for one.
//!
//! A free slot goes to the waiting environment that holds the fewest, of those to the one that was served least lately, and
//! there to the work that came first. So an environment with many apps fills all slots that no other one wants, and another
//! one waits for the end of one piece of work, and not for a queue. Reads of git hosts may last long, so that an environment
//! leaves some of their slots free for others.

use std::{
    collections::{BTreeMap, VecDeque},
    future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rollhook_core::app::Namespace;
use tokio::sync::oneshot;

/// Slots that environments share.
#[derive(Clone)]
pub struct Slots(Arc<Shared>);

/// A slot that is held, until this is dropped.
pub struct Slot {
    of: Arc<Shared>,
    environment: Namespace,
}

/// The slots of each host, and of all together.
pub(crate) struct HostSlots {
    of_one_host: usize,
    hosts: Mutex<BTreeMap<String, Slots>>,
    all: Slots,
}

/// A slot of a host that is held, until this is dropped.
pub(crate) struct HostSlot {
    _of_host: Slot,
    _of_all: Slot,
}

struct Shared {
    all: usize,
    of_one_environment: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
    /// The environments that hold or wait for slots, by the namespace that stands for each.
    environments: BTreeMap<Namespace, Environment>,
    /// The turn of the environment that was served last.
    last_turn: u64,
    /// The number of the next work that waits.
    next: u64,
}

#[derive(Default)]
struct Environment {
    held: usize,
    /// Grows whenever the environment is served.
    turn: u64,
    /// The work that waits, in the order in which it came.
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    served: oneshot::Sender<Slot>,
}

/// The place of waiting work, which it leaves once this is dropped.
struct Place<'a> {
    of: &'a Shared,
    environment: &'a Namespace,
    number: u64,
}

impl Slots {
    /// Returns so many slots.
    pub fn new(all: usize) -> Self {
        Self::shared(all, all)
    }

    /// Returns so many slots, and the number of those that one environment may hold.
    fn shared(all: usize, of_one_environment: usize) -> Self {
        Self(Arc::new(Shared { all, of_one_environment, state: Mutex::default() }))
    }

    /// Waits for a slot for work of this environment.
    pub async fn acquire(&self, environment: &Namespace) -> Slot {
        let (served, slot) = oneshot::channel();
        let number = self.0.lock().enter(environment, served);
        let _place = Place { of: &self.0, environment, number };
        self.0.serve();
        match slot.await {
            Ok(slot) => slot,
            // The sender is kept until it serves.
            Err(_) => future::pending().await,
        }
    }
}

impl HostSlots {
    /// Returns so many slots for each host, but two at least, and four times as many for all hosts. An environment leaves
    /// one of each host to others, and three quarters of all.
    pub(crate) fn new(of_one_host: usize) -> Self {
        let of_one_host = of_one_host.max(2);
        Self { of_one_host, hosts: Mutex::default(), all: Slots::shared(4 * of_one_host, of_one_host) }
    }

    /// Waits for a slot of this host.
    pub(crate) async fn acquire(&self, host: &str, environment: &Namespace) -> HostSlot {
        let slots = self.of(host);
        let of_host = slots.acquire(environment).await;
        HostSlot { _of_host: of_host, _of_all: self.all.acquire(environment).await }
    }

    fn of(&self, host: &str) -> Slots {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // The slots of the others are held by none, and none waits for them.
        hosts.retain(|_, slots| Arc::strong_count(&slots.0) > 1);
        hosts
            .entry(host.to_ascii_lowercase())
            .or_insert_with(|| Slots::shared(self.of_one_host, self.of_one_host - 1))
            .clone()
    }
}

impl Shared {
    /// Gives the free slots to the work whose turn it is.
    fn serve(self: &Arc<Self>) {
        loop {
            let next = self.lock().next(self.all, self.of_one_environment);
            let Some((environment, served)) = next else { return };
            // Work that is gone by now returns the slot.
            let _ = served.send(Slot { of: self.clone(), environment });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds waiting work, and returns its number.
    fn enter(&mut self, environment: &Namespace, served: oneshot::Sender<Slot>) -> u64 {
        let number = self.next;
        self.next += 1;
        // One that comes anew goes before the one that was served last, and behind all others.
        let turn = self.last_turn.saturating_sub(1);
        let new = || Environment { turn, ..Environment::default() };
        let waiting = &mut self.environments.entry(environment.clone()).or_insert_with(new).waiting;
        waiting.push_back(Waiter { number, served });
        number
    }

    /// Removes waiting work, if it still waits.
    fn leave(&mut self, environment: &Namespace, number: u64) {
        let Some(known) = self.environments.get_mut(environment) else { return };
        known.waiting.retain(|waiter| waiter.number != number);
        self.forget_unused(environment);
    }

    /// Takes a slot for the work whose turn it is, which waits no longer; returns `None` if none waits, or no slot is free.
    fn next(&mut self, all: usize, of_one_environment: usize) -> Option<(Namespace, oneshot::Sender<Slot>)> {
        if self.held >= all {
            return None;
        }
        let waiting = self
            .environments
            .iter_mut()
            .filter(|(_, environment)| !environment.waiting.is_empty() && environment.held < of_one_environment);
        let (name, environment) = waiting.min_by_key(|(_, environment)| {
            let number = environment.waiting.front().map(|waiter| waiter.number);
            (environment.held, environment.turn, number)
        })?;
        let waiter = environment.waiting.pop_front()?;
        self.last_turn += 2;
        environment.turn = self.last_turn;
        environment.held += 1;
        self.held += 1;
        Some((name.clone(), waiter.served))
    }

    fn give_back(&mut self, environment: &Namespace) {
        self.held -= 1;
        if let Some(known) = self.environments.get_mut(environment) {
            known.held -= 1;
        }
        self.forget_unused(environment);
    }

    fn forget_unused(&mut self, environment: &Namespace) {
        if self.environments.get(environment).is_some_and(|known| known.held == 0 && known.waiting.is_empty()) {
            self.environments.remove(environment);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.lock().give_back(&self.environment);
        self.of.serve();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.of.lock().leave(self.environment, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::Pin, task::Poll};

    use super::*;

    type Work<'a, T = Slot> = Pin<Box<dyn Future<Output = T> + 'a>>;

    fn environment(name: &str) -> Namespace {
        name.parse().unwrap()
    }

    /// Returns the slot if it was given by now.
    async fn given<T>(work: &mut Work<'_, T>) -> Option<T> {
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

    #[tokio::test]
    async fn waiting_environment_gets_the_next_free_slot_before_those_that_hold_some() {
        let slots = Slots::new(2);
        assert_eq!(served(&slots, &["a", "a", "a", "a", "b", "b"]).await, ["a", "a", "b", "a", "b", "a"]);
        assert_eq!(served(&slots, &["a", "a", "a"]).await, ["a", "a", "a"], "an environment alone has all slots");
        assert!(slots.0.lock().environments.is_empty() && slots.0.lock().held == 0);
    }

    #[tokio::test]
    async fn one_slot_goes_round() {
        let order = ["a", "a", "a", "b", "b", "c"];
        assert_eq!(served(&Slots::new(1), &order).await, ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test]
    async fn environments_that_come_again_and_again_hold_up_no_other() {
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
    }

    #[tokio::test]
    async fn work_that_is_given_up_keeps_no_slot_and_no_place() {
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
    }

    #[tokio::test]
    async fn hosts_have_slots_of_their_own_and_are_forgotten() {
        let (hosts, name) = (HostSlots::new(1), environment("a"));
        let held = hosts.acquire("git.example.com", &name).await;
        let mut same: Work<'_, HostSlot> = Box::pin(hosts.acquire("Git.example.com", &name));
        assert!(given(&mut same).await.is_none());
        let other = hosts.acquire("other.example.com", &name).await;
        assert_eq!(hosts.hosts.lock().unwrap().len(), 2);
        drop((held, other));
        assert!(given(&mut same).await.is_some());
        drop(same);
        drop(hosts.acquire("third.example.com", &name).await);
        assert_eq!(hosts.hosts.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn environment_leaves_slots_of_each_host_and_of_all_to_others() {
        let hosts = HostSlots::new(2);
        let names = ["a", "b", "c", "d", "e"].map(environment);
        let mut held = Vec::new();
        for name in &names {
            for host in ["one", "one", "two", "three"] {
                let mut work: Work<'_, HostSlot> = Box::pin(hosts.acquire(host, name));
                held.extend(given(&mut work).await.map(|slot| (name.to_string(), host, slot)));
            }
        }
        let held: Vec<_> = held.iter().map(|(name, host, _)| (name.as_str(), *host)).collect();
        let of_host = [("a", "one"), ("b", "one"), ("a", "two"), ("b", "two"), ("c", "three"), ("d", "three")];
        assert_eq!(held.len(), of_host.len(), "{held:?}");
        assert!(of_host.iter().all(|wanted| held.contains(wanted)), "{held:?}");
    }

    #[tokio::test]
    async fn all_hosts_together_have_a_bounded_number_of_slots() {
        let hosts = HostSlots::new(1);
        let mut held = Vec::new();
        for number in 0..20 {
            let (host, name) = (format!("host-{number}"), environment(&format!("shop-{number}")));
            let mut work: Work<'_, HostSlot> = Box::pin(hosts.acquire(&host, &name));
            held.extend(given(&mut work).await);
        }
        assert_eq!(held.len(), 8);
    }
}
