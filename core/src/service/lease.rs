//! Leases: which replica drives an app.

use std::time::Duration;

use super::{Deployer, journal::Decision, run::TTL};
use crate::{
    app::AppUid,
    error::{Error, Result},
    ports::AppRef,
    replica::ReplicaId,
};

/// How long it is good that a replica did not live when it was asked for: it may have been paused.
const GOOD_FOR: Duration = Duration::from_secs(2);

impl Deployer {
    /// Takes an app's lease if no living replica has it. Returns whether the app is leased to this replica.
    ///
    /// Whether the lease's holder lives is asked after the lease was seen: a list of the living that is older than the
    /// lease says nothing about it.
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
        let good_until = clock.elapsed() + GOOD_FOR;
        let taken = self.journal.update(app, None, move |change, _, now| {
            if change.state.is_leased_to(&replica) {
                return Decision::Answer(true);
            }
            let outdated = former.is_some() && clock.elapsed() > good_until;
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

    /// This replica, if it drives deploys: an accept gives it the lease of an idle app.
    pub(super) fn driver(&self) -> Option<ReplicaId> {
        self.work_queue.is_alive(self.ports.clock.elapsed()).then(|| self.replica.clone())
    }
}
