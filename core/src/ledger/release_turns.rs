//! Turns of release commands: of the apps of a namespace that are in one release group, and share a database, one command
//! runs at a time, over all replicas and restarts.
//!
//! A store commits one app at a time, and has no lock over several. The turns need none: they are Lamport's bakery, in
//! which each app writes its own state only. A deploy enters the group in the commit that begins its release step, without a
//! number. It reads the other apps of the namespace, and takes a number above theirs. Its turn has come once every other
//! one in the group has a higher number; one that has none yet is waited for, as its number may become the lower one. As
//! each writes before it reads, of two that enter at the same time at least one sees the other. Whoever comes later gets a
//! higher number, so that a turn which has come stays: a replica that was paused after its read does no harm. The runner
//! could not promise as much: runs of two apps are two objects, on two machines perhaps, and beginning both is no conflict.
//!
//! A turn ends with the run: once its end was observed, or with a deploy that ended before its turn, or whose run is
//! `release-unknown`, since nothing else would ever end that. For a run whose deploy has ended before it, and that is not
//! seen to end, others wait for an hour.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AppState, Change};
use crate::{
    app::{AppName, AppUid, ReleaseGroup},
    deploy::{Deploy, Reason, Revision, Status},
    time::Timestamp,
};

/// The time for which a turn counts whose deploy has ended before the run of its command.
const ABANDONED_MAX: Duration = Duration::from_secs(3600);

/// The turn of a deploy's release command in its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseTurn {
    /// The deploy's revision.
    pub revision: Revision,
    /// The group, as the app's policy had it when the release step began.
    pub group: ReleaseGroup,
    /// The turn's number: the lowest one's turn is next; `None` until it is taken.
    pub number: Option<u64>,
    /// Whether the turn has come: the command may be made ready, and run.
    pub has_come: bool,
    /// The command that is waited for, as it was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<ReleaseAhead>,
    /// The time at which the deploy has ended, if its run may go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The release command of another app of the group, which runs first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseAhead {
    /// The other app.
    pub app: AppName,
    /// The deploy whose command it is.
    pub revision: Revision,
}

/// Another app's turn in a group, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherTurn {
    /// The registration of the other app.
    pub uid: AppUid,
    /// The number, if it was taken.
    pub number: Option<u64>,
    /// The command.
    pub command: ReleaseAhead,
}

impl ReleaseTurn {
    /// Returns the turn with a number above all others.
    #[must_use]
    pub fn numbered(&self, others: &[OtherTurn]) -> Self {
        let highest = others.iter().filter_map(|other| other.number).max().unwrap_or_default();
        Self { number: Some(highest.saturating_add(1)), ..self.clone() }
    }

    /// Returns the command of another app that runs before that of this turn of `own`, if there is one.
    pub fn ahead<'a>(&self, own: AppUid, others: &'a [OtherTurn]) -> Option<&'a ReleaseAhead> {
        let is_ahead = |other: &&OtherTurn| match (other.number, self.number) {
            (Some(other_number), Some(number)) => (other_number, other.uid) < (number, own),
            (None, _) | (_, None) => true,
        };
        // The one that has a number is known to come first.
        let first =
            others.iter().filter(is_ahead).min_by_key(|other| (other.number.is_none(), other.number, other.uid));
        first.map(|other| &other.command)
    }
}

impl AppState {
    /// The turn of this deploy's release command in its group; `None` if it has none.
    pub fn release_turn(&self, revision: Revision) -> Option<&ReleaseTurn> {
        self.release_turns.iter().find(|turn| turn.revision == revision)
    }

    /// The turn that this deploy's release command waits for; `None` if it waits for none.
    pub fn awaited_turn(&self, revision: Revision) -> Option<&ReleaseTurn> {
        self.release_turn(revision).filter(|turn| !turn.has_come)
    }

    /// Returns the app's turns in a group that count at this time.
    pub fn turns_in<'a>(&'a self, group: &'a ReleaseGroup, now: Timestamp) -> impl Iterator<Item = OtherTurn> + 'a {
        let counts = move |turn: &&ReleaseTurn| {
            let is_over = turn.ended_at.is_some_and(|ended| now.since(ended) >= ABANDONED_MAX);
            turn.group == *group && !is_over
        };
        self.release_turns.iter().filter(counts).map(|turn| OtherTurn {
            uid: self.app.uid,
            number: turn.number,
            command: ReleaseAhead { app: self.app.id.name.clone(), revision: turn.revision },
        })
    }
}

impl Change {
    /// Notes what a deploy's next state says of its turn: it enters its group, or leaves it. The run was noted before.
    pub(super) fn note_turn(&mut self, deploy: &Deploy) {
        let (revision, state) = (deploy.revision, &mut self.state);
        let is_known = state.unfinished(revision).is_some_and(|known| known.status() == Status::Releasing);
        if deploy.status() == Status::Releasing && !is_known {
            let group = state.app.policy.release_group.clone();
            state.release_turns.extend(group.map(|group| ReleaseTurn {
                revision,
                group,
                number: None,
                has_come: false,
                waits_for: None,
                ended_at: None,
            }));
        }
        if deploy.is_terminal() {
            let is_unknown = deploy.state.has_failed_for(Reason::RELEASE_UNKNOWN);
            state.release_turns.retain(|turn| turn.revision != revision || !is_unknown);
            let turn = state.release_turns.iter_mut().find(|turn| turn.revision == revision);
            turn.into_iter().for_each(|turn| turn.ended_at = Some(deploy.updated_at));
        }
        self.drop_turns();
    }

    /// Drops the turns of runs that are over.
    pub(super) fn drop_turns(&mut self) {
        let AppState { release_runs, release_turns, .. } = &mut self.state;
        release_turns.retain(|turn| release_runs.contains(&turn.revision));
    }

    /// Puts a turn in its next state. Returns whether it may come to it: it goes on, and another replica has not taken
    /// another number.
    pub(super) fn may_put_turn(&self, next: &ReleaseTurn) -> bool {
        let stored = self.state.release_turn(next.revision);
        stored.is_some_and(|stored| {
            stored.group == next.group
                && stored.ended_at == next.ended_at
                && !stored.has_come
                && stored.number.is_none_or(|number| next.number == Some(number))
        })
    }

    /// Puts a turn in its next state.
    pub(super) fn put_turn(&mut self, next: ReleaseTurn) {
        let stored = self.state.release_turns.iter_mut().find(|turn| turn.revision == next.revision);
        stored.into_iter().for_each(|stored| stored.clone_from(&next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(uid: u128, number: Option<u64>) -> OtherTurn {
        let command = ReleaseAhead { app: format!("app-{uid}").parse().unwrap(), revision: Revision::FIRST };
        OtherTurn { uid: AppUid::from_bits(uid), number, command }
    }

    fn turn(number: Option<u64>) -> ReleaseTurn {
        ReleaseTurn {
            revision: Revision::FIRST,
            group: "orders".parse().unwrap(),
            number,
            has_come: false,
            waits_for: None,
            ended_at: None,
        }
    }

    #[test]
    fn number_is_above_all_others() {
        assert_eq!(turn(None).numbered(&[]).number, Some(1));
        assert_eq!(turn(None).numbered(&[other(2, None), other(3, Some(7)), other(4, Some(2))]).number, Some(8));
    }

    #[test]
    fn lowest_number_is_first_and_one_without_a_number_is_waited_for() {
        let own = AppUid::from_bits(5);
        let ahead =
            |number, others: &[OtherTurn]| turn(Some(number)).ahead(own, others).map(|command| command.app.to_string());
        assert_eq!(ahead(3, &[]), None);
        assert_eq!(ahead(3, &[other(9, Some(4))]), None);
        assert_eq!(ahead(3, &[other(9, Some(2)), other(8, Some(1))]).as_deref(), Some("app-8"));
        assert_eq!(ahead(3, &[other(9, None)]).as_deref(), Some("app-9"));
        // Of equal numbers one is first, and both know which.
        assert_eq!(ahead(3, &[other(4, Some(3))]).as_deref(), Some("app-4"));
        assert_eq!(ahead(3, &[other(6, Some(3))]), None);
    }
}
