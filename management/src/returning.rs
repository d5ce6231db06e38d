//! Rollbacks: what they bring back besides the image takes rights of its own.

use rollhook_core::{
    action::Action as AppAction,
    app::{App, AppId},
    request::{Refusal as CoreRefusal, RollbackRequest},
    service::{Accepted, Authorized},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Realm},
    configuring,
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
            let realm = Realm::of_app(&app);
            // Those who may not change the configuration cause no read of two.
            let remark = match self.may(principal, Action::Configure, Place::app(&app.id, &realm)).await?.is_yes() {
                true => Some(self.returned_variables(principal, &app, &request).await?),
                false => None,
            };
            self.permit(principal, &app, Action::Configure, remark.as_deref()).await?;
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

    /// Returns the variables that a rollback with the configuration changes, by name.
    async fn returned_variables(&self, principal: &Principal, app: &App, request: &RollbackRequest) -> Outcome<String> {
        let actions = [AppAction::Rollback, AppAction::ReadConfiguration];
        let access = Authorized::allow(app, principal.cause(), &actions);
        let to = self.deployer.rollback_target(&access, request).await?.revision;
        let _turn = self.deployer.configuration_turn(&access).await;
        let now = self.deployer.configuration(&access, None).await;
        let then = self.deployer.configuration(&access, Some(to)).await;
        let changes = match (now, then) {
            (Ok(now), Ok(then)) => configuring::difference(&now, &then),
            // The rollback itself says why.
            (_, _) => String::new(),
        };
        let changes = if changes.is_empty() { String::new() } else { format!(": {changes}") };
        Ok(format!("roll back with the configuration of revision {to}{changes}"))
    }
}
