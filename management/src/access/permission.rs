//! Permissions: each action as the verb and the resource by which a cluster's roles grant it.
//!
//! A permission that changes something names a subresource that exists in this table alone. Whoever may write the
//! objects `rollhookapps` themselves goes past the service's rules, so that no action is granted by that.

use std::fmt;

use rollhook_core::text::words;

use crate::access::Action;

/// The resource that a permission is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Apps: each in its namespace, by its name.
    Apps,
    /// API tokens, which belong to no namespace.
    ApiTokens,
    /// Sessions, which belong to no namespace.
    Sessions,
    /// Receivers of notifications, which belong to no namespace.
    Receivers,
    /// The audit, which belongs to no namespace.
    Audit,
}

words! { Resource:
    Apps = "rollhookapps",
    ApiTokens = "apitokens",
    Sessions = "sessions",
    Receivers = "receivers",
    Audit = "audit",
}

/// The permission to do an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    /// The resource, of the service's own API group.
    pub resource: Resource,
    /// The part of the resource.
    pub subresource: Option<&'static str>,
    /// The verb that is allowed, such as `create`.
    pub verb: &'static str,
}

impl Permission {
    const fn on_app(verb: &'static str, subresource: &'static str) -> Self {
        Self { resource: Resource::Apps, subresource: Some(subresource), verb }
    }

    /// Returns the resource and its part, as a role names them: `rollhookapps/rollback`.
    pub fn path(self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.to_string(),
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.path())
    }
}

impl Action {
    /// The permission to do it: the one table of actions and permissions.
    pub const fn permission(self) -> Permission {
        match self {
            Self::Read => Permission { resource: Resource::Apps, subresource: None, verb: "get" },
            Self::Deploy => Permission::on_app("create", "deploys"),
            Self::Rebuild => Permission::on_app("create", "rebuild"),
            Self::Promote => Permission::on_app("create", "promote"),
            Self::Rollback => Permission::on_app("create", "rollback"),
            Self::Cancel => Permission::on_app("create", "cancel"),
            Self::Decide => Permission::on_app("create", "verdict"),
            Self::Run => Permission::on_app("create", "runs"),
            Self::ReadConfiguration => Permission::on_app("get", "config"),
            Self::Configure => Permission::on_app("update", "config"),
            Self::ReleaseHold => Permission::on_app("delete", "hold"),
            Self::Lock => Permission::on_app("create", "lock"),
            Self::Unlock => Permission::on_app("delete", "lock"),
            Self::BreakGlass => Permission::on_app("create", "break-glass"),
            Self::EnableWebhook => Permission::on_app("create", "webhook"),
            Self::ReadToken => Permission::on_app("get", "webhook"),
            Self::ReadCalls => Permission::on_app("get", "calls"),
            Self::TestCheck => Permission::on_app("create", "checks"),
            Self::DisableWebhook => Permission::on_app("delete", "webhook"),
            Self::ChangeTrusts => Permission::on_app("update", "trusts"),
            Self::Register => Permission::on_app("create", "registration"),
            Self::Change => Permission::on_app("update", "registration"),
            Self::Require => Permission::on_app("update", "requirement"),
            Self::Delete => Permission::on_app("delete", "registration"),
            Self::ManageTokens => Permission { resource: Resource::ApiTokens, subresource: None, verb: "create" },
            Self::ManageSessions => Permission { resource: Resource::Sessions, subresource: None, verb: "delete" },
            Self::ManageReceivers => Permission { resource: Resource::Receivers, subresource: None, verb: "create" },
            Self::ReadAudit => Permission { resource: Resource::Audit, subresource: None, verb: "get" },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_says_cell_by_cell_which_permission_each_action_takes() {
        let table = [
            (Action::Read, "get rollhookapps"),
            (Action::Deploy, "create rollhookapps/deploys"),
            (Action::Rebuild, "create rollhookapps/rebuild"),
            (Action::Promote, "create rollhookapps/promote"),
            (Action::Rollback, "create rollhookapps/rollback"),
            (Action::Cancel, "create rollhookapps/cancel"),
            (Action::Decide, "create rollhookapps/verdict"),
            (Action::Run, "create rollhookapps/runs"),
            (Action::ReadConfiguration, "get rollhookapps/config"),
            (Action::Configure, "update rollhookapps/config"),
            (Action::ReleaseHold, "delete rollhookapps/hold"),
            (Action::Lock, "create rollhookapps/lock"),
            (Action::Unlock, "delete rollhookapps/lock"),
            (Action::BreakGlass, "create rollhookapps/break-glass"),
            (Action::EnableWebhook, "create rollhookapps/webhook"),
            (Action::ReadToken, "get rollhookapps/webhook"),
            (Action::ReadCalls, "get rollhookapps/calls"),
            (Action::TestCheck, "create rollhookapps/checks"),
            (Action::DisableWebhook, "delete rollhookapps/webhook"),
            (Action::ChangeTrusts, "update rollhookapps/trusts"),
            (Action::Register, "create rollhookapps/registration"),
            (Action::Change, "update rollhookapps/registration"),
            (Action::Require, "update rollhookapps/requirement"),
            (Action::Delete, "delete rollhookapps/registration"),
            (Action::ManageTokens, "create apitokens"),
            (Action::ManageSessions, "delete sessions"),
            (Action::ManageReceivers, "create receivers"),
            (Action::ReadAudit, "get audit"),
        ];
        assert_eq!(table.map(|(action, _)| action).as_slice(), Action::ALL, "every action has its row");
        for (action, permission) in table {
            assert_eq!(action.permission().to_string(), permission, "{action}");
        }
    }

    #[test]
    fn no_two_actions_share_a_permission() {
        let permissions: BTreeSet<_> = Action::ALL.iter().map(|action| action.permission()).collect();
        assert_eq!(permissions.len(), Action::ALL.len());
    }

    #[test]
    fn no_permission_lets_its_holder_write_the_objects_of_apps() {
        for permission in Action::ALL.iter().map(|action| action.permission()) {
            let is_object = permission.resource == Resource::Apps && permission.subresource.is_none();
            assert!(!is_object || permission.verb == "get", "{permission}");
        }
    }
}
