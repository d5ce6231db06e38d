//! Apps whose images must be signed: no other image begins, and none fails that is.

use rollhook_core::{
    deploy::{Deploy, Reason, Scale, State, Status, Trigger},
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

    /// Judges an entry that has changed, of an app that was and is now.
    pub(super) fn signed(
        &self,
        (was, is): (&AppState, &AppState),
        before: &[Deploy],
        old: &Deploy,
        new: &Deploy,
        journal: &Journal,
    ) {
        let revision = new.revision;
        let waited = matches!(old.status(), Status::Queued | Status::Building);
        let begins = waited && matches!(new.status(), Status::Releasing | Status::RollingOut);
        let is_asked = !required(is).is_empty() && new.image.is_some();
        // The requirement may have come in the same write, behind this.
        let may = |new: &Deploy| self.meets(is, new) || self.meets(was, new);
        if is_asked && old.is_to_be_resolved() && !new.is_to_be_resolved() && !new.is_terminal() {
            let has_signers = !new.signed_by().is_empty();
            journal.count_if(has_signers, "signed: an image was found to be signed");
            journal.expect(may(new) && (has_signers || required(was).is_empty()), || {
                format!("revision {revision} was found to be signed, and is not")
            });
        }
        if is_asked && begins {
            let is_kept = is_return(new) || new.adopted;
            journal.count_if(is_return(new) && !self.meets(is, new), "signed: a return was not asked for signatures");
            let was_found = !new.signed_by().is_empty() || required(was).is_empty();
            journal
                .expect(is_kept || was_found && may(new), || format!("revision {revision} begins, and is not signed"));
        }
        if !is_unsigned(new) {
            return;
        }
        journal
            .expect(waited && !new.touched, || format!("revision {revision} had begun, and ends as it is not signed"));
        // What was built or resolved before it was required is not asked for then. Signatures may come later.
        let asked = [was, is].into_iter().flat_map(required).collect::<Vec<_>>();
        journal.expect(!asked.is_empty(), || format!("revision {revision} is not signed, and need not be"));
        let named = old.image.as_ref().and_then(|image| self.named.get(&image.to_string()));
        let mut digests = named.into_iter().flatten().chain(old.image.as_ref().and_then(|image| image.digest()));
        let lacks = digests
            .any(|digest| self.signatures_denied.contains(digest) || asked.iter().any(|one| !is_signed(digest, one)));
        let has_all = asked.iter().all(|one| old.signed_by().contains(&one.summary()));
        journal.expect(!has_all || old.signed_by().is_empty(), || {
            format!("revision {revision} was found to be signed, and ends as if it was not")
        });
        // What is built here carries none.
        let is_asked = old.is_to_be_resolved() && old.image.is_some() && !self.resolves_nothing();
        journal.expect(!is_asked || lacks, || format!("revision {revision} is signed, and ends as if it was not"));
        journal.count_if(!old.is_to_be_resolved(), "signed: a deploy of before the requirement was ended");
        let is_return = before.iter().any(|entry| entry.effective == new.effective && entry.revision < revision);
        journal.count_if(is_return, "signed: a return was refused");
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

    /// Whether no registry has named any image: none is asked.
    fn resolves_nothing(&self) -> bool {
        self.named.is_empty()
    }
}

/// Whether an entry has failed as its image is not signed.
pub(super) fn is_unsigned(entry: &Deploy) -> bool {
    matches!(&entry.state, State::Failed { reason, .. } if reason.as_str() == Reason::IMAGE_NOT_SIGNED)
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
