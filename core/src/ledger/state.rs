//! An app's state: all data that decisions about it need.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    HighestSequence, Recovery, ReleaseTurn, Released, Revoked, Runs, StagedKey,
    restore::{self, Owed},
};
use crate::{
    app::{App, Source},
    configuration::ConfigurationId,
    deploy::{Deploy, Revision, State, Stopped, Watch},
    follow::Followed,
    replica::ReplicaId,
    request::Refusal,
    time::Timestamp,
};

/// The state of an app: its registration, its unfinished deploys, and the markers of its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppState {
    /// The app's registration.
    pub app: Arc<App>,
    /// The newest revision.
    pub latest: Option<Revision>,
    /// The newest revision that did not come out of order, if that is another than `latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_order: Option<Revision>,
    /// The highest sequence of the webhook's deploys; `None`: none has come with one since the webhook was enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_sequence: Option<HighestSequence>,
    /// The deploys that have not ended, ascending.
    pub unfinished: Vec<Arc<Deploy>>,
    /// The newest deploy that succeeded.
    pub current: Option<Arc<Deploy>>,
    /// The newest deploy that touched the cluster and ended without success, if it is newer than `current`; without its
    /// evidence, which is in the archive.
    pub ended_on_cluster: Option<Arc<Deploy>>,
    /// The newest deploy of all, if it ended without success and never touched the cluster, as one whose build failed;
    /// without its evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_off_cluster: Option<Arc<Deploy>>,
    /// The configuration that waits for the next deploy; `None`: that of the current version is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<ConfigurationId>,
    /// The idempotency keys of staged changes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub staged_keys: Vec<StagedKey>,
    /// The values of variables that were revoked, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<Revoked>,
    /// The stop of the app; `None` while it is not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// Whether the app was stopped as its current version succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub current_is_stopped: bool,
    /// The image that following has decided on last: only a newer one is deployed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Box<Followed>>,
    /// The time from which the source is to be polled, as a hint said that it may have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hinted_at: Option<Timestamp>,
    /// The newest restore.
    pub last_restore: Option<Revision>,
    /// The recoveries of deploys that ended without success, oldest first; the last [`RECOVERIES_MAX`](super::RECOVERIES_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recoveries: Vec<Recovery>,
    /// The watches over versions after their deploys have succeeded, oldest first; the last one may be under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<Watch>,
    /// The last good version before `current`, while that one is watched or its verification was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_before: Option<Arc<Deploy>>,
    /// The revisions, ascending, whose runs of release commands may have begun or been made ready, and whose ends were not
    /// observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release_runs: Vec<Revision>,
    /// The turns of these runs in their groups, of those that are in one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release_turns: Vec<ReleaseTurn>,
    /// The revisions whose release commands may have run, ascending; the last
    /// [`RELEASED_MAX`](super::releases::RELEASED_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<Released>,
    /// The commands that people ran by hand.
    #[serde(default, skip_serializing_if = "Runs::is_empty")]
    pub runs: Runs,
    /// The replica that drives the app.
    pub lease: Option<ReplicaId>,
    /// The begin of the app's work; `None`: it is idle.
    pub queued_at: Option<Timestamp>,
    /// The oldest of the newest kept deploys at retention's last run.
    pub kept_from: Revision,
    /// The latest stored time; no later write may store an earlier one.
    pub updated_at: Timestamp,
}

impl AppState {
    /// Returns `Ok` if the caller expects no revision to be current, or just the one that is.
    ///
    /// # Errors
    /// [`Refusal::CurrentChanged`], which names both.
    pub fn expect_current(&self, expected: Option<Revision>) -> Result<(), Refusal> {
        let current = self.current.as_ref().map(|deploy| deploy.revision);
        match expected.filter(|expected| Some(*expected) != current) {
            Some(expected) => Err(Refusal::CurrentChanged { expected, current }),
            None => Ok(()),
        }
    }

    /// Returns the state of an app that was just registered.
    pub fn new(app: App) -> Self {
        let updated_at = app.created_at;
        let queued_at = app.policy.poll.map(|_| updated_at);
        Self {
            app: Arc::new(app),
            latest: None,
            in_order: None,
            highest_sequence: None,
            unfinished: Vec::new(),
            current: None,
            ended_on_cluster: None,
            ended_off_cluster: None,
            staged: None,
            staged_keys: Vec::new(),
            revoked: Vec::new(),
            stopped: None,
            current_is_stopped: false,
            followed: None,
            hinted_at: None,
            last_restore: None,
            recoveries: Vec::new(),
            watches: Vec::new(),
            good_before: None,
            release_runs: Vec::new(),
            release_turns: Vec::new(),
            released: Vec::new(),
            runs: Runs::default(),
            lease: None,
            queued_at,
            kept_from: Revision::FIRST,
            updated_at,
        }
    }

    /// The newest deploy that touched the cluster.
    pub fn on_cluster(&self) -> Option<&Arc<Deploy>> {
        let touching = self.unfinished.iter().rev().find(|deploy| deploy.touched);
        let newest = |deploy: &&Arc<Deploy>| deploy.revision;
        touching.into_iter().chain(&self.ended_on_cluster).chain(&self.current).max_by_key(newest)
    }

    /// The newest deploy, whatever its status, but for those that came out of order.
    pub fn newest(&self) -> Option<&Arc<Deploy>> {
        let known = self.unfinished.last().into_iter().chain(&self.ended_off_cluster).chain(self.on_cluster());
        known.max_by_key(|deploy| deploy.revision)
    }

    /// The unfinished deploy of this revision.
    pub fn unfinished(&self, revision: Revision) -> Option<&Arc<Deploy>> {
        let at = self.unfinished.binary_search_by_key(&revision, |deploy| deploy.revision).ok()?;
        self.unfinished.get(at)
    }

    /// Returns the app's own time: the store's clock, but never before the latest stored time.
    pub fn time(&self, now: Timestamp) -> Timestamp {
        self.updated_at.max(now)
    }

    /// Returns whether the app's source is polled for changes: such an app always has work.
    pub fn is_polled(&self) -> bool {
        self.app.policy.poll.is_some()
    }

    /// Returns whether this replica has the app's lease.
    pub fn is_leased_to(&self, replica: &ReplicaId) -> bool {
        self.lease.as_ref() == Some(replica)
    }

    /// Returns whether only a process with a builder can do the app's work: commits wait for their builds or are built,
    /// or the source is polled and no command runs by hand; and nothing is left to roll out or to restore, and no release
    /// command to end.
    pub fn needs_builder(&self) -> bool {
        let rolls_out = self.unfinished.iter().any(|deploy| deploy.image.is_some());
        let polls = self.is_polled() && self.app.source != Source::Image && self.runs.unfinished.is_none();
        let builds = polls || self.unfinished.iter().any(|deploy| deploy.is_to_be_built());
        builds && !rolls_out && self.release_runs.is_empty() && !matches!(restore::owed(self), Owed::Restore(_))
    }

    /// Returns the revision that took the place of this one, so that it must not roll out any more: the one on the
    /// cluster, or else the highest that may begin, if that is newer.
    pub fn overtaken_by(&self, revision: Revision) -> Option<Revision> {
        let ready = self.unfinished.iter().rfind(|deploy| deploy.may_begin());
        let newer = |deploy: &Arc<Deploy>| Some(deploy.revision).filter(|other| *other > revision);
        self.on_cluster().and_then(newer).or_else(|| ready.and_then(newer))
    }

    /// Returns whether a command of the app may be running, or is made ready: a release command, or one by hand.
    pub fn has_runs(&self) -> bool {
        !self.release_runs.is_empty() || self.runs.unfinished.is_some()
    }

    /// The deploy that is rolling out, or is verified.
    pub fn rolling_out(&self) -> Option<&Arc<Deploy>> {
        self.unfinished.iter().rev().find(|deploy| matches!(deploy.state, State::RollingOut { .. }))
    }
}
