//! Rollbacks: what they bring back besides the image takes rights of its own.

use rollhook_core::{
    action::Action as AppAction,
    app::AppId,
    request::{Refusal as CoreRefusal, RollbackRequest},
    service::{Accepted, Authorized},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Principal},
};

impl Management {
    /// Returns an app to an earlier version. With its configuration it takes the right to change that; and where the version's
    /// instances were made with something else, such as volumes of the machine, the right to change the app.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::rollback`](rollhook_core::service::Deployer::rollback).
    pub async fn roll_back(&self, principal: &Principal, id: &AppId, request: RollbackRequest) -> Outcome<Accepted> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::Rollback, None).await?;
        let mut actions = vec![AppAction::Rollback];
        if request.with_configuration {
            self.permit(principal, &app, Action::Configure, None).await?;
            if self.may_change(principal, &app).await? {
                actions.push(AppAction::Change);
            }
        }
        let access = Authorized::allow(&app, principal.cause(), &actions);
        match self.deployer.rollback(&access, request).await {
            Err(CoreRefusal::NotAllowed(AppAction::Change)) => {
                let what = "bring back what earlier instances were made with";
                self.permit(principal, &app, Action::Change, Some(what)).await?;
                Err(Refusal::BUSY) // A role that was given meanwhile.
            }
            accepted => Ok(accepted?),
        }
    }
}
