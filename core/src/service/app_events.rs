//! Wakes the tasks of this process that wait for an app; a missed notification only costs a poll.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use event_listener::{Event, EventListener};

use crate::app::AppUid;

/// One event per app that tasks wait for.
#[derive(Default)]
pub(super) struct AppEvents(Mutex<BTreeMap<AppUid, Weak<Event>>>);

/// The event of an app; kept for as long as a task waits for it.
pub(super) struct Subscription {
    event: Arc<Event>,
}

impl Subscription {
    /// Resolves at the next notification after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.event.listen()
    }
}

impl AppEvents {
    /// The app's event.
    pub(super) fn subscribe(&self, app: AppUid) -> Subscription {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = events.get(&app).and_then(Weak::upgrade) {
            return Subscription { event };
        }
        // Unused events are removed when their number has doubled, which keeps the table as small as the number of
        // waiting tasks without a walk on every notification.
        if events.len() >= 64 && events.len().is_power_of_two() {
            events.retain(|_, event| event.strong_count() > 0);
        }
        let event = Arc::new(Event::new());
        events.insert(app, Arc::downgrade(&event));
        Subscription { event }
    }

    /// Wakes all tasks that wait for the app.
    pub(super) fn notify(&self, app: AppUid) {
        let event = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&app).and_then(Weak::upgrade);
        if let Some(event) = event {
            event.notify(usize::MAX);
        }
    }

    /// Wakes all tasks that wait for any app.
    pub(super) fn notify_all(&self) {
        let events: Vec<_> =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect();
        for event in events {
            event.notify(usize::MAX);
        }
    }
}
