//! The results of polls by this process, for callers; a restart may lose them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    app::AppUid,
    deploy::{Commit, Revision},
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
    /// The branch is at this commit.
    Head(Commit),
    /// The branch is at this commit, which this rollback holds.
    Held(Commit, Revision),
    /// The branch could not be read, for the reason in this sentence.
    Unreadable(String),
}

/// The last polls of the apps that this replica drives.
#[derive(Default)]
pub(crate) struct PollResults(Mutex<BTreeMap<AppUid, Polled>>);

impl PollResults {
    /// Stores the outcome of a poll, and returns whether it differs from the one before.
    pub(crate) fn note(&self, app: AppUid, at: Timestamp, found: PollOutcome) -> bool {
        self.with(|polls| {
            let before = polls.get(&app).filter(|before| before.found == found).map(|before| before.since);
            polls.insert(app, Polled { at, found, since: before.unwrap_or(at) });
            before.is_none()
        })
    }

    /// Returns the last poll of the app's source if this replica drives the app.
    pub(crate) fn of(&self, app: AppUid) -> Option<Polled> {
        self.with(|polls| polls.get(&app).cloned())
    }

    /// Removes the app's last poll.
    pub(crate) fn forget(&self, app: AppUid) {
        self.with(|polls| polls.remove(&app));
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<AppUid, Polled>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
