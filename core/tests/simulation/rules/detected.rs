//! Changes that the service found itself: only what is new, was a branch's head, and is not held; and by one replica.

use rollhook_core::{
    app::Source,
    delivery::GitHost,
    deploy::{Commit, Deploy, Trigger},
    source::GitSource,
};

use super::{Known, Rules};
use crate::{journal::Journal, recording_ports::Life};

impl Rules {
    /// Where a branch has been, in order.
    pub(crate) fn moves(&mut self, branch: &str) -> &mut Vec<Option<Commit>> {
        self.moves.entry(branch.to_owned()).or_default()
    }

    /// Where a branch was before it moved last, told once: what lags behind catches up.
    pub(crate) fn lagging(&mut self, branch: &str) -> Option<Option<Commit>> {
        let moves = self.moves.get(branch)?;
        let before = moves.get(moves.len().checked_sub(2)?)?.clone();
        let told = self.lagged.insert(branch.to_owned(), moves.len());
        (told != Some(moves.len())).then_some(before)
    }

    /// An entry that the service made of what it found.
    pub(super) fn found(&self, known: &Known, before: &[Deploy], new: &Deploy, journal: &Journal) {
        let (app, revision) = (&known.view.app, new.revision);
        journal
            .expect(known.view.is_polled(), || format!("revision {revision} was found, and {} is not polled", app.id));
        let (Source::Git(source), Some(commit)) = (&app.source, &new.commit) else {
            journal.expect(false, || format!("revision {revision} was found, and is of no commit"));
            return;
        };
        let held = app.holds.iter().any(|hold| hold.covers(None, Some(commit)));
        journal.expect(!held, || format!("revision {revision} was found, and is held"));
        let moves = self.moves.get(source.branch.as_str()).map_or(&[][..], Vec::as_slice);
        let times = moves.iter().flatten().filter(|head| *head == commit).count();
        journal.expect(times > 0, || {
            format!("revision {revision} was found, and branch {} never was there", source.branch)
        });
        let brought = before.iter().any(|entry| is_of(entry, commit));
        journal.count_if(brought, "polling: a branch that was taken back was followed");
        // The source may have been at another branch meanwhile: what was found there last never was on this one.
        let found = before.iter().rev().find(|entry| entry.trigger == Trigger::Git && !entry.is_entered_anew());
        let last = found.and_then(|entry| entry.commit.as_ref());
        // A server that lagged behind may have shown it after what came later.
        let has_lagged = self.lagged.contains_key(source.branch.as_str());
        let returns = has_lagged || last.is_some_and(|last| moves.iter().flatten().all(|head| head != last));
        journal.expect(!brought || times > 1 || returns, || {
            format!("revision {revision} was found, and its commit had been brought before")
        });
    }

    /// An entry that a git host's call made.
    pub(super) fn told_of(&self, known: &Known, before: &[Deploy], new: &Deploy, journal: &Journal) {
        let (app, revision) = (&known.view.app, new.revision);
        journal.count("effect: accepted, git host");
        let Some(commit) = &new.commit else {
            journal.expect(false, || format!("revision {revision} was told of, and is of no commit"));
            return;
        };
        let held = app.holds.iter().any(|hold| hold.covers(None, Some(commit)));
        journal.expect(!held, || format!("revision {revision} was told of, and is held"));
        let pushed = |entry: &&Deploy| GitHost::named("GitHub").made(entry) && !entry.is_entered_anew();
        let newest = before.iter().rev().find(pushed);
        let again = newest.is_some_and(|entry| is_of(entry, commit));
        journal.expect(!again, || format!("revision {revision} was told of before"));
    }

    /// A life looks at a source.
    pub(crate) fn looks(&self, life: &Life, source: &GitSource, now: std::time::Duration, journal: &Journal) {
        journal.count("polling: a source was looked at");
        let of_it = |known: &&Known| matches!(&known.view.app.source, Source::Git(other) if other == source);
        let mut apps = self.known.values().filter(of_it).filter(|known| known.view.is_polled()).peekable();
        let may = apps.peek().is_none() || apps.any(|known| self.owners.may_look(life, known.view.app.uid, now));
        journal.expect(may, || format!("{} looks at a source whose apps are others'", life.name));
    }

    /// The apps that have not heard where their branch is.
    pub(crate) fn unheard(&self) -> Vec<String> {
        let unheard = |known: &&Known| {
            let app = &known.view.app;
            let Source::Git(source) = &app.source else { return false };
            let moves = self.moves.get(source.branch.as_str()).map_or(&[][..], Vec::as_slice);
            let Some(Some(head)) = moves.last() else { return false };
            let held = app.holds.iter().any(|hold| hold.covers(None, Some(head)));
            let is_locked = app.locks.app.as_ref().is_some_and(|lock| lock.until.is_none());
            known.view.is_polled() && !held && !is_locked && !known.history.iter().any(|entry| is_of(entry, head))
        };
        self.known
            .values()
            .filter(unheard)
            .map(|known| format!("{} has not heard of its head", known.view.app.id))
            .collect()
    }
}

fn is_of(entry: &Deploy, commit: &Commit) -> bool {
    entry.commit.as_ref().is_some_and(|other| other.may_be(commit))
}
