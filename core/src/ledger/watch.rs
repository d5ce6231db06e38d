//! Watches: which versions are watched after their deploys have succeeded, and what ends a watch.
//!
//! Whatever a person does to the app ends its watch in the same commit, and takes back a restore that it owes: so a watch never
//! restores after anything newer.

use std::sync::Arc;

use super::{AppState, Change};
use crate::{
    app::OnFailure,
    deploy::{Deploy, Revision, Status, Trigger, Watch, WatchEnd, WatchRestore},
    lock::Lock,
    time::Timestamp,
};

/// The most watches kept per app. The oldest goes first, and one whose verification was revoked after the others.
pub const WATCHES_MAX: usize = 50;

impl AppState {
    /// The watch that is under way.
    pub fn watch(&self) -> Option<&Watch> {
        self.watches.last().filter(|watch| watch.is_under_way())
    }

    /// The watch over this revision, as far as it is known.
    pub fn watch_of(&self, revision: Revision) -> Option<&Watch> {
        self.watches.iter().find(|watch| watch.revision == revision)
    }

    /// The revisions whose verifications were revoked, ascending.
    pub fn revocations(&self) -> impl Iterator<Item = Revision> {
        self.watches.iter().filter(|watch| watch.revoked().is_some()).map(|watch| watch.revision)
    }

    /// Returns whether the verification of this revision was revoked: it succeeded, and is no version to return to.
    pub fn is_revoked(&self, revision: Revision) -> bool {
        self.watch_of(revision).is_some_and(|watch| watch.revoked().is_some())
    }

    /// The version that a restore returns to: the current one, or another one before it if its verification was revoked.
    pub fn last_good(&self) -> Option<&Arc<Deploy>> {
        let current = self.current.as_ref()?;
        if !self.is_revoked(current.revision) {
            return Some(current);
        }
        self.good_before.as_ref().filter(|good| !good.runs_as(current))
    }

    /// Returns whether a watch owes a restore.
    pub fn owes_watch_restore(&self) -> bool {
        self.watches.last().is_some_and(Watch::owes_restore)
    }
}

/// Returns whether a deploy that has just succeeded is watched: its checks were to measure it, and nothing newer has begun.
fn is_watched(state: &AppState, deploy: &Deploy) -> bool {
    let policy = &state.app.policy;
    let was_verified = deploy.verification.as_ref().is_some_and(|verification| verification.skipped.is_none());
    let is_later = |lock: &Lock| lock.at > deploy.created_at;
    !policy.watch_for.is_zero()
        && !policy.checks.is_empty()
        && was_verified
        && deploy.trigger != Trigger::Rollback
        && state.latest_in_order() == Some(deploy.revision)
        && state.stopped.is_none()
        && !state.app.locks.in_force(deploy.updated_at).any(|(_, lock)| is_later(lock))
}

impl Change {
    /// Begins the watch over the version that has just become the current one. `good` was the last good one before it.
    pub(super) fn begin_watch(&mut self, deploy: &Deploy, began: Timestamp, good: Option<Arc<Deploy>>) {
        let state = &mut self.state;
        state.good_before = None;
        if !is_watched(state, deploy) {
            return;
        }
        let policy = &state.app.policy;
        let since = deploy.updated_at;
        let watch = Watch::begin(deploy.revision, &policy.checks, (began, since, since.after(policy.watch_for)));
        state.good_before = good;
        let known = std::mem::take(&mut state.watches);
        state.watches = known.into_iter().map(Watch::without_measurements).chain([watch]).collect();
        while state.watches.len() > WATCHES_MAX {
            let oldest =
                state.watches.iter().position(|watch| watch.revoked().is_none()).filter(|at| at + 1 < WATCHES_MAX);
            state.watches.remove(oldest.unwrap_or(0));
        }
    }

    /// Ends the watch that is under way before its time, for this reason: a clause. A restore that one owes is taken back.
    pub(super) fn end_watch(&mut self, why: &str) {
        let at = self.state.updated_at;
        let Some(watch) = self.state.watches.last_mut() else { return };
        let end = match &watch.end {
            None => WatchEnd::Early { why: why.to_owned() },
            Some(WatchEnd::Revoked { fail, restore: WatchRestore::Owed }) => {
                *watch = Watch {
                    end: Some(WatchEnd::Revoked {
                        fail: fail.clone(),
                        restore: WatchRestore::Nothing { why: why.to_owned() },
                    }),
                    ..watch.moved()
                };
                return;
            }
            Some(WatchEnd::Over | WatchEnd::Early { .. } | WatchEnd::Revoked { .. }) => return,
        };
        *watch = watch.ended(end, at);
        self.state.good_before = None;
    }

    /// Ends the watch for a deploy that is accepted; the restore that it owes is the only one that it makes.
    pub(super) fn watch_followed(&mut self, revision: Revision, is_restore: bool) {
        let owed = self.state.watches.last_mut().filter(|watch| is_restore && watch.owes_restore());
        let Some(watch) = owed else { return self.end_watch(&format!("revision {revision} was accepted")) };
        let mut next = watch.moved();
        if let Some(WatchEnd::Revoked { restore, .. }) = &mut next.end {
            *restore = WatchRestore::Made { revision };
        }
        *watch = next;
    }

    /// Ends the watch if a lock was set.
    pub(super) fn watch_locked(&mut self, lock: Option<&Lock>) {
        if lock.is_some() {
            self.end_watch("the app was locked");
        }
    }

    /// Ends the watch if the app's policy does not ask for it any more.
    pub(super) fn watch_configured(&mut self) {
        let policy = &self.state.app.policy;
        if policy.checks.is_empty() {
            self.end_watch("the app has no checks any more");
        } else if policy.watch_for.is_zero() {
            self.end_watch("the app's versions are watched no longer");
        } else if policy.on_failure == OnFailure::Leave && self.state.owes_watch_restore() {
            self.end_watch("the policy on-failure is leave");
        }
    }

    /// Takes back the restore that a watch owes, as another party has changed the target: the restore would overwrite that.
    /// Returns `false`, and changes nothing, if none is owed.
    pub fn withhold_watch_restore(&mut self, now: Timestamp) -> bool {
        if !self.state.owes_watch_restore() {
            return false;
        }
        self.touch(now);
        self.end_watch("another party has changed what runs");
        true
    }

    /// Returns whether a watch may come to this state: its stored state is the one before it, and under way.
    pub(super) fn may_put_watch(&self, next: &Watch) -> bool {
        let stored = self.state.watch().filter(|stored| stored.revision == next.revision);
        stored.is_some_and(|stored| stored.step.checked_add(1) == Some(next.step))
    }

    /// Puts the watch that is under way in its next state.
    pub(super) fn put_watch(&mut self, next: Watch) {
        let is_good = next.end.is_some() && next.revoked().is_none();
        if is_good {
            self.state.good_before = None;
        }
        if let Some(stored) = self.state.watches.last_mut() {
            *stored = next.bounded();
        }
    }
}

/// Returns the rules that the watches of an app break, in sentences.
pub(super) fn broken_by(history: &[Deploy], state: &AppState) -> Vec<String> {
    let mut broken = Vec::new();
    let mut expect = |holds: bool, rule: String| {
        if !holds {
            broken.push(rule);
        }
    };
    let is_sorted = state.watches.is_sorted_by(|one, next| one.revision < next.revision);
    expect(is_sorted, "a revision was watched twice, or out of order".to_owned());
    let latest = state.watches.last();
    for watch in &state.watches {
        let revision = watch.revision;
        let is_latest = latest.is_some_and(|latest| latest.revision == revision);
        let is_open = watch.is_under_way() || watch.owes_restore();
        let is_newest =
            state.latest_in_order() == Some(revision) && state.on_cluster().is_some_and(|top| top.revision == revision);
        expect(
            !is_open || is_latest && is_newest,
            format!("revision {revision} is watched, and a newer one was accepted"),
        );
        expect(!is_open || state.queued_at.is_some(), format!("idle, and revision {revision} is watched"));
        expect(watch.until >= watch.since(), format!("the watch over revision {revision} ended before it began"));
        // Retention may have forgotten the entry of an older one.
        let entry = history.iter().find(|deploy| deploy.revision == revision);
        let may_be = |deploy: &Deploy| {
            let was_verified = deploy.verification.as_ref().is_some_and(|verification| verification.skipped.is_none());
            deploy.status() == Status::Succeeded && deploy.trigger != Trigger::Rollback && was_verified
        };
        expect(entry.is_none_or(may_be), format!("revision {revision} is watched, and was not verified"));
        if let Some((_, WatchRestore::Made { revision: made })) = watch.revoked() {
            let restore = history.iter().find(|deploy| deploy.revision == *made);
            let mut between = history.iter().filter(|deploy| revision < deploy.revision && deploy.revision < *made);
            // A commit whose source was still to be asked ended no watch.
            let may_follow = |deploy: &Deploy| deploy.is_out_of_order() || deploy.may_have_been_ordered();
            let is_next = *made > revision && between.all(may_follow);
            expect(
                is_next && restore.is_none_or(Deploy::is_restore),
                format!("revision {made} is not the restore of revision {revision}"),
            );
        }
    }
    broken
}
