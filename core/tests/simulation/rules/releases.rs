//! Release commands: each runs once, recorded before it begins, with the new image, alone, and never to go back.

use rollhook_core::deploy::{ReleaseMark, Status, Trigger};
use rollhook_memory::ReleaseBegun;

use super::Rules;
use crate::journal::Journal;

impl Rules {
    /// Judges a release command that has begun. `begun` are all of the run; `running`: how many of the app run now.
    pub(crate) fn release_begins(&self, begun: &[ReleaseBegun], running: usize, journal: &Journal) {
        let Some(new) = begun.last() else { return };
        let Some(revision) = new.revision() else { return };
        journal.count("effect: a release command began");
        let times = begun.iter().filter(|other| other.run == new.run).count();
        journal.expect(times == 1, || format!("the release command of revision {revision} began {times} times"));
        journal.expect(running <= 1, || format!("{running} release commands run beside revision {revision}'s"));
        let Some(known) = self.known.get(&new.run.app) else {
            journal.count("rule 16: a release command began as its app was deleted");
            return;
        };
        let Some(entry) = known.history.iter().find(|entry| entry.revision == revision) else {
            journal.expect(false, || format!("revision {revision} runs a release command, and is not stored"));
            return;
        };
        journal.expect(entry.release == Some(ReleaseMark::MayHaveRun), || {
            format!("the release command of revision {revision} began, and that is not recorded: {:?}", entry.release)
        });
        let is_its_turn = entry.status() == Status::Releasing || entry.is_terminal();
        journal.expect(is_its_turn, || format!("revision {revision} runs its command while it is {}", entry.status()));
        journal.count_if(entry.is_terminal(), "rule 18: a start arrived after its deploy had ended");
        journal.expect(entry.image.as_ref() == Some(&new.image), || format!("revision {revision} ran {}", new.image));
        let repeats = entry.is_redeploy() && entry.trigger != Trigger::Config;
        let goes_back = entry.trigger == Trigger::Rollback || repeats || entry.adopted;
        journal.expect(!goes_back, || format!("revision {revision} goes back, and ran a release command"));
    }
}
