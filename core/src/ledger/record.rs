//! Recording the progress of deploys.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    AppState, Change, ReleaseTurn, admission, configuration,
    restore::{self, Owed},
    stop,
};
use crate::{
    deploy::{Deploy, Reason, Revision, State, Status, Watch},
    replica::ReplicaId,
    run::Run,
    time::Timestamp,
};

/// Changes to an app's deploys, written together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The replica that drives the app; `None`: a person's cancel.
    pub driver: Option<ReplicaId>,
    /// The deploys in their next states, each with `step` one higher than stored. The ledger sets `updated_at`.
    pub changes: Vec<Deploy>,
    /// The rollbacks whose holds are released.
    pub release_holds: Vec<Revision>,
    /// The run of a release command whose end was observed.
    pub release_ended: Option<Revision>,
    /// The turn of a release command in its next state.
    pub release_turn: Option<ReleaseTurn>,
    /// The run by hand in its next state, with `step` one higher than stored. The ledger sets `updated_at`.
    pub run: Option<Box<Run>>,
    /// The watch in its next state, with `step` one higher than stored.
    pub watch: Option<Box<Watch>>,
    /// The driver has nothing left to do: without unfinished deploys, an owed restore or polling, the app becomes idle.
    pub idle: bool,
}

/// The reason why a record was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Another replica, or none, drives the app.
    NotLeased,
    /// A deploy has changed or ended meanwhile: read again and decide again.
    Outdated,
    /// Another part of this change has changed one of the deploys: it needs a commit of its own.
    NextCommit,
}

/// Passes what a superseded deploy was to change besides the image on to the deploy that supersedes it: whoever waits for the
/// one is answered by the other. A rollback takes it back instead.
fn pass_on(state: &mut AppState, changes: &mut [Deploy]) {
    let successor = |change: &Deploy| {
        let State::Superseded { by, rollback: false, .. } = change.state else { return None };
        Some((by, change.clone()))
    };
    let superseded: Vec<(Revision, Deploy)> = changes.iter().filter_map(successor).collect();
    for (by, from) in superseded {
        let entered = state.unfinished.iter_mut().find(|deploy| deploy.revision == by).map(Arc::make_mut);
        let changed = changes.iter_mut().find(|change| change.revision == by);
        for to in entered.into_iter().chain(changed) {
            stop::pass_on(&from, to);
            configuration::pass_on(&from, to);
        }
    }
}

impl Change {
    /// Returns whether a deploy begins with its next state: it has waited or was built, and is released or rolled out from now on.
    fn begins(&self, change: &Deploy) -> bool {
        let waits = |deploy: &Arc<Deploy>| matches!(deploy.status(), Status::Queued | Status::Building);
        let has_begun = matches!(change.status(), Status::Releasing | Status::RollingOut);
        has_begun && self.state.unfinished(change.revision).is_some_and(waits)
    }

    /// Returns whether a deploy goes on although its image was not found to meet what is required now: by the answer of its
    /// registry, by the end of its build, or as it begins.
    fn is_unmet(&self, stored: &Deploy, change: &Deploy) -> bool {
        let app = &self.state.app;
        // Its order says nothing of its image, which is yet to be built.
        let waited = stored.is_to_be_resolved() && !stored.is_to_be_ordered();
        let is_answered = waited && !change.is_to_be_resolved() && !change.is_terminal();
        let is_built = stored.image.is_none() && change.image.is_some();
        app.requires_signatures()
            && (is_built
                || is_answered && !change.has_met(&app.required())
                || self.begins(change) && admission::is_unmet(app, change))
    }

    /// Returns whether a deploy ends for want of a signature, which nothing requires any more.
    fn is_needlessly_unsigned(&self, change: &Deploy) -> bool {
        change.state.has_failed_for(Reason::IMAGE_NOT_SIGNED) && !self.state.app.requires_signatures()
    }

    /// Moves deploys on. A refused record leaves the change as it was.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn record(&mut self, record: Record, now: Timestamp) -> Result<(), Refused> {
        if record.driver.as_ref().is_some_and(|driver| !self.state.is_leased_to(driver)) {
            return Err(Refused::NotLeased);
        }
        let mut revisions = BTreeSet::new();
        for change in &record.changes {
            let stored = self.state.unfinished(change.revision).ok_or(Refused::Outdated)?;
            if self.changed.contains(&change.revision) {
                return Err(Refused::NextCommit);
            }
            if change.step != stored.step + 1 || !revisions.insert(change.revision) {
                return Err(Refused::Outdated);
            }
            if self.is_unmet(stored, change) || self.is_needlessly_unsigned(change) {
                return Err(Refused::Outdated);
            }
        }
        if let Some(run) = &record.run {
            self.check_run(run)?;
        }
        if record.release_turn.as_ref().is_some_and(|turn| !self.may_put_turn(turn)) {
            return Err(Refused::Outdated);
        }
        if record.watch.as_ref().is_some_and(|watch| !self.may_put_watch(watch)) {
            return Err(Refused::Outdated);
        }
        let now = self.touch(now);
        if let Some(watch) = record.watch {
            self.put_watch(*watch);
        }
        if let Some(run) = record.run {
            self.put_run(*run, now);
        }
        if let Some(turn) = record.release_turn {
            self.put_turn(turn);
        }
        let mut changes = record.changes;
        pass_on(&mut self.state, &mut changes);
        for mut change in changes {
            if self.begins(&change) {
                change.configuration = configuration::of(&self.state, &change);
            }
            self.put(Deploy { updated_at: now, ..change.bounded() });
        }
        if !record.release_holds.is_empty() {
            let app = Arc::make_mut(&mut self.state.app);
            app.holds.retain(|hold| !record.release_holds.contains(&hold.by));
        }
        let state = &mut self.state;
        state.release_runs.retain(|run| record.release_ended != Some(*run));
        self.drop_turns();
        let state = &mut self.state;
        let owes = matches!(restore::owed(state), Owed::Restore(_));
        let has_more = state.has_runs() || state.is_polled() || state.watch().is_some();
        let is_done = state.unfinished.is_empty() && !has_more && !owes;
        if record.idle && is_done {
            (state.queued_at, state.lease) = (None, None);
        } else {
            state.queued_at.get_or_insert(now);
        }
        Ok(())
    }
}
