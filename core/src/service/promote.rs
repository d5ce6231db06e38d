//! Promotions: deploys of the image that another environment runs.

use super::{Accepted, Authorized, Deployer, Outcome, Principal, auth::Place};
use crate::{
    access::Action,
    app::AppId,
    deploy::{Commit, Origin, Trigger},
    image::ImageRef,
    ledger::{Admission, admission},
    request::{Field, PromoteRequest, Refusal},
};

impl Deployer {
    /// Deploys the image that another environment's app runs.
    ///
    /// # Errors
    /// [`Refusal::AppNotFoundIn`], also if another pair of project and environment spells the namespace;
    /// [`Refusal::InvalidField`] if `from` is the app itself; [`Refusal::CurrentChanged`]; any other refusal. Nothing
    /// was recorded, unless it says that it may have been.
    pub async fn promote(&self, principal: &Principal, id: &AppId, request: PromoteRequest) -> Outcome<Accepted> {
        let access = Authorized {
            cause: principal.cause(Trigger::Promotion),
            ..self.open_for(Action::Promote, principal, id).await?
        };
        let promoted = self.promoted(principal, &access, &request).await;
        let (admission_id, cause) = (self.admission_id(), access.cause.clone());
        let accepted = self.admit(&access, admission_id, request.key, move |state| {
            let (image, commit, origin) = promoted.clone()?;
            let deploy = admission::promotion(&state.app, image, commit, origin, &cause)?;
            Ok((Admission::plain(admission_id, deploy), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }

    /// Returns the image, commit and origin of the deploy that is to be promoted.
    async fn promoted(
        &self,
        principal: &Principal,
        to: &Authorized,
        request: &PromoteRequest,
    ) -> Outcome<(ImageRef, Option<Commit>, Origin)> {
        let from = &request.from;
        let id = from.id().map_err(|invalid| Refusal::InvalidField(Field::FromEnvironment, invalid.to_string()))?;
        let source = match self.find(&id).await {
            Err(Refusal::AppNotFound(_)) => return Err(Refusal::AppNotFoundIn(from.clone())),
            found => found?.state,
        };
        // An app that the principal may not read is unknown to it.
        let realm = source.app.realm();
        if source.app.full_name() != *from
            || !self.may(principal, Action::Read, Place::app(&id, &realm)).await?.is_yes()
        {
            return Err(Refusal::AppNotFoundIn(from.clone()));
        }
        if source.app.uid == to.uid {
            let rule = format!("{from} is the app itself; name the environment that its image is to come from.");
            return Err(Refusal::InvalidField(Field::FromEnvironment, rule));
        }
        let newest = source.current.as_ref().map(|current| current.revision);
        if let Some(expected) = request.if_current.filter(|expected| Some(*expected) != newest) {
            return Err(Refusal::CurrentChanged { expected, current: newest });
        }
        let current = source.current.as_ref().ok_or_else(|| {
            Refusal::NothingToRollBackTo(format!("{id} has no current deploy that could be promoted."))
        })?;
        let image = current.pinned_image().ok_or(Refusal::Internal)?;
        let origin = Origin::Promoted { app: id, revision: current.revision };
        Ok((image, current.commit.clone(), origin))
    }
}
