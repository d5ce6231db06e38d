//! The check of what an app's instances are to be made with.

use std::collections::BTreeMap;

use crate::{
    action::Action,
    app::Settings,
    configuration::{Variable, VariableName, Variables, VariablesChange},
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

    /// Returns whether instances are made with the same by two configurations: settings, and variables by which a proxy leads
    /// requests to them. Another value of these is for those who may change the app, as volumes of the machine are.
    pub(super) fn are_made_alike(&self, one: &Variables, other: &Variables) -> bool {
        let targets = self.targets();
        let steering = |variables: &Variables| -> BTreeMap<VariableName, Variable> {
            let steers = |(name, _): &(&VariableName, &Variable)| targets.steers(name.as_str());
            let steering = variables.entries.iter().filter(steers);
            steering.map(|(name, variable)| (name.clone(), variable.clone())).collect()
        };
        one.settings == other.settings && steering(one) == steering(other)
    }

    /// Returns the variables of the configuration that the current version has, or the one that failed last where none has
    /// succeeded; none if it has none.
    pub(super) async fn current_variables(&self, access: &Authorized, state: &AppState) -> Outcome<Variables> {
        let current = state.configured().and_then(|current| current.configuration);
        Ok(self.kept_variables(access, current).await?.unwrap_or_default())
    }

    /// Returns `Ok` unless what waits for the next deploy makes instances with something else than the current version's, so that
    /// only those who may change the app withdraw it.
    pub(super) async fn check_staged_settings(
        &self,
        access: &Authorized,
        state: &AppState,
        current: &Variables,
    ) -> Outcome<()> {
        match self.kept_variables(access, state.staged).await? {
            Some(staged) if !self.are_made_alike(current, &staged) => access.check(Action::Change),
            Some(_) | None => Ok(()),
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
