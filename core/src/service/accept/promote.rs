//! Promotions: deploys of the image that another environment runs.

use crate::{
    action::Action,
    deploy::{Commit, Origin, Trigger},
    image::ImageRef,
    ledger::{Admission, admission},
    request::{Field, PromoteRequest, Refusal},
    service::{Accepted, Authorized, Deployer, Outcome},
};

impl Deployer {
    /// Deploys the image that another environment's app runs, which the caller has judged that the actor may read.
    ///
    /// # Errors
    /// [`Refusal::AppNotFoundIn`], also if another pair of project and environment spells the namespace;
    /// [`Refusal::InvalidField`] if `from` is the app itself; [`Refusal::CurrentChanged`]; any other refusal. Nothing
    /// was recorded, unless it says that it may have been.
    pub async fn promote(&self, access: &Authorized, request: PromoteRequest) -> Outcome<Accepted> {
        access.check(Action::Promote)?;
        let promoted = self.promoted(access, &request).await;
        let (admission_id, cause) = (self.admission_id(), access.cause_of(Trigger::Promotion));
        let accepted = self.admit(access, admission_id, request.key, move |state| {
            let (image, commit, origin) = promoted.clone()?;
            let deploy = admission::promotion(&state.app, image, commit, origin, &cause)?;
            Ok((Admission::plain(admission_id, deploy), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }

    /// Returns the image, commit and origin of the deploy that is to be promoted.
    async fn promoted(&self, to: &Authorized, request: &PromoteRequest) -> Outcome<(ImageRef, Option<Commit>, Origin)> {
        let from = &request.from;
        let id = from.id().map_err(|invalid| Refusal::InvalidField(Field::FromEnvironment, invalid.to_string()))?;
        let source = match self.find(&id).await {
            Err(Refusal::AppNotFound(_)) => return Err(Refusal::AppNotFoundIn(from.clone())),
            found => found?.state,
        };
        if source.app.full_name() != *from {
            return Err(Refusal::AppNotFoundIn(from.clone()));
        }
        if source.app.uid == to.uid {
            let rule = format!("{from} is the app itself; name the environment that its image is to come from.");
            return Err(Refusal::InvalidField(Field::FromEnvironment, rule));
        }
        source.expect_current(request.if_current)?;
        let current = source.current.as_ref().ok_or_else(|| {
            Refusal::NothingToRollBackTo(format!("{id} has no current deploy that could be promoted."))
        })?;
        let image = current.pinned_image().ok_or(Refusal::Internal)?;
        let origin = Origin::Promoted { app: id, revision: current.revision };
        Ok((image, current.commit.clone(), origin))
    }
}
