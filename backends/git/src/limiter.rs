//! Limits how many sources are read at the same time, and decides which is next.
//!
//! ```text
//!   polling: its host's polling ─▶ all polling ─┐
//!                                               ├─▶ its host ─▶ all ─▶ git
//!   waiting: ───────────────────────────────────┘
//! ```
//!
//! Reads that poll queue among themselves first. So a push, for which a caller waits, finds at most as many reads
//! before it as run at the same time anyway; and polling never takes all permits, so that silent hosts do not delay
//! pushes of others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of branches of one host that are read at the same time.
const OF_ONE_HOST: usize = 2;

/// The urgency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The branch is polled.
    Polling,
    /// A caller waits for the answer.
    Waiting,
}

/// The permits to read sources.
pub(crate) struct Limiter {
    all: Arc<Semaphore>,
    polling: Arc<Semaphore>,
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
}

struct Host {
    all: Arc<Semaphore>,
    polling: Arc<Semaphore>,
}

/// The permit to read one source, which is given back when it is dropped.
pub(crate) struct Permit {
    _permits: Vec<OwnedSemaphorePermit>,
    /// Keeps the host's semaphores.
    _host: Arc<Host>,
}

impl Limiter {
    /// A limiter of so many reads at the same time.
    pub(crate) fn new(at_once: usize) -> Self {
        let polling = (at_once - at_once / 4).max(1);
        let [all, polling] = [at_once, polling].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { all, polling, hosts: Mutex::default() }
    }

    /// Waits for a permit to read from this host. Returns `None` if there will never be one.
    pub(crate) async fn acquire(&self, host: &str, priority: Priority) -> Option<Permit> {
        let host = self.host(host);
        let queues: &[&Arc<Semaphore>] = match priority {
            Priority::Polling => &[&host.polling, &self.polling, &host.all, &self.all],
            Priority::Waiting => &[&host.all, &self.all],
        };
        let mut permits = Vec::with_capacity(queues.len());
        for semaphore in queues {
            permits.push(Arc::clone(semaphore).acquire_owned().await.ok()?);
        }
        Some(Permit { _permits: permits, _host: host })
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // The others have no reads, and none that queue.
        hosts.retain(|_, host| Arc::strong_count(host) > 1);
        let of_one = || Arc::new(Semaphore::new(OF_ONE_HOST));
        let new = || Arc::new(Host { all: of_one(), polling: of_one() });
        Arc::clone(hosts.entry(name.to_ascii_lowercase()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    /// Returns the permit if it is free at once.
    async fn at_once(permit: impl Future<Output = Option<Permit>>) -> Option<Permit> {
        let mut permit = pin!(permit);
        std::future::poll_fn(|context| match permit.as_mut().poll(context) {
            Poll::Ready(permit) => Poll::Ready(permit),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn two_sources_of_a_host_are_read_at_once_and_other_hosts_meanwhile() {
        let limiter = Limiter::new(8);
        let two = [limiter.acquire("a", Priority::Polling).await, limiter.acquire("A", Priority::Polling).await];
        assert!(at_once(limiter.acquire("a", Priority::Polling)).await.is_none());
        assert!(at_once(limiter.acquire("a", Priority::Waiting)).await.is_none());
        assert!(at_once(limiter.acquire("b", Priority::Polling)).await.is_some());
        assert_eq!(limiter.hosts.lock().unwrap().len(), 2);
        drop(two);
        assert!(at_once(limiter.acquire("a", Priority::Polling)).await.is_some());
        assert_eq!(limiter.hosts.lock().unwrap().len(), 1, "a host without reads is forgotten");
    }

    #[tokio::test]
    async fn waiting_read_goes_before_polling_that_queues() {
        let limiter = Arc::new(Limiter::new(8));
        let mut running =
            vec![limiter.acquire("a", Priority::Polling).await, limiter.acquire("a", Priority::Polling).await];
        let polling: Vec<_> = (0..20)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move { limiter.acquire("a", Priority::Polling).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let caller = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire("a", Priority::Waiting).await }
        });
        tokio::task::yield_now().await;
        running.pop();
        assert!(caller.await.unwrap().is_some());
        assert!(polling.iter().filter(|read| read.is_finished()).count() <= 1);
        polling.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn looks_leave_room_for_those_who_wait_for_an_answer() {
        let limiter = Limiter::new(8);
        let mut silent = Vec::new();
        for host in ["a", "b", "c", "d", "e"] {
            for _ in 0..2 {
                silent.extend(at_once(limiter.acquire(host, Priority::Polling)).await);
            }
        }
        assert_eq!(silent.len(), 6);
        assert!(at_once(limiter.acquire("f", Priority::Polling)).await.is_none());
        assert!(at_once(limiter.acquire("f", Priority::Waiting)).await.is_some());
    }
}
