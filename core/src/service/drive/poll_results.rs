//! The results of polls by this process, for callers; a restart may lose them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    app::{AppId, AppUid},
    deploy::Revision,
    engine::polling::Head,
    time::Timestamp,
};

/// The last poll of an app's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The time of the poll.
    pub at: Timestamp,
    /// The outcome of the poll.
    pub found: PollOutcome,
    /// The time of the first poll with this outcome.
    pub since: Timestamp,
}

/// The outcome of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The source is at this head.
    Head(Head),
    /// The source is at this head, which this rollback holds.
    Held(Head, Revision),
    /// The source could not be read, for the reason in this sentence.
    Unreadable(String),
}

/// The least time between two polls of an app that hints cause for which nobody vouches.
const UNPROVEN_INTERVAL: Duration = Duration::from_secs(60);

/// The last polls of the apps that this replica drives.
#[derive(Default)]
pub(crate) struct PollResults(Mutex<PolledApps>);

#[derive(Default)]
struct PolledApps {
    apps: BTreeMap<AppUid, PolledApp>,
    /// The same apps by their names.
    names: BTreeMap<AppId, AppUid>,
}

struct PolledApp {
    id: AppId,
    last: Polled,
    /// The time of the last unproven hint.
    hinted_at: Option<Timestamp>,
}

impl PollResults {
    /// Stores the outcome of a poll, and returns whether it differs from the one before.
    pub(crate) fn note(&self, (app, id): (AppUid, &AppId), at: Timestamp, found: PollOutcome) -> bool {
        self.with(|polls| {
            let before = polls.apps.remove(&app);
            let hinted_at = before.as_ref().and_then(|before| before.hinted_at);
            let since = before.map(|before| before.last).filter(|before| before.found == found);
            let since = since.map(|before| before.since);
            let last = Polled { at, found, since: since.unwrap_or(at) };
            polls.names.insert(id.clone(), app);
            polls.apps.insert(app, PolledApp { id: id.clone(), last, hinted_at });
            since.is_none()
        })
    }

    /// Returns the last poll of the app's source if this replica drives the app.
    pub(crate) fn of(&self, app: AppUid) -> Option<Polled> {
        self.with(|polls| polls.apps.get(&app).map(|polled| polled.last.clone()))
    }

    /// Remembers a hint for which nobody vouches; returns the app if it is to be polled soon.
    pub(crate) fn hint(&self, id: &AppId, now: Timestamp) -> Option<AppUid> {
        self.with(|polls| {
            let app = *polls.names.get(id)?;
            let polled = polls.apps.get_mut(&app)?;
            let is_due = polled.hinted_at.is_none_or(|before| before.after(UNPROVEN_INTERVAL) <= now);
            is_due.then(|| {
                polled.hinted_at = Some(now);
                app
            })
        })
    }

    /// Returns the time of the last unproven hint.
    pub(crate) fn hinted_at(&self, app: AppUid) -> Option<Timestamp> {
        self.with(|polls| polls.apps.get(&app).and_then(|polled| polled.hinted_at))
    }

    /// Removes the app's last poll.
    pub(crate) fn forget(&self, app: AppUid) {
        self.with(|polls| {
            let removed = polls.apps.remove(&app);
            // Another app may have its name by now.
            if let Some(polled) = removed.filter(|polled| polls.names.get(&polled.id) == Some(&app)) {
                polls.names.remove(&polled.id);
            }
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut PolledApps) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
