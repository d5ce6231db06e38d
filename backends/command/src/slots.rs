//! Slots of each git host: reads of it may last long, so that an environment leaves some of them free for others.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rollhook_core::app::Namespace;
pub use rollhook_core::slots::{Slot, Slots};

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

impl HostSlots {
    /// Returns so many slots for each host, but two at least, and four times as many for all hosts. An environment leaves
    /// one of each host to others, and three quarters of all.
    pub(crate) fn new(of_one_host: usize) -> Self {
        let of_one_host = of_one_host.max(2);
        Self { of_one_host, hosts: Mutex::default(), all: Slots::with_share(4 * of_one_host, of_one_host) }
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
        hosts.retain(|_, slots| !slots.is_unused());
        hosts
            .entry(host.to_ascii_lowercase())
            .or_insert_with(|| Slots::with_share(self.of_one_host, self.of_one_host - 1))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future, poll_fn},
        pin::Pin,
        task::Poll,
    };

    use super::*;

    type Work<'a> = Pin<Box<dyn Future<Output = HostSlot> + 'a>>;

    fn environment(name: &str) -> Namespace {
        name.parse().unwrap()
    }

    /// Returns the slot if it was given by now.
    async fn given(work: &mut Work<'_>) -> Option<HostSlot> {
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(slot) => Poll::Ready(Some(slot)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn hosts_have_slots_of_their_own_and_are_forgotten() {
        let (hosts, name) = (HostSlots::new(1), environment("a"));
        let held = hosts.acquire("git.example.com", &name).await;
        let mut same: Work<'_> = Box::pin(hosts.acquire("Git.example.com", &name));
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
                let mut work: Work<'_> = Box::pin(hosts.acquire(host, name));
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
            let mut work: Work<'_> = Box::pin(hosts.acquire(&host, &name));
            held.extend(given(&mut work).await);
        }
        assert_eq!(held.len(), 8);
    }
}
