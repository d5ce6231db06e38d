//! Recoveries: a deploy that ended without success while it was on the cluster, and whose instances ran well afterwards,
//! such as a restore that waited for quota. The deploy's status stays; the recovery stands beside it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AppState, Change,
    restore::{self, Owed},
};
use crate::{
    deploy::{Deploy, Reason, Revision},
    time::Timestamp,
};

/// The most recoveries kept per app; the oldest goes first.
pub const RECOVERIES_MAX: usize = 20;

/// The recovery of a deploy that ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The deploy, whose instances run.
    pub revision: Revision,
    /// The time by which they had run well for as long as a success takes.
    pub at: Timestamp,
}

/// Returns whether a deploy failed by its checks: its instances ran well then, and that they do says nothing new.
fn failed_in_use(deploy: &Deploy) -> bool {
    deploy.state.has_failed_for(Reason::CHECK_FAILED)
}

impl AppState {
    /// Returns the deploy that may recover: the newest on the cluster, if it ended without success and has not recovered,
    /// and nothing is about to take its place.
    pub fn unrecovered(&self) -> Option<&Arc<Deploy>> {
        let ended = self.ended_on_cluster.as_ref()?;
        let is_left = self.on_cluster().is_some_and(|newest| newest.revision == ended.revision)
            && !self.unfinished.iter().any(|deploy| deploy.image.is_some())
            && !matches!(restore::owed(self), Owed::Restore(_));
        Some(ended).filter(|ended| is_left && !failed_in_use(ended) && self.recovered_at(ended.revision).is_none())
    }

    /// Returns the time of a deploy's recovery; `None`: none is known.
    pub fn recovered_at(&self, revision: Revision) -> Option<Timestamp> {
        self.recoveries.iter().find(|recovery| recovery.revision == revision).map(|recovery| recovery.at)
    }
}

impl Change {
    /// Records that the instances of this deploy run well. Returns `false`, and changes nothing, unless it is the one that
    /// may recover.
    pub fn recover(&mut self, revision: Revision, now: Timestamp) -> bool {
        if self.state.unrecovered().is_none_or(|ended| ended.revision != revision) {
            return false;
        }
        let at = self.touch(now);
        let recoveries = &mut self.state.recoveries;
        recoveries.push(Recovery { revision, at });
        let surplus = recoveries.len().saturating_sub(RECOVERIES_MAX);
        recoveries.drain(..surplus);
        true
    }
}
