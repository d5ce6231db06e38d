//! Wakes the tasks of this process that wait for an app; a missed notification only costs a poll.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use event_listener::{Event, EventListener};

use crate::app::AppUid;

/// One event per app that tasks wait for.
#[derive(Default)]
pub(crate) struct AppEvents(Mutex<BTreeMap<AppUid, Weak<Event>>>);

/// The event of an app; kept for as long as a task waits for it.
pub(crate) struct Subscription {
    event: Arc<Event>,
}

impl Subscription {
    /// Resolves at the next notification after this call.
    pub(crate) fn listen(&self) -> EventListener {
        self.event.listen()
    }
}

impl AppEvents {
    /// The app's event.
    pub(crate) fn subscribe(&self, app: AppUid) -> Subscription {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = events.get(&app).and_then(Weak::upgrade) {
            return Subscription { event };
        }
        remove_unused(&mut events, |event| event.strong_count() > 0);
        let event = Arc::new(Event::new());
        events.insert(app, Arc::downgrade(&event));
        Subscription { event }
    }

    /// Wakes all tasks that wait for the app.
    pub(crate) fn notify(&self, app: AppUid) {
        let event = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&app).and_then(Weak::upgrade);
        if let Some(event) = event {
            event.notify(usize::MAX);
        }
    }

    /// Wakes all tasks that wait for any app.
    pub(crate) fn notify_all(&self) {
        let events: Vec<_> =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect();
        for event in events {
            event.notify(usize::MAX);
        }
    }
}

/// Removes the unused entries when their number has doubled, which keeps the table as small as the number of used ones
/// without a walk at every call.
pub(crate) fn remove_unused<K: Ord, V>(table: &mut BTreeMap<K, V>, is_used: impl Fn(&V) -> bool) {
    if table.len() >= 64 && table.len().is_power_of_two() {
        table.retain(|_, entry| is_used(entry));
    }
}
