//! Apps whose images must be signed: no other image begins, and none fails that is.

use rollhook_core::{
    deploy::{Deploy, Reason, Scale, Status, Trigger},
    image::{Digest, ImageRef},
    ledger::AppState,
    requirement::Requirement,
};

use super::Rules;
use crate::{journal::Journal, signatures::is_signed};

impl Rules {
    /// Has both signers sign whatever they have not signed.
    pub(crate) fn all_are_signed(&mut self) {
        self.signed_later = true;
    }

    /// Nobody may read the signatures of an image.
    pub(crate) fn signatures_are_denied(&mut self, image: &ImageRef) {
        self.signatures_denied.extend(image.digest().cloned());
    }

    /// Whether an image is signed now.
    pub(crate) fn is_signed_by_now(&self, digest: &Digest, requirement: &Requirement) -> bool {
        self.signed_later || is_signed(digest, requirement)
    }

    /// Whether an entry's image has all that an app requires.
    fn meets(&self, view: &AppState, entry: &Deploy) -> bool {
        let digest = digest_of(entry);
        required(view).iter().all(|one| digest.is_some_and(|digest| self.is_signed_by_now(digest, one)))
    }

    /// Judges an entry that has changed, of an app that was and is now. A requirement may have come in the same write, behind it.
    pub(super) fn signed(
        &self,
        (was, is): (&AppState, &AppState),
        before: &[Deploy],
        old: &Deploy,
        new: &Deploy,
        journal: &Journal,
    ) {
        let revision = new.revision;
        let has_waited = matches!(old.status(), Status::Queued | Status::Building);
        if new.state.has_failed_for(Reason::IMAGE_NOT_SIGNED) {
            journal.expect(has_waited && !new.touched, || {
                format!("revision {revision} had begun, and ends as it is not signed")
            });
            let asked: Vec<_> = [was, is].into_iter().flat_map(required).collect();
            self.ends_unsigned(&asked, old, journal);
            let is_return = before.iter().any(|entry| entry.effective == new.effective && entry.revision < revision);
            journal.count_if(is_return, "signed: a return was refused");
        }
        if required(is).is_empty() || new.image.is_none() {
            return;
        }
        let was_found = !new.signed_by().is_empty();
        let is_signed = (was_found || required(was).is_empty()) && (self.meets(is, new) || self.meets(was, new));
        if old.is_to_be_resolved() && !new.is_to_be_resolved() && !new.is_terminal() {
            journal.count_if(was_found, "signed: an image was found to be signed");
            journal.expect(is_signed, || format!("revision {revision} was found to be signed, and is not"));
        }
        if has_waited && matches!(new.status(), Status::Releasing | Status::RollingOut) {
            journal.count_if(is_return(new) && !self.meets(is, new), "signed: a return was not asked for signatures");
            journal.expect(is_return(new) || new.adopted || is_signed, || {
                format!("revision {revision} begins, and is not signed")
            });
        }
    }

    /// Judges an entry that ends for want of what was asked of its image. One that was built or resolved before that was required is
    /// not looked at again, and one that is built here carries no signature. Signatures may have come meanwhile.
    fn ends_unsigned(&self, asked: &[&Requirement], old: &Deploy, journal: &Journal) {
        let revision = old.revision;
        journal.expect(!asked.is_empty(), || format!("revision {revision} is not signed, and need not be"));
        let was_found = !old.signed_by().is_empty();
        let has_all = was_found && asked.iter().all(|one| old.signed_by().contains(&one.summary()));
        journal.expect(!has_all, || format!("revision {revision} was found to be signed, and ends as if it was not"));
        journal.count_if(!old.is_to_be_resolved(), "signed: a deploy of before the requirement was ended");
        let Some(image) = old.image.as_ref().filter(|_| old.is_to_be_resolved()) else { return };
        let named = self.named.get(&image.to_string()).into_iter().flatten();
        let lacks = |digest| self.signatures_denied.contains(digest) || asked.iter().any(|one| !is_signed(digest, one));
        // Where no registry has named any image, none is asked.
        let may = self.named.is_empty() || named.chain(image.digest()).any(lacks);
        journal.expect(may, || format!("revision {revision} is signed, and ends as if it was not"));
    }

    /// Judges an entry that is new: one that returns to a version needs no signature only if that one has succeeded, or has it.
    pub(super) fn needs_signature(
        &self,
        (was, is): (&AppState, &AppState),
        before: &[Deploy],
        new: &Deploy,
        journal: &Journal,
    ) {
        let digest = digest_of(new);
        let runs = new.scale != Scale::Stop || digest.is_some();
        let runs_anew = !new.adopted && !new.is_restore() && runs && !new.is_terminal();
        if required(is).is_empty() || !is_return(new) || !runs_anew || new.is_to_be_resolved() {
            return;
        }
        let has_run = before
            .iter()
            .any(|entry| entry.status() == Status::Succeeded && digest.is_some() && digest_of(entry) == digest);
        journal.expect(has_run || self.meets(is, new) || self.meets(was, new), || {
            format!("revision {} returns to what never ran and is not signed", new.revision)
        });
    }
}

/// Whether an entry runs what its app has run before.
fn is_return(entry: &Deploy) -> bool {
    matches!(entry.trigger, Trigger::Rollback | Trigger::Config) || entry.is_redeploy()
}

fn digest_of(entry: &Deploy) -> Option<&Digest> {
    entry.digest.as_ref().or_else(|| entry.image.as_ref()?.digest())
}

/// What an app requires by itself, its environment and its project.
fn required(view: &AppState) -> Vec<&Requirement> {
    let copies = [&view.app.requirements.project, &view.app.requirements.environment];
    let copied = copies.into_iter().filter_map(|copy| copy.requirement.as_ref());
    copied.chain(&view.app.policy.signed).collect()
}
