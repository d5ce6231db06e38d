//! Commits that CI posts: one ends as older than another only if that one was made from it.

use rollhook_core::{
    app::Source,
    deploy::{Commit, Deploy, Newer, Revision, Trigger},
};

use super::{Known, Rules};
use crate::journal::Journal;

impl Rules {
    /// An entry that has ended as older than an earlier one.
    pub(super) fn older(
        &self,
        known: &Known,
        before: &[Deploy],
        old: &Deploy,
        (by, newer): (Revision, &Newer),
        journal: &Journal,
    ) {
        let revision = old.revision;
        journal.count("order: a commit came too late");
        let newer = match newer {
            Newer::Commit(commit) => Some(commit),
            Newer::Sequence(_) => None,
        };
        let named = before.iter().find(|entry| entry.revision == by && by < revision);
        let is_named = named.is_some_and(|named| {
            let is_same = named.commit.as_ref().zip(newer).is_some_and(|(one, other)| one.may_be(other));
            is_same && matches!(named.trigger, Trigger::Webhook | Trigger::Git)
        });
        journal.expect(is_named, || format!("revision {revision} is older than {by}, which brought no {newer:?}"));
        journal.expect(!old.touched && old.image.is_none() && old.trigger == Trigger::Webhook, || {
            format!("revision {revision} is older than {by}, and had begun, or is no call of CI")
        });
        let Source::Git(source) = &known.view.app.source else { return };
        let is_older = old
            .commit
            .as_ref()
            .zip(newer)
            .is_some_and(|(commit, newer)| self.moves.values().any(|moves| is_made_from(moves, newer, commit)));
        journal.expect(is_older, || {
            format!("revision {revision} is older than {by}, and {newer:?} of {} was not made from it", source.branch)
        });
    }
}

/// Whether a commit was made from another one: a commit was made from what its branch was at when it came.
fn is_made_from(moves: &[Option<Commit>], newer: &Commit, older: &Commit) -> bool {
    let mut commit = newer;
    while let Some(at) = moves.iter().position(|moved| moved.as_ref() == Some(commit)) {
        let Some(Some(parent)) = at.checked_sub(1).map(|before| &moves[before]) else { return false };
        if parent.may_be(older) {
            return true;
        }
        commit = parent;
    }
    false
}
