//! Work that this process made itself, so that it need not ask the store for it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};

use super::run::TTL;
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
    /// What the last claim named, and when it was made.
    named: BTreeSet<AppUid>,
    claimed: Option<Duration>,
}

/// Whether an app is this process's, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The last claim named it.
    Ours,
    /// It did not.
    NotNamed,
    /// The last claim was too long ago.
    Unsure,
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

    /// The store named this process as the owner of these, to a claim that was made at this time.
    pub(super) fn own(&self, apps: &[AppUid], at: Duration) {
        self.with(|hints| {
            hints.owned.extend(apps);
            hints.named = apps.iter().copied().collect();
            hints.claimed = Some(at);
        });
    }

    /// Whether the app is this process's now.
    pub(super) fn holds(&self, app: AppUid, now: Duration) -> Held {
        self.with(|hints| match hints.claimed {
            Some(at) if now.saturating_sub(at) < TTL => {
                if hints.named.contains(&app) {
                    Held::Ours
                } else {
                    Held::NotNamed
                }
            }
            Some(_) | None => Held::Unsure,
        })
    }

    /// The store said that the app is another's.
    pub(super) fn disown(&self, app: AppUid) {
        self.with(|hints| hints.owned.remove(&app));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Hints) -> T) -> T {
        change(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
