//! Wakes the tasks of this process that wait for an app; a missed notification only costs a poll.

use std::sync::Arc;

use event_listener::{Event, EventListener};

use super::shared_values::SharedValues;
use crate::app::AppUid;

/// One event per app that tasks wait for.
#[derive(Default)]
pub(crate) struct AppEvents(SharedValues<AppUid, Event>);

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
        Subscription { event: self.0.of(app) }
    }

    /// Wakes all tasks that wait for the app.
    pub(crate) fn notify(&self, app: AppUid) {
        if let Some(event) = self.0.get(&app) {
            event.notify(usize::MAX);
        }
    }

    /// Wakes all tasks that wait for any app.
    pub(crate) fn notify_all(&self) {
        for event in self.0.all() {
            event.notify(usize::MAX);
        }
    }
}
