//! Wakes whoever waits for an app within this process; a missed ring only costs a poll.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use event_listener::{Event, EventListener};

use crate::app::AppUid;

/// One bell per app that somebody waits for.
#[derive(Default)]
pub(super) struct Bells(Mutex<BTreeMap<AppUid, Weak<Event>>>);

/// A bell that somebody waits for; kept for as long as they do.
pub(super) struct Bell {
    event: Arc<Event>,
}

impl Bell {
    /// Resolves at the next ring after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.event.listen()
    }
}

impl Bells {
    /// The app's bell.
    pub(super) fn of(&self, app: AppUid) -> Bell {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = bells.get(&app).and_then(Weak::upgrade) {
            return Bell { event };
        }
        // Bells that nobody waits for any more go when their number has doubled, which keeps the table as small as the
        // number of waiters without a walk on every ring.
        if bells.len() >= 64 && bells.len().is_power_of_two() {
            bells.retain(|_, event| event.strong_count() > 0);
        }
        let event = Arc::new(Event::new());
        bells.insert(app, Arc::downgrade(&event));
        Bell { event }
    }

    /// Wakes all who wait for the app.
    pub(super) fn ring(&self, app: AppUid) {
        let event = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&app).and_then(Weak::upgrade);
        if let Some(event) = event {
            event.notify(usize::MAX);
        }
    }

    /// Wakes all who wait for any app.
    pub(super) fn ring_all(&self) {
        let events: Vec<_> =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect();
        for event in events {
            event.notify(usize::MAX);
        }
    }
}
