//! The check of what an app's instances are to be made with.

use crate::{
    app::App,
    configuration::Variables,
    ledger::registration,
    ports::{CheckedSettings, SettingsRequest},
    request::Refusal,
    service::{Deployer, Outcome},
};

impl Deployer {
    /// Returns a changed configuration with its settings as the rollout driver completed them. One that changes none is not
    /// checked: a platform that is away keeps no variable from being set.
    pub(super) async fn check_made_with(
        &self,
        app: &App,
        before: &Variables,
        mut after: Variables,
    ) -> Outcome<Variables> {
        if after.settings == before.settings {
            return Ok(after);
        }
        let (settings, target) = (after.settings.clone(), app.target.clone());
        let request = SettingsRequest { app: app.id.clone(), target, settings };
        let checked = self.ports.rollouts.check_settings(&request).await;
        match checked.map_err(|error| Self::refusal_of_target(&app.id, error))? {
            CheckedSettings::Valid(settings) => {
                after.settings = settings;
                Ok(after)
            }
            CheckedSettings::Invalid(invalid) => Err(registration::refusal(invalid)),
            CheckedSettings::Unsupported(why) => Err(Refusal::CannotBeConfigured(why)),
        }
    }
}
