//! Leases: which replica drives an app.

use std::time::Duration;

use super::{Deployer, journal::Decision, run::TTL};
use crate::{
    app::AppUid,
    error::{Error, Result},
    ports::AppRef,
    replica::ReplicaId,
};

/// The time for which a replica's absence from a heartbeat's answer counts: this process may have been paused since.
const HEARTBEAT_VALID_FOR: Duration = Duration::from_secs(2);

impl Deployer {
    /// Takes an app's lease if no living replica has it. Returns whether the app is leased to this replica.
    ///
    /// The living replicas are read after the lease was seen: an older list may lack a replica that took the lease
    /// since.
    pub(super) async fn take_lease(&self, app: AppUid) -> Result<bool> {
        let Some(seen) = self.journal.load(AppRef::Uid(app)).await? else { return Ok(false) };
        if seen.state.is_leased_to(&self.replica) {
            return Ok(true);
        }
        let former = seen.state.lease.clone();
        if let Some(former) = &former {
            let alive = self.journal.heartbeat(&self.replica, TTL).await?.alive;
            if alive.contains(former) {
                return Ok(false);
            }
        }
        let (replica, clock) = (self.replica.clone(), self.ports.clock.clone());
        let valid_until = clock.elapsed() + HEARTBEAT_VALID_FOR;
        let taken = self.journal.update(app, None, move |change, _, now| {
            if change.state.is_leased_to(&replica) {
                return Decision::Answer(true);
            }
            let outdated = former.is_some() && clock.elapsed() > valid_until;
            if outdated || change.state.lease != former || change.state.queued_at.is_none() {
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

    /// Returns this replica if it drives deploys: an accept gives it the lease of an idle app.
    pub(super) fn driver(&self) -> Option<ReplicaId> {
        self.work_queue.is_alive(self.ports.clock.elapsed()).then(|| self.replica.clone())
    }
}
