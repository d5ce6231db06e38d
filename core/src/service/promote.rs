//! Deploys in one environment what another one runs.

use super::{Accepted, Authorized, Deployer, Operator, Outcome};
use crate::{
    app::AppId,
    deploy::{Origin, Trigger},
    ledger::{Admission, admission},
    request::{IdempotencyKey, Refusal},
};

impl Deployer {
    /// Deploys here what another environment's app of the same name runs.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn promote(
        &self,
        operator: &Operator,
        id: &AppId,
        from: &AppId,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Accepted> {
        let access = Authorized { cause: operator.cause(Trigger::Promotion), ..self.open(operator, id).await? };
        let promoted = self.promoted(from).await;
        let (admission_id, cause) = (self.admission_id(), access.cause.clone());
        let accepted = self.admit(&access, admission_id, key, move |state| {
            let (image, commit, origin) = promoted.clone()?;
            let deploy = admission::promotion(&state.app, image, commit, origin, &cause)?;
            Ok((Admission::plain(admission_id, deploy), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }

    async fn promoted(&self, from: &AppId) -> Outcome<(crate::image::ImageRef, Option<crate::deploy::Commit>, Origin)> {
        let source = self.find(from).await?.state;
        let current = source.current.as_ref().ok_or_else(|| {
            Refusal::NothingToRollBackTo(format!("{from} has no current deploy that could be promoted."))
        })?;
        let image = current.pinned_image().ok_or(Refusal::Internal)?;
        let origin = Origin::Promoted { app: from.clone(), revision: current.revision };
        Ok((image, current.commit.clone(), origin))
    }
}
