//! The decision of a person on a deploy whose checks came to no verdict.

use crate::{
    action::Action,
    deploy::{Deploy, Revision, Ruling},
    ledger::{Refused, decision},
    request::Refusal,
    service::{Authorized, Deployer, Outcome, journal::Decision, unwritten},
};

impl Deployer {
    /// Decides on a deploy in the place of checks that came to no verdict: it succeeds, or fails as by a check. The same
    /// decision of the same person may be repeated, and changes nothing.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`] unless the deploy waits for a decision, [`Refusal::DecidedAlready`], [`Refusal::AlreadyEnded`],
    /// [`Refusal::RevisionNotFound`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is
    /// away.
    pub async fn decide(&self, access: &Authorized, revision: Revision, ruling: Ruling) -> Outcome<Deploy> {
        access.check(Action::Decide)?;
        let by = access.actor().clone();
        let decided = self.journal.update(access.uid, None, move |change, _, now| {
            let record = match decision::decide(&change.state, revision, (ruling, &by), now) {
                Ok(Some(record)) => record,
                Ok(None) => return Decision::Answer(Ok(())),
                Err(refusal) => return Decision::Answer(Err(refusal)),
            };
            match change.record(record, now) {
                Ok(()) => Decision::Commit(Ok(())),
                Err(Refused::NextCommit | Refused::NotLeased | Refused::Outdated) => Decision::NextCommit,
            }
        });
        match decided.await.map_err(|error| unwritten(&access.id, error))?.0 {
            // A repetition may find the deploy ended by its own decision.
            Ok(()) => {
                tracing::info!(app = %access.id, %revision, %ruling, actor = %access.actor(), "decided on a deploy");
            }
            Err(Refusal::AlreadyEnded(_)) => {}
            Err(refusal) => return Err(refusal),
        }
        self.changed_here(access.uid);
        let entry = self.entry(access, revision).await?;
        if decision::is_decided(&entry, ruling, access.actor())? {
            Ok(entry)
        } else {
            Err(Refusal::AlreadyEnded(revision))
        }
    }
}
