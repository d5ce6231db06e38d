//! The check of what an app's instances are to be made with.

use crate::{
    app::Settings,
    configuration::VariablesChange,
    ledger::{AppState, registration},
    ports::{CheckedSettings, SettingsRequest},
    request::Refusal,
    service::{Authorized, Deployer, Outcome},
};

impl Deployer {
    /// Returns the settings of a changed configuration as the rollout driver completed them; `None` of a change that leaves them:
    /// a platform that is away keeps no variable from being set. The driver is called without a turn, so that a slow one holds up
    /// no other call.
    pub(super) async fn checked_settings(
        &self,
        access: &Authorized,
        state: &AppState,
        change: &VariablesChange,
    ) -> Outcome<Option<Settings>> {
        if change.settings.is_empty() {
            return Ok(None);
        }
        let Some(settings) = self.changed_settings(access, state, change).await? else { return Ok(None) };
        let request = SettingsRequest { app: state.app.id.clone(), target: state.app.target.clone(), settings };
        let checked = self.ports.rollouts.check_settings(&request).await;
        match checked.map_err(|error| Self::refusal_of_target(&state.app.id, error))? {
            CheckedSettings::Valid(settings) => Ok(Some(settings)),
            CheckedSettings::Invalid(invalid) => Err(registration::refusal(invalid)),
            CheckedSettings::Unsupported(why) => Err(Refusal::CannotBeConfigured(why)),
        }
    }

    /// Returns the settings that a change leads to; `None` if it leaves them.
    async fn changed_settings(
        &self,
        access: &Authorized,
        state: &AppState,
        change: &VariablesChange,
    ) -> Outcome<Option<Settings>> {
        let _turn = self.variables_turn(access).await;
        let before = self.base_variables(access, state.next_configuration()).await?;
        let settings = before.settings.clone();
        let after = change.apply(before)?;
        Ok((after.settings != settings).then_some(after.settings))
    }
}
