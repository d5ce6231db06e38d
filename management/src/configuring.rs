//! Changes of configurations: who sets which variables is in the audit, without a value.

use rollhook_core::{
    action::Action as AppAction,
    app::AppId,
    configuration::VariableName,
    request::ConfigureRequest,
    service::{Authorized, Configured},
};

use crate::{
    Management, Outcome,
    access::{Action, Principal},
};

/// The most names of variables in an entry of the audit.
const NAMES_MAX: usize = 20;

impl Management {
    /// Changes an app's configuration. The audit has the names of the variables.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::configure`](rollhook_core::service::Deployer::configure).
    pub async fn configure(&self, principal: &Principal, id: &AppId, request: ConfigureRequest) -> Outcome<Configured> {
        let app = self.readable_app(principal, id).await?;
        let remark = remark(&request);
        self.permit(principal, &app, Action::Configure, Some(&remark)).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Configure]);
        // All of the app's variables are read and written, which may be as long as a long part of a history.
        let _turn = self.deployer.history_turn(&access, usize::MAX).await;
        Ok(self.deployer.configure(&access, request).await?)
    }

    /// Withdraws the change of an app's configuration that waits for the next deploy. Returns `false` if none does.
    ///
    /// # Errors
    /// As [`Management::allow`] and
    /// [`Deployer::discard_configuration`](rollhook_core::service::Deployer::discard_configuration).
    pub async fn discard_configuration(&self, principal: &Principal, id: &AppId) -> Outcome<bool> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::Configure, Some("withdraw what waits for the next deploy")).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Configure]);
        Ok(self.deployer.discard_configuration(&access).await?)
    }
}

/// Returns the names that a change sets and removes.
fn remark(request: &ConfigureRequest) -> String {
    let (change, is_staged) = (&request.change, request.staged);
    let unsets = if request.revoked { "unset as revoked" } else { "unset" };
    let (set, unset) = (change.set.keys().collect::<Vec<_>>(), change.unset.iter().collect::<Vec<_>>());
    let parts = [("set", set), (unsets, unset)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(verb, names)| format!("{verb} {}", listed(&names))).collect();
    parts.join("; ") + if is_staged { ", for the next deploy" } else { "" }
}

fn listed(names: &[&VariableName]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMES_MAX));
    let named: Vec<&str> = named.iter().map(|name| name.as_str()).collect();
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use rollhook_core::configuration::{Variable, VariablesChange};

    use super::*;

    #[test]
    fn remark_has_the_names_alone_and_not_all_of_very_many() {
        let name = |text: &str| text.parse::<VariableName>().unwrap();
        let value = || Variable::new("hunter2".to_owned(), false);
        let change =
            VariablesChange { set: [(name("B"), value()), (name("A"), value())].into(), unset: [name("C")].into() };
        let of = |change: VariablesChange, staged| {
            ConfigureRequest::default().with(|request| (request.change, request.staged) = (change, staged))
        };
        assert_eq!(remark(&of(change.clone(), false)), "set A, B; unset C");
        let revoked = of(change, false).with(|request| request.revoked = true);
        assert_eq!(remark(&revoked), "set A, B; unset as revoked C");
        let many = (10..60).map(|number| (name(&format!("A{number}")), value())).collect();
        let change = VariablesChange { set: many, unset: [].into() };
        let many = remark(&of(change, true));
        assert!(many.starts_with("set A10, A11,") && many.ends_with("A29 and 30 more, for the next deploy"), "{many}");
    }
}
