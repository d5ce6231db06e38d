//! The order of a webhook's deploys: one whose caller counts it lower than an earlier one came too late.
//!
//! Two pipelines of an app may end in the other order than they began, and a call that was recorded may be sent once more: the
//! older build would take the place of the newer one. So the highest sequence is kept, and decided by in the commit that accepts
//! a deploy.

use serde::{Deserialize, Serialize};

use super::{AppState, Change};
use crate::{
    deploy::{Newer, Revision, Sequence, State},
    time::Timestamp,
};

/// The highest sequence that an app's webhook has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighestSequence {
    /// The sequence.
    pub sequence: Sequence,
    /// The newest deploy that brought it.
    pub revision: Revision,
}

impl HighestSequence {
    /// Returns the state of a deploy with a lower sequence, which came later.
    pub(super) const fn supersedes(self) -> State {
        State::Superseded { by: self.revision, rollback: false, newer: Some(Newer::Sequence(self.sequence)) }
    }
}

impl AppState {
    /// Returns the earlier deploy that is newer than one with this sequence; `None` if the deploy is in order.
    pub(super) fn newer_in_sequence(&self, sequence: Option<Sequence>) -> Option<HighestSequence> {
        self.highest_sequence.filter(|highest| sequence.is_some_and(|sequence| sequence < highest.sequence))
    }

    /// Returns the newest revision, but for those that came out of order and changed nothing, and those of which that is not known
    /// yet.
    pub fn latest_in_order(&self) -> Option<Revision> {
        self.in_order.or(self.latest)
    }
}

impl Change {
    /// Notes a new revision with its sequence, unless that is out of order. It counts as the newest once it is
    /// [in order](Self::come_in_order).
    pub(super) fn note_revision(&mut self, revision: Revision, sequence: Option<Sequence>) {
        let state = &mut self.state;
        state.in_order = state.latest_in_order();
        state.latest = Some(revision);
        if let Some(sequence) = sequence {
            state.highest_sequence = Some(HighestSequence { sequence, revision });
        }
    }

    /// Notes that a revision is in order.
    pub(super) fn come_in_order(&mut self, revision: Revision) {
        let state = &mut self.state;
        if state.in_order.is_some_and(|newest| newest < revision) {
            state.in_order = Some(revision).filter(|_| state.latest != Some(revision));
        }
    }

    /// Forgets the highest sequence: the webhook's deploys are counted anew.
    pub fn forget_sequence(&mut self, now: Timestamp) {
        if self.state.highest_sequence.is_some() {
            self.touch(now);
            self.state.highest_sequence = None;
        }
    }
}
