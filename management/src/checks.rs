//! The checks of apps: who sets which is in the audit, and how often they may be tried out is bounded.

use std::time::Duration;

use rollhook_core::{
    action::Action as AppAction,
    app::AppId,
    check::{Check, CheckName, CheckSecret},
    ports::Measured,
    request::Refusal as CoreRefusal,
    service::Authorized,
    text::escaped,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Principal, Realm},
    rate::Rate,
};

/// Tests of checks of one environment: 1 in 6 seconds, 10 at once. Each is a call of a foreign server.
const TESTS: Rate = Rate { every: Duration::from_secs(6), burst: 10 };

impl Management {
    /// Sets a check of an app, in place of the one of its name. A secret is stored as a configuration is, and counts as a change of
    /// one.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::set_check`](rollhook_core::service::Deployer::set_check);
    /// [`Refusal::TooManyConfigurationChanges`].
    pub async fn set_check(
        &self,
        principal: &Principal,
        id: &AppId,
        check: Check,
        secret: Option<CheckSecret>,
    ) -> Outcome<Check> {
        let url = check.settings.get("url").and_then(serde_json::Value::as_str).unwrap_or_default();
        let with = if secret.is_some() { ", with a new secret" } else { "" };
        let at = if url.is_empty() { String::new() } else { format!(" {}", escaped(url)) };
        let what = format!("set the check {}, {}{at}, to {}{with}", check.name, check.kind, check.mode);
        let app = self.readable_app(principal, id).await?;
        // The audit has no check that is refused.
        let can_be_done = || {
            self.deployer.check_can_be_set(&app, &check, secret.as_ref())?;
            if secret.is_some() { self.count_change(Realm::of_app(&app)) } else { Ok(()) }
        };
        self.permit_all(principal, &app, &[(Action::Change, Some(&what))], can_be_done).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Change]);
        Ok(self.deployer.set_check(&access, check, secret).await?)
    }

    /// Removes a check of an app.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::remove_check`](rollhook_core::service::Deployer::remove_check).
    pub async fn remove_check(&self, principal: &Principal, id: &AppId, name: &CheckName) -> Outcome<()> {
        let what = format!("removed the check {name}");
        let app = self.readable_app(principal, id).await?;
        let is_there = || match app.policy.checks.iter().any(|check| check.name == *name) {
            true => Ok(()),
            false => Err(CoreRefusal::CheckNotFound(name.clone()).into()),
        };
        self.permit_all(principal, &app, &[(Action::Change, Some(&what))], is_there).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Change]);
        Ok(self.deployer.remove_check(&access, name).await?)
    }

    /// Measures a check once, of the version that is current.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::test_check`](rollhook_core::service::Deployer::test_check);
    /// [`Refusal::TooManyTests`].
    pub async fn test_check(&self, principal: &Principal, id: &AppId, name: &CheckName) -> Outcome<Measured> {
        let what = format!("tested the check {name}");
        let app = self.readable_app(principal, id).await?;
        let count = || {
            let realm = Realm::of_app(&app);
            let may = self.check_tests.take(TESTS, &realm, self.deployer.ports().clock.elapsed());
            if may { Ok(()) } else { Err(Refusal::TooManyTests(realm)) }
        };
        self.permit_all(principal, &app, &[(Action::TestCheck, Some(&what))], count).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::TestCheck]);
        Ok(self.deployer.test_check(&access, name).await?)
    }
}
