//! Entries that are new: once each, of what was asked for, and only where it may be.

use rollhook_core::{
    app::{Hold, HoldPolicy, Source},
    delivery::GitHost,
    deploy::{Deploy, Origin, Revision, State, Status, Trigger},
    ledger::AppState,
};

use super::{Known, Rules, changed::in_time, model};
use crate::journal::Journal;

impl Rules {
    pub(super) fn admitted(
        &mut self,
        known: &Known,
        before: &[Deploy],
        history: &[Deploy],
        view: &AppState,
        new: &Deploy,
        journal: &Journal,
    ) {
        let revision = new.revision;
        journal.log("store", || {
            let tag = new.image.as_ref().and_then(|image| image.tag()).unwrap_or_default().to_owned();
            format!("{} {revision}: accepted, {} of {tag} by {}", view.app.id, new.trigger, new.actor)
        });
        in_time(known.latest, new.created_at, journal);
        if new.is_entered_anew() {
            self.entered_anew(before, history, new, journal);
            return;
        }
        journal.count(format!("effect: accepted, {}", new.trigger));
        // The entry's time is no earlier than the store's, by which a lock ends.
        // The lock may have been ended in the same write, before it.
        let is_in_force = |view: &AppState| view.app.locks.in_force(new.created_at).next().is_some();
        let is_locked = is_in_force(&known.view) && is_in_force(view);
        journal.expect(!is_locked || new.trigger == Trigger::Rollback, || {
            format!("revision {revision} was accepted in spite of a lock")
        });
        journal.count_if(is_locked, "lock: a rollback went on");
        known.scaled(before, new, journal);
        let may_configure = new.trigger == Trigger::Config || (new.trigger == Trigger::Rollback && !new.is_restore());
        journal.expect(!new.configures || may_configure, || {
            format!("revision {revision} brings a configuration, and nobody asked for it")
        });
        journal.count_if(new.configures && new.trigger == Trigger::Rollback, "config: a rollback brought one back");
        let mine = |entry: &&Deploy| entry.actor == new.actor && entry.commit == new.commit;
        let built = view.app.source != Source::Image && new.from.is_none() && revision != Revision::FIRST;
        journal.expect(!built || (new.image.is_none() && new.commit.is_some()), || {
            format!("revision {revision} brings an image to an app that is built")
        });
        let once = new.actor.is_service() || before.iter().filter(mine).count() == 0;
        journal.expect(once, || format!("revision {revision}: one call made two entries"));
        match new.trigger {
            Trigger::Rollback if new.actor.is_service() => self.restore(known, before, view, new, journal),
            Trigger::Rollback => self.rollback(known, before, history, new, journal),
            Trigger::Webhook if GitHost::named("GitHub").made(new) => self.told_of(known, before, new, journal),
            Trigger::Webhook => {
                let held = known.view.app.holds.iter().any(|hold| hold.covers(new.image.as_ref(), new.commit.as_ref()));
                let refused = held && known.view.app.policy.hold == HoldPolicy::All;
                journal.expect(!refused, || format!("revision {revision} brings back what is held"));
            }
            Trigger::Promotion => self.promotion(new, journal),
            Trigger::Git => self.found(known, before, new, journal),
            Trigger::Registry => self.followed(known, before, new, journal),
            Trigger::Manual | Trigger::Config if new.is_redeploy() => self.redeploy(before, history, new, journal),
            Trigger::Manual | Trigger::Config => {}
        }
    }

    /// A webhook's deploy with a lower sequence than an earlier one had ends as it is accepted, and no other one does. Enabling the
    /// webhook anew has them counted anew.
    pub(super) fn in_order(
        &mut self,
        known: &Known,
        before: &[Deploy],
        history: &[Deploy],
        view: &AppState,
        journal: &Journal,
    ) {
        let mut highest = known.view.highest_sequence.map(|highest| highest.sequence);
        for new in history.iter().skip(before.len()).filter(|new| !new.is_entered_anew()) {
            let revision = new.revision;
            let is_late = matches!(new.state, State::Superseded { by, .. } if by < revision);
            let Some(sequence) = new.sequence.filter(|_| new.trigger == Trigger::Webhook) else {
                journal.expect(!is_late && new.sequence.is_none(), || format!("revision {revision} is in no sequence"));
                continue;
            };
            if is_late {
                journal.count("sequence: a deploy came too late");
                let is_lower = highest.is_some_and(|highest| sequence < highest);
                journal.expect(is_lower && !new.touched, || {
                    format!("revision {revision} came too late with {sequence}, and the highest was {highest:?}")
                });
                continue;
            }
            self.forgotten += usize::from(highest.is_some_and(|highest| sequence < highest));
            journal.count_if(highest == Some(sequence), "sequence: one came twice");
            highest = Some(sequence);
        }
        let stored = view.highest_sequence.map(|highest| highest.sequence);
        self.forgotten += usize::from(stored.is_none() && highest.is_some());
        journal.count_if(stored.is_none() && highest.is_some(), "sequence: forgotten");
        journal.expect(stored.is_none() || stored == highest, || {
            format!("the highest sequence is {stored:?}, and {highest:?} was accepted")
        });
        journal
            .expect(self.forgotten <= self.enables, || "a lower sequence was deployed after a higher one".to_owned());
    }

    /// Rule 12: a build that went on below a restore, or below another that was built before it, is entered behind it.
    fn entered_anew(&self, before: &[Deploy], history: &[Deploy], new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        let first = before.iter().find(|entry| entry.revision == new.built_as());
        journal.count("rule 12: a build was entered anew behind a restore");
        let waited = first.is_some_and(|first| first.status() == Status::Building && first.image.is_none());
        journal.expect(waited, || format!("revision {revision} is entered anew, of one that waited for no build"));
        // One that was accepted with the same commit was ahead as well.
        let joined = history.iter().skip(before.len()).filter(|entry| entry.revision < new.revision);
        let behind = before.iter().chain(joined).any(|entry| {
            let ahead = entry.touched || (!entry.is_terminal() && entry.image.is_some());
            entry.revision > new.built_as()
                && ahead
                && (entry.is_restore() || entry.is_redeploy() || entry.is_entered_anew())
        });
        journal.expect(behind, || format!("revision {revision} is entered anew, and nothing had overtaken it"));
    }

    /// Rule 12: owed, of what is current, and only once.
    fn restore(&mut self, known: &Known, before: &[Deploy], view: &AppState, new: &Deploy, journal: &Journal) {
        journal.count("rule 12: a restore was made");
        if self.restored_by_watch(known, before, view, new, journal) {
            return;
        }
        // The policy may have been changed in the same write, before it or after it.
        let revoked: Vec<Revision> = view.revocations().collect();
        let by_policy = |policy| model::owed(before, policy, &revoked);
        let owed = by_policy(&known.view.app.policy).or_else(|| by_policy(&view.app.policy));
        let right = owed.is_some_and(|owed| owed.effective == new.effective && owed.pinned_image() == new.image);
        journal.expect(right, || {
            format!("revision {} restores {}; owed was {:?}", new.revision, new.effective, owed.map(|it| it.revision))
        });
    }

    /// Rules 10 and 13: the right version, as its bits were, and everything unfinished ends in the same write.
    fn rollback(&self, known: &Known, before: &[Deploy], history: &[Deploy], new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        let Some(wish) = self.wishes.get(&new.actor.to_string()) else {
            journal.expect(false, || format!("revision {revision} is a rollback that nobody asked for"));
            return;
        };
        let found = (new.effective.get(), new.image.clone());
        let right = match wish.revision {
            Some(wished) => before.iter().filter(|entry| entry.revision == wished).any(|entry| {
                // What was decided on may have settled since.
                let as_it_was = !wish.pinned && entry.image == new.image;
                entry.effective == new.effective && (as_it_was || entry.pinned_image() == new.image)
            }),
            None => known.meant.contains(&found),
        };
        journal.count(if wish.revision.is_some() { "rule 10: to a revision" } else { model::situation(before) });
        let from_redeploy =
            model::on_cluster(before).is_some_and(|top| top.is_redeploy() && top.status() == Status::Succeeded);
        journal.count_if(from_redeploy && wish.revision.is_none(), "rule 10: from what was deployed once more");
        let pinned = new.image.as_ref().is_some_and(|image| image.digest().is_some());
        journal.count_if(pinned, "rule 13: a rollback names the bits");
        journal.expect(right, || {
            format!("revision {revision} rolls back to {}; meant was one of {:?}", new.effective, known.meant)
        });
        let expected = wish.if_current.is_none_or(|expected| known.currents.contains(&Some(expected)));
        journal.expect(expected, || format!("revision {revision}: {:?} was not current", wish.if_current));
        for entry in before.iter().filter(|entry| !entry.is_terminal()) {
            // Another change of the same write may have ended it first: by itself, or for one below the rollback.
            let written = |revision: Revision| history.get(revision.get() as usize - 1);
            let successors = std::iter::successors(written(entry.revision), |ended| {
                let State::Superseded { by, .. } = ended.state else { return None };
                (ended.revision < by && by < revision).then(|| written(by)).flatten()
            });
            let ended = successors.last().is_some_and(|last| {
                let is_another = matches!(last.state, State::Superseded { by, .. } if by != revision);
                last.is_terminal() && !is_another
            });
            journal.expect(ended, || format!("revision {} went on beside rollback {revision}", entry.revision));
        }
    }

    /// Rules 10 and 13: the version that was current and on the cluster, as its bits are, beside nothing that is ready.
    fn redeploy(&self, before: &[Deploy], history: &[Deploy], new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        journal.count("rule 10: what runs was deployed once more");
        // Another change of the same write may have come first.
        let lower = &history[..revision.get() as usize - 1];
        let first = model::failed_first(lower).filter(|_| new.trigger == Trigger::Config);
        journal.count_if(first.is_some(), "config: a first version that failed was deployed once more");
        let Some(current) = model::current(lower).or(first) else {
            journal.expect(false, || format!("revision {revision} repeats a version, and none has succeeded"));
            return;
        };
        // One with another configuration is a version of its own.
        let effective = if new.trigger == Trigger::Config { revision } else { current.effective };
        let right = (new.image.clone(), &new.commit, new.effective, &new.from)
            == (current.pinned_image(), &current.commit, effective, &Some(Origin::Same(current.revision)));
        journal.expect(right, || format!("revision {revision} is not the current revision {}", current.revision));
        let top = model::on_cluster(lower).map(|top| top.effective);
        journal.expect(top == Some(current.effective), || {
            format!("revision {revision} repeats {}, and version {top:?} is on the cluster", new.effective)
        });
        let is_ready = |entry: &&Deploy| entry.is_ready();
        let ready = lower.iter().find(is_ready).map(|entry| entry.revision);
        journal.expect(ready.is_none(), || {
            format!("revision {revision} repeats a version, and {ready:?} is to replace it")
        });
        let building = before.iter().any(|entry| entry.is_to_be_built());
        journal.count_if(building, "rule 10: what runs was deployed once more beside a build");
        let wish = self.wishes.get(&new.actor.to_string());
        let is_current = |expected: Revision| first.is_none() && expected == current.revision;
        let expected = wish.is_some_and(|wish| wish.if_current.is_none_or(is_current));
        journal.expect(expected, || format!("revision {revision} is a redeploy that nobody asked for as it is"));
    }

    /// Rules 5 and 13: what the other environment runs, as its bits are.
    fn promotion(&self, new: &Deploy, journal: &Journal) {
        let Some(Origin::Promoted { app, revision }) = &new.from else {
            journal.expect(false, || format!("revision {} is promoted from nowhere", new.revision));
            return;
        };
        let Some(source) = self.known.values().find(|known| known.view.app.id == *app) else { return };
        let Some(entry) = source.history.iter().find(|entry| entry.revision == *revision) else { return };
        let right = entry.status() == Status::Succeeded && entry.pinned_image() == new.image;
        journal.expect(right || source.view.app.created_at > new.created_at, || {
            format!("revision {} is not what {app} runs", new.revision)
        });
    }

    /// Rule 11: a person's rollback holds what it goes away from; only people, and what they deploy, lift it.
    pub(super) fn holds(
        &self,
        known: &Known,
        before: &[Deploy],
        history: &[Deploy],
        view: &AppState,
        journal: &Journal,
    ) {
        let (old, new) = (&known.view.app.holds, &view.app.holds);
        let admitted = history.get(before.len()..).unwrap_or_default();
        let added = new.iter().filter(|hold| !old.contains(hold));
        for hold in added {
            journal.count("rule 11: a hold was set");
            let by = admitted.iter().find(|entry| entry.revision == hold.by);
            let person = by.is_some_and(|by| by.trigger == Trigger::Rollback && !by.actor.is_service());
            journal.expect(person, || format!("a hold by revision {}, which is no person's rollback", hold.by));
        }
        for entry in admitted.iter().filter(|entry| entry.trigger == Trigger::Rollback && !entry.actor.is_service()) {
            // A rollback is decided on what it has read; what touches the cluster before it is accepted is not held.
            let tag = |entry: &Deploy| entry.image.as_ref().and_then(|image| image.tag().map(str::to_owned));
            let same = known.tops.iter().any(|top| tag(top) == tag(entry));
            let held = |hold: &Hold| hold.by == entry.revision && known.tops.iter().any(|top| top.image == hold.image);
            // All holds may be released in the same write.
            let is_released = self.releasing && new.is_empty();
            journal.expect(same || known.tops.is_empty() || is_released || new.iter().any(held), || {
                format!("rollback {} does not hold what was on the cluster", entry.revision)
            });
        }
        let succeeded = |entry: &Deploy| {
            let now = history.get(entry.revision.get() as usize - 1);
            now.is_some_and(|now| now.status() == Status::Succeeded) && entry.status() != Status::Succeeded
        };
        for hold in old.iter().filter(|hold| !new.contains(hold)) {
            let lifts = before.iter().any(|entry| {
                let built = view.app.source != Source::Image && hold.covers(None, entry.commit.as_ref());
                let covered = hold.covers(entry.image.as_ref(), None) || built;
                covered
                    && !matches!(entry.trigger, Trigger::Webhook | Trigger::Git | Trigger::Registry)
                    && succeeded(entry)
            });
            journal.count(if lifts { "rule 11: a success lifted a hold" } else { "rule 11: a hold was released" });
            let by_hand = self.releasing && new.iter().all(|hold| !old.contains(hold));
            journal.expect(lifts || by_hand, || format!("the hold of rollback {} was lost", hold.by));
        }
    }
}
