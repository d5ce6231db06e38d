//! Slots of each host.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rollhook_core::app::Namespace;
pub use rollhook_core::slots::{Slot, Slots};

/// The slots of each host.
pub(crate) struct HostSlots {
    of_one_host: usize,
    hosts: Mutex<BTreeMap<String, Slots>>,
}

impl HostSlots {
    /// Returns so many slots for each host.
    pub(crate) fn new(of_one_host: usize) -> Self {
        Self { of_one_host, hosts: Mutex::default() }
    }

    /// Waits for a slot of this host.
    pub(crate) async fn acquire(&self, host: &str, environment: &Namespace) -> Slot {
        let slots = self.of(host);
        slots.acquire(environment).await
    }

    fn of(&self, host: &str) -> Slots {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // The slots of the others are held by none, and none waits for them.
        hosts.retain(|_, slots| !slots.is_unused());
        hosts.entry(host.to_ascii_lowercase()).or_insert_with(|| Slots::new(self.of_one_host)).clone()
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

    type Work<'a> = Pin<Box<dyn Future<Output = Slot> + 'a>>;

    fn environment(name: &str) -> Namespace {
        name.parse().unwrap()
    }

    /// Returns the slot if it was given by now.
    async fn given(work: &mut Work<'_>) -> Option<Slot> {
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
        drop(hosts.acquire("third.example.com", &name).await);
        assert_eq!(hosts.hosts.lock().unwrap().len(), 1);
    }
}
