//! What this process knows of the sources that it looks at, for whoever asks: nothing of it must survive a restart.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    app::AppUid,
    deploy::{Commit, Revision},
    time::Timestamp,
};

/// The last look at an app's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// When it was.
    pub at: Timestamp,
    /// What was found.
    pub found: PollOutcome,
    /// Since when it has been so.
    pub since: Timestamp,
}

/// What a look at a source found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The branch is at this commit.
    Head(Commit),
    /// The branch is at this commit, which this rollback holds.
    Held(Commit, Revision),
    /// Where the branch is could not be read: a sentence.
    Unreadable(String),
}

/// The last looks of the apps that are driven here.
#[derive(Default)]
pub(super) struct PollResults(Mutex<BTreeMap<AppUid, Polled>>);

impl PollResults {
    /// Takes in a look, and says whether it found something else than the one before.
    pub(super) fn note(&self, app: AppUid, at: Timestamp, found: PollOutcome) -> bool {
        self.with(|polls| {
            let before = polls.get(&app).filter(|before| before.found == found).map(|before| before.since);
            polls.insert(app, Polled { at, found, since: before.unwrap_or(at) });
            before.is_none()
        })
    }

    /// The last look at the app's source, where this process drives it.
    pub(super) fn of(&self, app: AppUid) -> Option<Polled> {
        self.with(|polls| polls.get(&app).cloned())
    }

    /// The app is not looked at here any more.
    pub(super) fn forget(&self, app: AppUid) {
        self.with(|polls| polls.remove(&app));
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<AppUid, Polled>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
