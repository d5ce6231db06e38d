//! Leases: which replica drives an app.

use super::{Deployer, journal::Decision};
use crate::{
    app::AppUid,
    error::{Error, Result},
    replica::ReplicaId,
};

impl Deployer {
    /// Takes an app's lease, unless another replica took it since it was found to be free. Returns whether the app is
    /// leased to this replica.
    ///
    /// `alive` are the replicas that were alive when it was found.
    pub(super) async fn take_lease(&self, app: AppUid, alive: &[ReplicaId]) -> Result<bool> {
        let (replica, alive) = (self.replica.clone(), alive.to_vec());
        let taken = self.journal.update(app, None, move |change, _, now| {
            let state = &change.state;
            if state.is_leased_to(&replica) {
                return Decision::Answer(true);
            }
            let held = state.lease.as_ref().is_some_and(|lease| alive.contains(lease));
            if held || state.queued_at.is_none() {
                return Decision::Answer(false);
            }
            change.lease(&replica, now);
            Decision::Commit(true)
        });
        match taken.await {
            Ok((taken, _)) => Ok(taken),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// This replica, if it drives deploys: an accept gives it the lease of an idle app.
    pub(super) fn driver(&self) -> Option<ReplicaId> {
        self.work_queue.is_alive(self.ports.clock.elapsed()).then(|| self.replica.clone())
    }
}
