//! Leases: which replica drives an app.

use std::time::Duration;

use crate::{
    app::AppUid,
    error::{Error, Result},
    ledger::AppState,
    ports::AppRef,
    replica::ReplicaId,
    service::{Deployer, drive::TTL, journal::Decision},
};

/// The time for which a replica's absence from a heartbeat's answer counts: this process may have been paused since.
const HEARTBEAT_VALID_FOR: Duration = Duration::from_secs(2);

impl Deployer {
    /// Takes an app's lease if no living replica has it. Returns whether the app is leased to this replica.
    ///
    /// The living replicas are read after the lease was seen: an older list may lack a replica that took the lease
    /// since.
    pub(crate) async fn take_lease(&self, app: AppUid) -> Result<bool> {
        let Some(seen) = self.journal.load(AppRef::Uid(app)).await? else { return Ok(false) };
        if seen.state.is_leased_to(&self.replica) {
            return Ok(true);
        }
        let lacks_builder = self.lacks_builder();
        if lacks_builder(&seen.state) {
            return Ok(false);
        }
        let former = seen.state.lease.clone();
        // Of a replica without a heartbeat, others would take the lease at once.
        if former.is_some() || !self.work_queue.is_alive(self.ports.clock.elapsed()) {
            let alive = self.journal.heartbeat(&self.replica, TTL).await?.alive;
            if former.as_ref().is_some_and(|former| alive.contains(former)) {
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
            if outdated
                || change.state.lease != former
                || change.state.queued_at.is_none()
                || lacks_builder(&change.state)
            {
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

    /// Releases an app's lease if this replica has it and lacks the builder that the work needs.
    pub(crate) async fn leave(&self, app: AppUid) -> Result<()> {
        let (replica, lacks_builder) = (self.replica.clone(), self.lacks_builder());
        let released = self.journal.update(app, None, move |change, _, now| {
            if !change.state.is_leased_to(&replica) || !lacks_builder(&change.state) {
                return Decision::Answer(());
            }
            change.release(now);
            Decision::Commit(())
        });
        match released.await {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the check whether an app's work needs a builder that this process lacks.
    pub(crate) fn lacks_builder(&self) -> impl Fn(&AppState) -> bool + Copy + Send + use<> {
        let has_builder = self.ports.builder.is_some();
        move |state| !has_builder && state.needs_builder()
    }

    /// Returns this replica if it drives deploys: an accept gives it the lease of an idle app.
    pub(crate) fn driver(&self) -> Option<ReplicaId> {
        self.work_queue.is_alive(self.ports.clock.elapsed()).then(|| self.replica.clone())
    }
}
