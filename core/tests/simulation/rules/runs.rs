//! Commands by hand: each begins at most once, recorded before, with the image of its run; and each run ends, once.

use std::collections::BTreeSet;

use rollhook_core::{
    ledger::Runs,
    ports::RunKind,
    run::{Run, RunStatus},
};
use rollhook_memory::ReleaseBegun;

use super::Rules;
use crate::journal::Journal;

impl Rules {
    /// Judges a command by hand that has begun. `begun` are all of them.
    pub(crate) fn command_begins(&self, begun: &[ReleaseBegun], journal: &Journal) {
        let Some(new) = begun.last() else { return };
        let RunKind::ByHand(number) = new.run.kind else { return };
        journal.count("effect: a command by hand began");
        let times = begun.iter().filter(|other| other.run == new.run).count();
        journal.expect(times == 1, || format!("the command of run {number} began {times} times"));
        let Some(known) = self.known.get(&new.run.app) else {
            journal.count("rule 16: a command by hand began as its app was deleted");
            return;
        };
        let Some(run) = known.view.runs.find(number) else {
            journal.expect(false, || format!("run {number} has begun, and is not stored"));
            return;
        };
        journal
            .expect(run.may_have_begun(), || format!("run {number} began, and that is not recorded: {:?}", run.state));
        journal.count_if(run.is_ended(), "run: a start arrived after the run had ended");
        journal.expect(run.image == new.image, || format!("run {number} ran {}", new.image));
        let is_beside = !known.view.unfinished.is_empty();
        journal.count_if(is_beside, "run: a command began beside a deploy");
    }
}

/// Judges the runs of an app as they are stored, by what they were before.
pub(super) fn changed(before: &Runs, after: &Runs, journal: &Journal) {
    if before == after {
        return;
    }
    journal.expect(before.latest <= after.latest, || "a number of a run was given again".to_owned());
    let actors: BTreeSet<_> = after.newest_first().map(|run| run.actor.to_string()).collect();
    journal.expect(actors.len() == after.newest_first().count(), || "one call made two runs".to_owned());
    for run in after.newest_first() {
        let old = before.find(run.number);
        journal.count_if(old.is_none(), "effect: accepted, a run by hand");
        let Some(old) = old.filter(|old| *old != run) else { continue };
        journal.expect(!old.is_ended(), || format!("run {} had ended, and was changed", run.number));
        // The driver and a caller may change it in one write.
        journal.expect(run.step > old.step, || format!("run {} was changed without a step", run.number));
        // Of a run that has ended, the runner may know for certain that it never began.
        journal.expect(run.is_ended() || run.may_have_begun() || !old.may_have_begun(), || {
            format!("run {} is made ready again", run.number)
        });
        ended(run, journal);
    }
}

fn ended(run: &Run, journal: &Journal) {
    journal.count(match run.status() {
        RunStatus::Preparing => "run: changed before it began",
        RunStatus::Running => "run: may have begun",
        RunStatus::Succeeded => "run: succeeded",
        RunStatus::Failed => "run: failed",
        RunStatus::Cancelled => "run: cancelled",
        RunStatus::Unknown => "run: unknown",
    });
    if let Some(end) = run.state.failure() {
        journal.expect(!end.message.is_empty(), || format!("run {} ended without a word", run.number));
    }
}
