//! The queue of apps that this process knows to have work, which saves reads of the store.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};

use crate::{app::AppUid, service::drive::TTL};

/// The apps that were changed here, and whether this process drives deploys and its engine turns.
#[derive(Default)]
pub(crate) struct WorkQueue {
    hints: Mutex<Hints>,
    arrived: Event,
}

#[derive(Default)]
struct Hints {
    new: BTreeSet<AppUid>,
    /// The time at which the last accepted heartbeat was sent; `None`: this process drives nothing.
    alive: Option<Duration>,
    /// The time at which the engine went on last.
    turned_at: Duration,
}

impl WorkQueue {
    /// Returns an empty queue of a process whose engine may begin from now on.
    pub(crate) fn new(now: Duration) -> Self {
        let queue = Self::default();
        queue.turned(now);
        queue
    }

    /// Notes that the engine goes on.
    pub(crate) fn turned(&self, now: Duration) {
        self.with(|hints| hints.turned_at = now);
    }

    /// Returns when the engine went on last.
    pub(crate) fn turned_at(&self) -> Duration {
        self.with(|hints| hints.turned_at)
    }

    /// Adds an app that has work.
    pub(crate) fn put(&self, app: AppUid) {
        self.with(|hints| hints.new.insert(app));
        self.arrived.notify(usize::MAX);
    }

    /// Resolves at the next arrival after this call.
    pub(crate) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// Takes the apps that have arrived.
    pub(crate) fn take(&self) -> BTreeSet<AppUid> {
        self.with(|hints| std::mem::take(&mut hints.new))
    }

    /// Sets the time at which the last accepted heartbeat was sent; `None`: this process stops driving.
    pub(crate) fn set_alive(&self, at: Option<Duration>) {
        self.with(|hints| hints.alive = at);
    }

    /// Returns whether other replicas count this process as alive, so that its leases are its own.
    pub(crate) fn is_alive(&self, now: Duration) -> bool {
        self.with(|hints| hints.alive.is_some_and(|at| now.saturating_sub(at) < TTL))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Hints) -> T) -> T {
        change(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
