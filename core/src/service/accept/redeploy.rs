//! Redeploys: the version that runs, once more, as a new revision.

use crate::{
    action::Action,
    deploy::Trigger,
    ledger::{Admission, redeploy},
    request::{RedeployRequest, Refusal},
    service::{Accepted, Authorized, Deployer, Outcome},
};

impl Deployer {
    /// Deploys the current version once more, such as to restart its instances without a gap: its bits, without a build
    /// and without its release command.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// [`Refusal::NotRedeployable`] where no version runs, or another one is on the cluster or on its way to it;
    /// [`Refusal::CurrentChanged`]; any other refusal. Nothing was recorded, unless it says that it may have been.
    pub async fn redeploy(&self, access: &Authorized, request: RedeployRequest) -> Outcome<Accepted> {
        access.check(Action::Deploy)?;
        let (id, cause) = (self.admission_id(), access.cause_of(Trigger::Manual));
        let if_current = request.if_current;
        let accepted = self.admit(access, id, request.key, move |state| {
            Ok((Admission::plain(id, redeploy::deploy(state, if_current, &cause)?), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }
}
