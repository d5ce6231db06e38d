//! Release commands: each runs once, recorded before it begins, with the new image, alone, and never to go back.

use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, Reason, ReleaseMark, Status, Trigger},
    ledger::ReleaseTurn,
};
use rollhook_memory::ReleaseBegun;

use super::Rules;
use crate::journal::Journal;

impl Rules {
    /// Judges a release command that has begun. `begun` are all of the run; `running`: how many of an app run now.
    pub(crate) fn release_begins(
        &self,
        begun: &[ReleaseBegun],
        running_of: impl Fn(AppUid) -> usize,
        journal: &Journal,
    ) {
        let Some(new) = begun.last() else { return };
        let Some(revision) = new.revision() else { return };
        journal.count("effect: a release command began");
        let running = running_of(new.run.app);
        let times = begun.iter().filter(|other| other.run == new.run).count();
        journal.expect(times == 1, || format!("the release command of revision {revision} began {times} times"));
        journal.expect(running <= 1, || format!("{running} release commands run beside revision {revision}'s"));
        let Some(known) = self.known.get(&new.run.app) else {
            journal.count("rule 16: a release command began as its app was deleted");
            return;
        };
        for (uid, other) in self.known.iter().filter(|(uid, _)| **uid != new.run.app) {
            let is_in_group = other.view.app.id.namespace == known.view.app.id.namespace;
            // One that nothing is known of holds up no other.
            let is_unknown = |entry: &Deploy| entry.state.has_failed_for(Reason::RELEASE_UNKNOWN);
            if is_in_group && !other.history.iter().any(is_unknown) {
                journal.expect(running_of(*uid) == 0, || {
                    format!("revision {revision} runs its command beside one of {}", other.view.app.id)
                });
                journal.count_if(
                    !other.view.release_turns.is_empty(),
                    "rule 18: a release command began as another app waited for its turn",
                );
            }
        }
        let turn = known.view.release_turn(revision);
        journal.expect(turn.is_none_or(|turn| turn.has_come), || format!("revision {revision} begins before its turn"));
        let Some(entry) = known.history.iter().find(|entry| entry.revision == revision) else {
            journal.expect(false, || format!("revision {revision} runs a release command, and is not stored"));
            return;
        };
        let repeats = entry.is_redeploy() && entry.trigger != Trigger::Config;
        let goes_back = entry.trigger == Trigger::Rollback || repeats || entry.adopted;
        journal.expect(!goes_back, || format!("revision {revision} goes back, and ran a release command"));
        journal.expect(entry.release == Some(ReleaseMark::MayHaveRun), || {
            format!("the release command of revision {revision} began, and that is not recorded: {:?}", entry.release)
        });
        let is_its_turn = entry.status() == Status::Releasing || entry.is_terminal();
        journal.expect(is_its_turn, || format!("revision {revision} runs its command while it is {}", entry.status()));
        journal.count_if(entry.is_terminal(), "rule 18: a start arrived after its deploy had ended");
        let wanted = if entry.is_resolved() { entry.pinned_image() } else { entry.image.clone() };
        journal.expect(wanted.as_ref() == Some(&new.image), || format!("revision {revision} ran {}", new.image));
    }
}

/// Judges the turns of an app's release commands by what they were before.
pub(super) fn turned(before: &[ReleaseTurn], after: &[ReleaseTurn], journal: &Journal) {
    for new in after {
        let Some(old) = before.iter().find(|old| old.revision == new.revision) else { continue };
        let keeps = old.number.is_none() || old.number == new.number;
        journal.expect(keeps, || format!("revision {} has taken a second number", new.revision));
        journal
            .expect(!old.has_come || new.has_come, || format!("the turn of revision {} was taken back", new.revision));
        let had_waited = new.has_come && !old.has_come && old.waits_for.is_some();
        journal.count_if(had_waited, "rule 18: a release command had waited for that of another app");
    }
}
