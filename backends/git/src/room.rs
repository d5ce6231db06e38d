//! How many sources are read at once, and whose turn it is.
//!
//! ```text
//!   a look: its host's looks ─▶ all looks ─┐
//!                                          ├─▶ its host ─▶ all ─▶ git
//!   a push: ───────────────────────────────┘
//! ```
//!
//! Looks stand in line among themselves first, so that a push, which somebody waits for, finds at most as many before it
//! as read at once anyway; and they never take all the room there is, so that hosts which keep silent do not keep pushes of
//! others waiting.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// As many sources of one host are read at once.
const OF_ONE_HOST: usize = 2;

/// Who wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A look that nobody waits for.
    Look,
    /// Somebody waits for the answer.
    Caller,
}

/// Room to read sources in.
pub(crate) struct Room {
    all: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
}

struct Host {
    all: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

/// A place to read one source; given back when it is dropped.
pub(crate) struct Place {
    _permits: Vec<OwnedSemaphorePermit>,
    /// While somebody has it, the host's count is kept.
    _host: Arc<Host>,
}

impl Room {
    /// Room for so many readers at once.
    pub(crate) fn new(at_once: usize) -> Self {
        let looks = (at_once - at_once / 4).max(1);
        Self { all: Arc::new(Semaphore::new(at_once)), looks: Arc::new(Semaphore::new(looks)), hosts: Mutex::default() }
    }

    /// A place for a reader of this host, once it is its turn; none where there will never be any.
    pub(crate) async fn place(&self, host: &str, reader: Reader) -> Option<Place> {
        let host = self.host(host);
        let line = match reader {
            Reader::Look => [Some(&host.looks), Some(&self.looks), Some(&host.all), Some(&self.all)],
            Reader::Caller => [None, None, Some(&host.all), Some(&self.all)],
        };
        let mut permits = Vec::with_capacity(line.len());
        for semaphore in line.into_iter().flatten() {
            permits.push(Arc::clone(semaphore).acquire_owned().await.ok()?);
        }
        Some(Place { _permits: permits, _host: host })
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody reads or waits to read the others.
        hosts.retain(|_, host| Arc::strong_count(host) > 1);
        let of_one = || Arc::new(Semaphore::new(OF_ONE_HOST));
        let new = || Arc::new(Host { all: of_one(), looks: of_one() });
        Arc::clone(hosts.entry(name.to_ascii_lowercase()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    /// The place, where it is there at once.
    async fn at_once(place: impl Future<Output = Option<Place>>) -> Option<Place> {
        let mut place = pin!(place);
        std::future::poll_fn(|context| match place.as_mut().poll(context) {
            Poll::Ready(place) => Poll::Ready(place),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn of_one_host_two_are_read_at_once_and_others_are_not_kept_waiting() {
        let room = Room::new(8);
        let two = [room.place("a", Reader::Look).await, room.place("A", Reader::Look).await];
        assert!(at_once(room.place("a", Reader::Look)).await.is_none());
        assert!(at_once(room.place("a", Reader::Caller)).await.is_none());
        assert!(at_once(room.place("b", Reader::Look)).await.is_some());
        assert_eq!(room.hosts.lock().unwrap().len(), 2);
        drop(two);
        assert!(at_once(room.place("a", Reader::Look)).await.is_some());
        assert_eq!(room.hosts.lock().unwrap().len(), 1, "who is not read is forgotten");
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_comes_before_looks_that_wait() {
        let room = Arc::new(Room::new(8));
        let mut running = vec![room.place("a", Reader::Look).await, room.place("a", Reader::Look).await];
        let looks: Vec<_> = (0..20)
            .map(|_| {
                let room = Arc::clone(&room);
                tokio::spawn(async move { room.place("a", Reader::Look).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let caller = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.place("a", Reader::Caller).await }
        });
        tokio::task::yield_now().await;
        running.pop();
        assert!(caller.await.unwrap().is_some());
        assert!(looks.iter().filter(|look| look.is_finished()).count() <= 1);
        looks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn looks_leave_room_for_those_who_wait_for_an_answer() {
        let room = Room::new(8);
        let mut silent = Vec::new();
        for host in ["a", "b", "c", "d", "e"] {
            for _ in 0..2 {
                silent.extend(at_once(room.place(host, Reader::Look)).await);
            }
        }
        assert_eq!(silent.len(), 6);
        assert!(at_once(room.place("f", Reader::Look)).await.is_none());
        assert!(at_once(room.place("f", Reader::Caller)).await.is_some());
    }
}
