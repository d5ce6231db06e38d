//! Changes of configurations: who sets which variables is in the audit, without a value.

use std::{collections::BTreeSet, time::Duration};

use rollhook_core::{
    action::Action as AppAction,
    app::{AppId, Settings},
    configuration::{ShownVariable, VariableName, VariablesChange},
    lock::LockReason,
    request::{ConfigureRequest, Refusal as CoreRefusal},
    service::{Authorized, Configured, ShownConfiguration},
    text::escaped,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Principal, Realm},
    rate::Rate,
};

/// The changes of the configurations of an environment: 1 in 2 seconds, 60 at once. Each writes all of an app's variables anew.
const CHANGES: Rate = Rate { every: Duration::from_secs(2), burst: 60 };
/// The most names of variables in an entry of the audit.
const NAMES_MAX: usize = 20;
/// The most characters of a name there.
const NAME_MAX: usize = 253;

impl Management {
    /// Changes an app's configuration, with a reason in spite of its locks. A change of what its instances are made with, or of a
    /// variable by which a proxy leads requests to them, takes the right to change the app too. The audit has the names of the
    /// variables, and the reason.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::configure`](rollhook_core::service::Deployer::configure);
    /// [`Refusal::ForbiddenVariable`].
    pub async fn configure(
        &self,
        principal: &Principal,
        id: &AppId,
        request: ConfigureRequest,
        in_spite_of_locks: Option<&LockReason>,
    ) -> Outcome<Configured> {
        let app = self.readable_app(principal, id).await?;
        let remark = remark(&request);
        let mut actions = vec![(Action::Configure, Some(&*remark))];
        let steering = self.steering(&request.change);
        if !request.change.settings.is_empty() || steering.is_some() {
            // Volumes and networks of the machine, and requests to it: who may register an app says what its containers are made
            // with.
            actions.push((Action::Change, Some(&*remark)));
        }
        actions.extend(in_spite_of_locks.map(|reason| (Action::BreakGlass, Some(reason.as_str()))));
        let permitted = self.permit_all(principal, &app, &actions, || self.count_change(Realm::of_app(&app))).await;
        permitted.map_err(|refusal| match (refusal, steering) {
            (Refusal::Forbidden(Action::Change, role), Some(name)) => Refusal::ForbiddenVariable(name.clone(), role),
            (refusal, _) => refusal,
        })?;
        let access = match in_spite_of_locks {
            Some(_) => {
                let actions = [AppAction::Configure, AppAction::BreakGlass];
                Authorized::allow(&app, principal.cause(), &actions).in_spite_of_locks()?
            }
            None => Authorized::allow(&app, principal.cause(), &[AppAction::Configure]),
        };
        Ok(self.deployer.configure(&access, request).await?)
    }

    /// Withdraws the change of an app's configuration that waits for the next deploy. Returns `false` if none does. Where what
    /// waits changes what instances are made with, it takes the right to change the app, as that change did.
    ///
    /// # Errors
    /// As [`Management::allow`] and
    /// [`Deployer::discard_configuration`](rollhook_core::service::Deployer::discard_configuration).
    pub async fn discard_configuration(&self, principal: &Principal, id: &AppId) -> Outcome<bool> {
        let app = self.readable_app(principal, id).await?;
        let what = Some("withdraw what waits for the next deploy");
        self.permit_all(principal, &app, &[(Action::Configure, what)], || self.count_change(Realm::of_app(&app)))
            .await?;
        let mut actions = vec![AppAction::Configure];
        if self.may_change(principal, &app).await? {
            actions.push(AppAction::Change);
        }
        let access = Authorized::allow(&app, principal.cause(), &actions);
        match self.deployer.discard_configuration(&access).await {
            Err(CoreRefusal::NotAllowed(AppAction::Change)) => {
                self.permit(principal, &app, Action::Change, what).await?;
                Err(Refusal::BUSY) // A role that was given meanwhile.
            }
            discarded => Ok(discarded?),
        }
    }

    /// Returns the first variable of a change by which a proxy leads requests to instances.
    fn steering<'a>(&self, change: &'a VariablesChange) -> Option<&'a VariableName> {
        let targets = self.deployer.targets();
        change.set.keys().chain(&change.unset).find(|name| targets.steers(name.as_str()))
    }

    /// Counts a change of the configuration of an environment's app before it is made.
    pub(crate) fn count_change(&self, realm: Realm) -> Outcome<()> {
        let may = self.configuration_changes.take(CHANGES, &realm, self.deployer.ports().clock.elapsed());
        if may { Ok(()) } else { Err(Refusal::TooManyConfigurationChanges(realm)) }
    }
}

/// Returns the names that a change sets and removes.
fn remark(request: &ConfigureRequest) -> String {
    let (change, is_staged) = (&request.change, request.staged);
    let unsets = if request.revoked { "unset as revoked" } else { "unset" };
    let (set, unset) = (change.set.keys(), change.unset.iter());
    let (set, unset) = (set.map(VariableName::as_str), unset.map(VariableName::as_str));
    let settings = change.settings.keys().map(String::as_str);
    let parts = [("set", set.collect()), (unsets, unset.collect()), ("made with", settings.collect())];
    joined(&parts) + if is_staged { ", for the next deploy" } else { "" }
}

/// Returns the names of what another configuration sets and removes.
pub(crate) fn difference(from: &ShownConfiguration, to: &ShownConfiguration) -> String {
    named_difference((&from.variables, &from.settings), (&to.variables, &to.settings))
}

fn named_difference(
    (from, from_settings): (&[ShownVariable], &Settings),
    (to, to_settings): (&[ShownVariable], &Settings),
) -> String {
    let is_gone = |known: &&ShownVariable| !to.iter().any(|other| known.name == other.name);
    let differs = |other: &&ShownVariable| {
        let is_same = |known: &ShownVariable| known.name == other.name && known.fingerprint == other.fingerprint;
        !from.iter().any(is_same)
    };
    let set = to.iter().filter(differs).map(|variable| variable.name.as_str());
    let unset = from.iter().filter(is_gone).map(|variable| variable.name.as_str());
    let names: BTreeSet<&String> = from_settings.keys().chain(to_settings.keys()).collect();
    let settings = names.into_iter().filter(|name| from_settings.get(*name) != to_settings.get(*name));
    let settings = settings.map(String::as_str);
    joined(&[("set", set.collect()), ("unset", unset.collect()), ("made with", settings.collect())])
}

/// Returns names with what happens to them.
fn joined(parts: &[(&str, Vec<&str>)]) -> String {
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(verb, names)| format!("{verb} {}", listed(names))).collect();
    parts.join("; ")
}

fn listed(names: &[&str]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMES_MAX));
    let named: Vec<String> =
        named.iter().map(|name| escaped(&name.chars().take(NAME_MAX).collect::<String>())).collect();
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use rollhook_core::configuration::Variable;

    use super::*;

    #[test]
    fn difference_has_the_names_of_what_comes_back() {
        let variable = |name: &str, fingerprint: &str| ShownVariable {
            name: name.parse().unwrap(),
            value: None,
            length: 7,
            fingerprint: fingerprint.to_owned(),
        };
        let now = [variable("A", "1"), variable("B", "1"), variable("C", "1")];
        let then = [variable("A", "1"), variable("B", "2"), variable("D", "1")];
        let (none, memory) = (Settings::new(), [("memory".to_owned(), "1g".into())].into_iter().collect());
        let changed = named_difference((&now, &none), (&then, &memory));
        assert_eq!(changed, "set B, D; unset C; made with memory");
        assert_eq!(named_difference((&now, &none), (&now, &none)), "");
    }

    #[test]
    fn remark_has_the_names_alone_and_not_all_of_very_many() {
        let name = |text: &str| text.parse::<VariableName>().unwrap();
        let value = || Variable::new("hunter2".to_owned(), false);
        let change = VariablesChange {
            set: [(name("B"), value()), (name("A"), value())].into(),
            unset: [name("C")].into(),
            ..VariablesChange::default()
        };
        let of = |change: VariablesChange, staged| {
            ConfigureRequest::default().with(|request| (request.change, request.staged) = (change, staged))
        };
        assert_eq!(remark(&of(change.clone(), false)), "set A, B; unset C");
        let revoked = of(change.clone(), false).with(|request| request.revoked = true);
        assert_eq!(remark(&revoked), "set A, B; unset as revoked C");
        let memory = [("memory".to_owned(), "1g".into())].into_iter().collect();
        let change = VariablesChange { settings: memory, ..change };
        assert_eq!(remark(&of(change, false)), "set A, B; unset C; made with memory");
        let many = (10..60).map(|number| (name(&format!("A{number}")), value())).collect();
        let change = VariablesChange { set: many, ..VariablesChange::default() };
        let many = remark(&of(change, true));
        assert!(many.starts_with("set A10, A11,") && many.ends_with("A29 and 30 more, for the next deploy"), "{many}");
    }
}
