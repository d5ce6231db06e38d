//! The port that observes how deploys go on.

use std::{sync::Arc, time::Duration};

use crate::{
    app::{App, AppUid},
    deploy::{Deploy, Watch},
    ledger::{AppState, Change},
};

/// Observes the commits of this process, such as for metrics and traces.
///
/// The service calls an observer once for each of its commits that is known to be written, before the commit's callers
/// are answered. A commit whose answer was lost is observed once a later load of the app finds it, and one that is never
/// found is not observed. Commits of other processes are theirs to observe: over all processes, each is observed at most
/// once.
///
/// A call returns at once: the app's callers, and its next commit, wait for it. A panic is logged, and harms neither a
/// deploy nor another observer.
pub trait DeployObserver: Send + Sync {
    /// A commit was written by this process.
    fn committed(&self, commit: &ConfirmedCommit<'_>);

    /// An app was loaded by this process. Of loads that overlap with others, or with a commit, the last one may show an
    /// older state.
    fn loaded(&self, _state: &AppState) {}

    /// An app was removed by this process, or by another one as the store's hints say. May be called again.
    fn removed(&self, _app: AppUid) {}
}

/// A commit of this process that is known to be written.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmedCommit<'a> {
    /// The state that the change was made on; `None` for a registration.
    pub before: Option<&'a AppState>,
    /// The change.
    pub change: &'a Change,
    /// The time from the begin of the write until it was confirmed.
    pub took: Duration,
}

impl<'a> ConfirmedCommit<'a> {
    /// Returns the app as it is from now on.
    pub fn app(&self) -> &'a App {
        &self.change.state.app
    }

    /// Returns the watch by which the commit revoked the verification of a deploy, if it did.
    pub fn revoked(&self) -> Option<&'a Watch> {
        let watch = self.change.state.watches.last().filter(|watch| watch.revoked().is_some())?;
        let was_open = self.before.and_then(AppState::watch).is_some_and(|before| before.revision == watch.revision);
        was_open.then_some(watch)
    }

    /// Returns the deploys that the commit accepted, moved on or ended, ascending: each as it was before, `None` for one
    /// that it accepted, and as it is from now on.
    pub fn deploys(&self) -> impl Iterator<Item = (Option<&'a Arc<Deploy>>, &'a Arc<Deploy>)> + use<'a> {
        let (before, change) = (self.before, self.change);
        change.changed().iter().filter_map(move |revision| {
            let before = before.and_then(|state| state.unfinished(*revision));
            Some((before, change.deploy(*revision)?))
        })
    }
}
