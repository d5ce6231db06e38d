//! Limits how many sources are read at the same time, and decides which is next.
//!
//! ```text
//!   polling: its app's, environment's and host's polling ─▶ all polling ─┐
//!                                                                        ├─▶ its app ─▶ environment ─▶ host ─▶ all ─▶ git
//!   waiting: ────────────────────────────────────────────────────────────┘
//! ```
//!
//! Reads that poll queue among themselves first. So a push, for which a caller waits, finds at most as many reads
//! before it as run at the same time anyway; and polling never takes all permits, so that silent hosts do not delay
//! pushes of others.
//!
//! An environment has at most a quarter of all permits, whatever the hosts are that its apps name, and an app one. Of each
//! host it leaves a permit to others, so that its slow repositories do not keep them from a host that all share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use rollhook_core::app::{AppId, Namespace};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of branches of one host that are read at the same time.
const OF_ONE_HOST: usize = 3;
/// The number of those that are of one environment.
const OF_ONE_HOST_AND_ENVIRONMENT: usize = 2;

/// The urgency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The branch is polled.
    Polling,
    /// A caller waits for the answer.
    Waiting,
}

/// The permits to read sources.
pub struct Limiter {
    all: Semaphores,
    /// The number of sources of one app, environment and host that are read at the same time.
    of_one_app: usize,
    of_one_environment: usize,
    of_one_host: usize,
    shares: Mutex<BTreeMap<Share, Semaphores>>,
}

/// The reads that have a limit of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    App(AppId),
    Environment(Namespace),
    EnvironmentAtHost(Namespace, String),
    Host(String),
}

#[derive(Clone)]
struct Semaphores {
    all: Arc<Semaphore>,
    polling: Arc<Semaphore>,
}

/// The permit to read one source, which is given back when it is dropped.
pub struct Permit {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Semaphores {
    fn new(all: usize, polling: usize) -> Self {
        let [all, polling] = [all, polling].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { all, polling }
    }

    /// Returns whether a read has a permit, or waits for one.
    fn are_used(&self) -> bool {
        Arc::strong_count(&self.all) > 1
    }
}

impl Limiter {
    /// A limiter of so many reads at the same time.
    pub fn new(at_once: usize) -> Self {
        let quarter = at_once / 4;
        Self {
            all: Semaphores::new(at_once, (at_once - quarter).max(1)),
            of_one_app: 1,
            of_one_environment: quarter.max(1),
            of_one_host: OF_ONE_HOST,
            shares: Mutex::default(),
        }
    }

    /// Waits for a permit to read an app's source from this host. Returns `None` if there will never be one.
    pub async fn acquire(&self, app: &AppId, host: &str, priority: Priority) -> Option<Permit> {
        let shares = self.shares_of(app, host);
        let queues = || shares.iter().chain([&self.all]);
        let polling = queues().map(|queue| &queue.polling).filter(|_| priority == Priority::Polling);
        let mut permits = Vec::new();
        for semaphore in polling.chain(queues().map(|queue| &queue.all)) {
            permits.push(Arc::clone(semaphore).acquire_owned().await.ok()?);
        }
        Some(Permit { _permits: permits })
    }

    fn shares_of(&self, app: &AppId, host: &str) -> [Semaphores; 4] {
        let namespace = &app.namespace;
        let host = host.to_ascii_lowercase();
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        // The others have no reads, and none that queue.
        shares.retain(|_, semaphores| semaphores.are_used());
        let mut share = |of: Share, most: usize, polling: usize| {
            let semaphores = shares.entry(of).or_insert_with(|| Semaphores::new(most, polling));
            semaphores.clone()
        };
        // Polls leave a permit of their environment to a push.
        let polling = |most: usize| most.saturating_sub(1).max(1);
        let environment = self.of_one_environment;
        let at_host = OF_ONE_HOST_AND_ENVIRONMENT;
        [
            share(Share::App(app.clone()), self.of_one_app, self.of_one_app),
            share(Share::Environment(namespace.clone()), environment, polling(environment)),
            share(Share::EnvironmentAtHost(namespace.clone(), host.clone()), at_host, polling(at_host)),
            share(Share::Host(host), self.of_one_host, self.of_one_host),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    fn app(name: &str) -> AppId {
        name.parse().unwrap()
    }

    /// An app of an environment of its own.
    fn alone(number: usize) -> AppId {
        app(&format!("shop-{number}/api"))
    }

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
    async fn three_sources_of_a_host_are_read_at_once_and_other_hosts_meanwhile() {
        let limiter = Limiter::new(8);
        let acquire = |number: usize, host: &'static str, priority| {
            let (limiter, app) = (&limiter, alone(number));
            async move { limiter.acquire(&app, host, priority).await }
        };
        let mut three = Vec::new();
        for (number, host) in [(1, "a"), (2, "A"), (3, "a")] {
            three.push(acquire(number, host, Priority::Polling).await);
        }
        assert!(at_once(acquire(4, "a", Priority::Polling)).await.is_none());
        assert!(at_once(acquire(4, "a", Priority::Waiting)).await.is_none());
        assert!(at_once(acquire(5, "b", Priority::Polling)).await.is_some());
        drop(three);
        assert!(at_once(acquire(4, "a", Priority::Polling)).await.is_some());
        let shares = limiter.shares.lock().unwrap();
        assert_eq!(shares.len(), 4, "apps, environments and hosts without reads are forgotten: {:?}", shares.keys());
    }

    #[tokio::test]
    async fn environment_has_a_quarter_of_all_permits_whatever_hosts_it_names() {
        let limiter = Limiter::new(8);
        let mut held = Vec::new();
        for (number, priority) in [Priority::Polling, Priority::Waiting].into_iter().cycle().take(16).enumerate() {
            let (app, host) = (app(&format!("shop-test/app-{number}")), format!("host-{number}"));
            held.extend(at_once(limiter.acquire(&app, &host, priority)).await);
        }
        assert_eq!(held.len(), 2);
        for number in 0..6 {
            held.extend(at_once(limiter.acquire(&alone(number), &format!("own-{number}"), Priority::Waiting)).await);
        }
        assert_eq!(held.len(), 8, "other environments have the rest");
    }

    #[tokio::test]
    async fn environment_leaves_a_permit_of_each_host_to_others() {
        let limiter = Limiter::new(32);
        let mut held = Vec::new();
        for number in 0..8 {
            let app = app(&format!("shop-test/app-{number}"));
            held.extend(at_once(limiter.acquire(&app, "a", Priority::Waiting)).await);
        }
        assert_eq!(held.len(), 2);
        assert!(at_once(limiter.acquire(&alone(1), "a", Priority::Waiting)).await.is_some());
    }

    #[tokio::test]
    async fn app_has_one_read_at_a_time() {
        let limiter = Limiter::new(8);
        let (api, web) = (app("shop-test/api"), app("shop-test/web"));
        let polling = limiter.acquire(&api, "a", Priority::Polling).await;
        assert!(at_once(limiter.acquire(&api, "b", Priority::Waiting)).await.is_none());
        assert!(at_once(limiter.acquire(&web, "b", Priority::Waiting)).await.is_some());
        drop(polling);
        assert!(at_once(limiter.acquire(&api, "b", Priority::Waiting)).await.is_some());
    }

    #[tokio::test]
    async fn waiting_read_goes_before_polling_that_queues() {
        let limiter = Arc::new(Limiter::new(8));
        let mut running = vec![
            limiter.acquire(&alone(1), "a", Priority::Polling).await,
            limiter.acquire(&alone(2), "a", Priority::Polling).await,
            limiter.acquire(&alone(0), "a", Priority::Polling).await,
        ];
        let polling: Vec<_> = (3..23)
            .map(|number| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move { limiter.acquire(&alone(number), "a", Priority::Polling).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let caller = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire(&alone(23), "a", Priority::Waiting).await }
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
        for number in 0..10 {
            let host = format!("host-{}", number / 2);
            silent.extend(at_once(limiter.acquire(&alone(number), &host, Priority::Polling)).await);
        }
        assert_eq!(silent.len(), 6);
        assert!(at_once(limiter.acquire(&alone(10), "f", Priority::Polling)).await.is_none());
        assert!(at_once(limiter.acquire(&alone(10), "f", Priority::Waiting)).await.is_some());
    }
}
