//! Work that this process made itself, so that it need not ask the store for it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use event_listener::{Event, EventListener};

use crate::app::AppUid;

/// Apps that were written to here, and those that this process drives; hints, both.
#[derive(Default)]
pub(super) struct Inbox {
    hints: Mutex<Hints>,
    arrived: Event,
}

#[derive(Default)]
struct Hints {
    new: BTreeSet<AppUid>,
    owned: BTreeSet<AppUid>,
}

impl Inbox {
    /// There is something to do for the app.
    pub(super) fn put(&self, app: AppUid) {
        self.with(|hints| hints.new.insert(app));
        self.arrived.notify(usize::MAX);
    }

    /// Resolves at the next arrival after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// What has arrived, and whether the app is this process's already.
    pub(super) fn take(&self) -> Vec<(AppUid, bool)> {
        self.with(|hints| {
            let new = std::mem::take(&mut hints.new);
            new.into_iter().map(|app| (app, hints.owned.contains(&app))).collect()
        })
    }

    /// The store named this process as the app's owner.
    pub(super) fn own(&self, app: AppUid) {
        self.with(|hints| hints.owned.insert(app));
    }

    /// The store said that the app is another's.
    pub(super) fn disown(&self, app: AppUid) {
        self.with(|hints| hints.owned.remove(&app));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Hints) -> T) -> T {
        change(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
