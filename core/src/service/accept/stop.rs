//! Stops and starts: the version that runs, once more, as a new revision without instances or with those from before.

use crate::{
    action::Action,
    deploy::Trigger,
    ledger::{Admission, stop},
    request::{Refusal, ScaleRequest},
    service::{Accepted, Authorized, Deployer, Outcome},
};

impl Deployer {
    /// Stops an app, so that no instance is left, or starts it again with as many instances as there were. Deploys of a stopped
    /// app change its image and start nothing.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// [`Refusal::NotStopped`] for a start of an app that is not stopped;
    /// [`Refusal::CannotBeStopped`] where the target or its platform cannot; those of [`Deployer::redeploy`]. Nothing was
    /// recorded, unless it says that it may have been.
    pub async fn scale(&self, access: &Authorized, request: ScaleRequest) -> Outcome<Accepted> {
        access.check(Action::Deploy)?;
        let (id, cause) = (self.admission_id(), access.cause_of(Trigger::Manual));
        let ScaleRequest { scale, if_current, key } = request;
        let rollouts = self.ports.rollouts.clone();
        let accepted = self.admit(access, id, key, move |state| {
            if let Some(why) = rollouts.unstoppable(&state.app.target) {
                return Err(Refusal::CannotBeStopped(why).into());
            }
            Ok((Admission::plain(id, stop::deploy(state, scale, if_current, &cause)?), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }
}
