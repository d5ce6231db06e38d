//! Apps that this process has work for by its own knowledge, so that it need not ask the store.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};

use super::run::TTL;
use crate::app::AppUid;

/// Apps that were changed here, and whether this process drives at all.
#[derive(Default)]
pub(super) struct WorkQueue {
    hints: Mutex<Hints>,
    arrived: Event,
}

#[derive(Default)]
struct Hints {
    new: BTreeSet<AppUid>,
    /// When the last heartbeat that the store has taken was sent; none: this process drives nothing.
    alive: Option<Duration>,
}

impl WorkQueue {
    /// There is something to do for the app.
    pub(super) fn put(&self, app: AppUid) {
        self.with(|hints| hints.new.insert(app));
        self.arrived.notify(usize::MAX);
    }

    /// Resolves at the next arrival after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// The apps that have arrived.
    pub(super) fn take(&self) -> BTreeSet<AppUid> {
        self.with(|hints| std::mem::take(&mut hints.new))
    }

    /// The store took a heartbeat that was sent then; none: this process drives nothing any more.
    pub(super) fn set_alive(&self, at: Option<Duration>) {
        self.with(|hints| hints.alive = at);
    }

    /// Whether other replicas take this process for alive, so that its leases are its own.
    pub(super) fn is_alive(&self, now: Duration) -> bool {
        self.with(|hints| hints.alive.is_some_and(|at| now.saturating_sub(at) < TTL))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Hints) -> T) -> T {
        change(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
