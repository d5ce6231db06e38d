//! Recording the image of a build that ended well.

use super::{Change, Record, Refused};
use crate::{
    deploy::{AdmissionId, Deploy, Origin, Revision, State},
    replica::ReplicaId,
    time::Timestamp,
};

/// A build that ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The replica that drives the app.
    pub driver: ReplicaId,
    /// The deploy with its image and commit, with `step` one higher than stored.
    pub deploy: Deploy,
    /// The id of the new entry, if one is needed.
    pub id: AdmissionId,
}

impl Change {
    /// Records the image of a deploy. Returns the revision of a new entry if a higher one, which is a restore or one
    /// that was built before, took the cluster during the build: the lower revision must not reach the cluster any
    /// more, but its image may be the fix. So the image is entered anew behind the restore, and the first entry ends
    /// `superseded`.
    ///
    /// The new entry counts as the first one: the number of unfinished deploys stays as it is, and does not matter.
    ///
    /// # Errors
    /// As [`Change::record`]; the change stays as it was.
    pub fn built(&mut self, built: Built, now: Timestamp) -> Result<Option<Revision>, Refused> {
        let Built { driver, deploy, id } = built;
        let by = self.state.overtaken_by(deploy.revision).map(|_| Revision::following(self.state.latest));
        let first = match by {
            Some(by) => Deploy { state: State::Superseded { by, rollback: false, newer: None }, ..deploy.clone() },
            None => deploy.clone(),
        };
        self.record(Record { driver: Some(driver), changes: vec![first], ..Record::default() }, now)?;
        if let Some(revision) = by {
            let now = self.touch(now);
            // Builds go in order, so that none with a higher sequence has been rolled out yet.
            let is_highest = self.state.highest_sequence.is_some_and(|highest| highest.revision == deploy.revision);
            self.note_revision(revision, deploy.sequence.filter(|_| is_highest));
            self.watch_followed(revision, false);
            self.admitted.push(revision);
            self.put(Deploy {
                id,
                revision,
                from: Some(Origin::Built(deploy.revision)),
                effective: revision,
                state: State::Queued,
                step: 0,
                resolution: None,
                created_at: now,
                updated_at: now,
                ..deploy
            });
        }
        Ok(by)
    }
}
