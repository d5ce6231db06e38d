//! Access: the roles of principals, and the one table of actions and roles.
//!
//! A principal has roles, each on everything, on a project, or on one environment of a project. What no grant allows is
//! refused. An embedding platform may use this table, or decide by its own and let its callers in with
//! [`Principal::trusted`](crate::access::Principal::trusted).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    action::Action as AppAction,
    app::{App, Environment, InvalidName, Project, label},
    text::{checked_text, words},
};

/// The role of a principal. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads apps, histories and logs, and no token.
    Viewer,
    /// Deploys, rolls back, promotes, cancels, decides in the place of checks, locks and runs commands by hand; enables webhooks, and reads their tokens and last calls.
    Deployer,
    /// Registers, changes and deletes apps; disables webhooks; makes API tokens and reads the audit.
    Admin,
}

words! { Role:
    Viewer = "viewer",
    Deployer = "deployer",
    Admin = "admin",
}

impl Role {
    /// The roles, from the one that may least.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Deployer, Self::Admin];

    /// Returns whether the role may do this: the one table of actions and roles.
    pub fn may(self, action: Action) -> bool {
        self >= action.least_role()
    }
}

impl FromStr for Role {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| InvalidName::new("role", text, "must be viewer, deployer or admin"))
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident = $word:literal, $role:ident;)*) => {
        /// An action that needs a permission.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Action {
            $($(#[$doc])* $action,)*
        }

        impl Action {
            /// Every action, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$action,)*];

            /// The least role that may do it.
            pub const fn least_role(self) -> Role {
                match self {
                    $(Self::$action => Role::$role,)*
                }
            }
        }

        words! { Action: $($action = $word,)* }
    };
}

actions! {
    /// Reads an app, its history, and the logs of its builds.
    Read = "read", Viewer;
    /// Deploys an image, or builds a commit.
    Deploy = "deploy", Deployer;
    /// Builds a commit again.
    Rebuild = "rebuild", Deployer;
    /// Deploys what another environment runs.
    Promote = "promote", Deployer;
    /// Returns an app to an earlier revision.
    Rollback = "roll back", Deployer;
    /// Ends an unfinished deploy.
    Cancel = "cancel", Deployer;
    /// Decides on a deploy in the place of checks that came to no verdict.
    Decide = "decide without a verdict", Deployer;
    /// Runs a command by hand, and ends it.
    Run = "run commands by hand", Deployer;
    /// Reads an app's configuration: the names of its variables, and the values that are not secret.
    ReadConfiguration = "read the configuration", Deployer;
    /// Changes an app's configuration.
    Configure = "change the configuration", Deployer;
    /// Releases the holds of rollbacks.
    ReleaseHold = "release holds", Deployer;
    /// Locks an app or an environment, and ends or changes its own lock.
    Lock = "lock deploys", Deployer;
    /// Ends or changes another party's lock.
    Unlock = "end another's lock", Admin;
    /// Deploys in spite of a lock.
    BreakGlass = "deploy in spite of a lock", Admin;
    /// Gives a webhook a new token, which is shown.
    EnableWebhook = "enable the webhook", Deployer;
    /// Reads a webhook's token.
    ReadToken = "read the webhook's token", Deployer;
    /// Reads the last calls of a webhook, with their callers' addresses and why they were refused.
    ReadCalls = "read the webhook's calls", Deployer;
    /// Measures a check of an app now.
    TestCheck = "test checks", Deployer;
    /// Disables a webhook.
    DisableWebhook = "disable the webhook", Admin;
    /// Changes the pipelines whose id_tokens open a webhook.
    ChangeTrusts = "change trusted pipelines", Admin;
    /// Registers an app.
    Register = "register apps", Admin;
    /// Changes an app's policy or source.
    Change = "change policy and source", Admin;
    /// Sets and ends the requirements on the images of projects and environments.
    Require = "require signed images", Admin;
    /// Deletes an app.
    Delete = "delete apps", Admin;
    /// Makes, lists and revokes API tokens.
    ManageTokens = "manage API tokens", Admin;
    /// Lists and ends the sessions of others, on everything alone.
    ManageSessions = "manage sessions", Admin;
    /// Adds, lists, tests and removes receivers of notifications.
    ManageReceivers = "manage receivers of notifications", Admin;
    /// Reads the audit.
    ReadAudit = "read the audit", Admin;
}

impl From<AppAction> for Action {
    fn from(action: AppAction) -> Self {
        match action {
            AppAction::Read => Self::Read,
            AppAction::Deploy => Self::Deploy,
            AppAction::Rebuild => Self::Rebuild,
            AppAction::Promote => Self::Promote,
            AppAction::Rollback => Self::Rollback,
            AppAction::Cancel => Self::Cancel,
            AppAction::Decide => Self::Decide,
            AppAction::Run => Self::Run,
            AppAction::ReadConfiguration => Self::ReadConfiguration,
            AppAction::Configure => Self::Configure,
            AppAction::ReleaseHold => Self::ReleaseHold,
            AppAction::Lock => Self::Lock,
            AppAction::BreakGlass => Self::BreakGlass,
            AppAction::EnableWebhook => Self::EnableWebhook,
            AppAction::ReadToken => Self::ReadToken,
            AppAction::DisableWebhook => Self::DisableWebhook,
            AppAction::TestCheck => Self::TestCheck,
            AppAction::Change => Self::Change,
            AppAction::Delete => Self::Delete,
        }
    }
}

impl Action {
    /// Returns whether the audit has the action. The others are in the app's history, or change nothing.
    pub const fn is_audited(self) -> bool {
        match self {
            Self::Read | Self::ReadCalls | Self::ReadConfiguration => false,
            Self::Deploy | Self::Rebuild | Self::Promote | Self::Rollback | Self::Cancel | Self::Decide => false,
            Self::Run
            | Self::Configure
            | Self::ReleaseHold
            | Self::Lock
            | Self::Unlock
            | Self::BreakGlass
            | Self::EnableWebhook
            | Self::ReadToken
            | Self::TestCheck
            | Self::DisableWebhook
            | Self::ChangeTrusts
            | Self::Register
            | Self::Change
            | Self::Require
            | Self::Delete
            | Self::ManageTokens
            | Self::ManageSessions
            | Self::ManageReceivers => true,
            Self::ReadAudit => false,
        }
    }

    /// Returns whether the action changes nothing: the audit counts repetitions in one entry.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadToken | Self::ReadCalls | Self::ReadAudit)
    }
}

/// The apps that a grant is for: the pair that an app was registered with counts, not the namespace that it spells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "on")]
pub enum Realm {
    /// The apps of every project.
    Everything,
    /// The apps of a project.
    Project {
        /// The project.
        project: Project,
    },
    /// The apps of one environment of a project.
    Environment {
        /// The project.
        project: Project,
        /// The project's environment.
        environment: Environment,
    },
}

impl Realm {
    /// Returns the realm of these names.
    ///
    /// # Errors
    /// If an environment is named without its project.
    pub fn of(project: Option<Project>, environment: Option<Environment>) -> Result<Self, InvalidName> {
        match (project, environment) {
            (None, None) => Ok(Self::Everything),
            (Some(project), None) => Ok(Self::Project { project }),
            (Some(project), Some(environment)) => Ok(Self::Environment { project, environment }),
            (None, Some(environment)) => {
                Err(InvalidName::new("environment", environment.as_str(), "needs the project that it belongs to"))
            }
        }
    }

    /// Returns the realm of an app: the pair that it was registered with.
    pub fn of_app(app: &App) -> Self {
        Self::Environment { project: app.project.clone(), environment: app.environment.clone() }
    }

    /// The project, unless the realm is everything.
    pub const fn project(&self) -> Option<&Project> {
        match self {
            Self::Everything => None,
            Self::Project { project } | Self::Environment { project, .. } => Some(project),
        }
    }

    /// The environment, if the realm is one.
    pub const fn environment(&self) -> Option<&Environment> {
        match self {
            Self::Everything | Self::Project { .. } => None,
            Self::Environment { environment, .. } => Some(environment),
        }
    }

    /// Returns this realm and each that contains it, the smallest first.
    pub(crate) fn and_containing(&self) -> Vec<Self> {
        let project = self.project().map(|project| Self::Project { project: project.clone() });
        let mut realms = vec![self.clone()];
        realms.extend(project.filter(|project| project != self));
        realms.extend(Some(Self::Everything).filter(|everything| everything != self));
        realms
    }

    /// Returns whether everything in the other realm is in this one.
    pub fn contains(&self, other: &Self) -> bool {
        let is_project = self.project().is_none_or(|project| other.project() == Some(project));
        is_project && self.environment().is_none_or(|environment| other.environment() == Some(environment))
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.pad("everything"),
            Self::Project { project } => write!(f, "project {project}"),
            Self::Environment { project, environment } => write!(f, "project {project}, environment {environment}"),
        }
    }
}

/// A role on the apps of a realm.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The role of the principal.
    pub role: Role,
    /// The apps that it is for.
    #[serde(flatten)]
    pub realm: Realm,
}

impl Grant {
    /// The grant of everything.
    pub const ALL: Self = Self { role: Role::Admin, realm: Realm::Everything };

    /// Returns whether the grant allows the action on all of the realm.
    pub fn allows(&self, action: Action, realm: &Realm) -> bool {
        self.role.may(action) && self.realm.contains(realm)
    }
}

/// A grant to every member of a group, as the provider of a sign-in names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGrant {
    /// The group's exact name.
    pub group: String,
    /// The role and realm of its members.
    pub grant: Grant,
}

impl GroupGrant {
    /// Returns the grants of a person who is in these groups, each once.
    pub fn of_groups(all: &[Self], groups: &[String]) -> Vec<Grant> {
        let mut grants: Vec<Grant> = Vec::new();
        for granted in all.iter().filter(|granted| groups.contains(&granted.group)) {
            if !grants.contains(&granted.grant) {
                grants.push(granted.grant.clone());
            }
        }
        grants
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.role, self.realm)
    }
}

checked_text! {
    /// The name of an API token: a DNS-1123 label, such as `ci-shop`.
    TokenName, InvalidName, |text| label("token", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realm(text: &str) -> Realm {
        let mut parts = text.split('/');
        let project = parts.next().filter(|part| !part.is_empty()).map(|part| part.parse().unwrap());
        Realm::of(project, parts.next().map(|part| part.parse().unwrap())).unwrap()
    }

    #[test]
    fn the_table_says_cell_by_cell_what_each_role_may_do() {
        let table = [
            (Action::Read, [true, true, true]),
            (Action::Deploy, [false, true, true]),
            (Action::Rebuild, [false, true, true]),
            (Action::Promote, [false, true, true]),
            (Action::Rollback, [false, true, true]),
            (Action::Cancel, [false, true, true]),
            (Action::Decide, [false, true, true]),
            (Action::Run, [false, true, true]),
            (Action::ReadConfiguration, [false, true, true]),
            (Action::Configure, [false, true, true]),
            (Action::ReleaseHold, [false, true, true]),
            (Action::Lock, [false, true, true]),
            (Action::Unlock, [false, false, true]),
            (Action::BreakGlass, [false, false, true]),
            (Action::EnableWebhook, [false, true, true]),
            (Action::ReadToken, [false, true, true]),
            (Action::ReadCalls, [false, true, true]),
            (Action::TestCheck, [false, true, true]),
            (Action::DisableWebhook, [false, false, true]),
            (Action::ChangeTrusts, [false, false, true]),
            (Action::Register, [false, false, true]),
            (Action::Change, [false, false, true]),
            (Action::Require, [false, false, true]),
            (Action::Delete, [false, false, true]),
            (Action::ManageTokens, [false, false, true]),
            (Action::ManageSessions, [false, false, true]),
            (Action::ManageReceivers, [false, false, true]),
            (Action::ReadAudit, [false, false, true]),
        ];
        assert_eq!(table.map(|(action, _)| action).as_slice(), Action::ALL, "every action has its row");
        for (action, may) in table {
            assert_eq!(Role::ALL.map(|role| role.may(action)), may, "{action}");
        }
    }

    #[test]
    fn a_grant_reaches_no_further_than_its_realm() {
        let realms = ["", "shop", "shop/test", "shop/prod", "shop-test", "blog/test"].map(realm);
        let inside = [
            [true, true, true, true, true, true],
            [false, true, true, true, false, false],
            [false, false, true, false, false, false],
            [false, false, false, true, false, false],
            [false, false, false, false, true, false],
            [false, false, false, false, false, true],
        ];
        for (outer, row) in realms.iter().zip(inside) {
            for (inner, expected) in realms.iter().zip(row) {
                assert_eq!(outer.contains(inner), expected, "{outer} contains {inner}");
            }
        }
    }

    #[test]
    fn a_person_has_the_grants_of_its_groups_each_once_and_of_no_other() {
        let granted = |group: &str, role, place: &str| GroupGrant {
            group: group.to_owned(),
            grant: Grant { role, realm: realm(place) },
        };
        let all = [
            granted("platform", Role::Admin, ""),
            granted("shop", Role::Deployer, "shop/test"),
            granted("shop", Role::Viewer, "shop/prod"),
            granted("testers", Role::Deployer, "shop/test"),
        ];
        let of = |groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(|group| (*group).to_owned()).collect();
            GroupGrant::of_groups(&all, &groups).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["shop", "testers", "unknown"]).len(), 2, "one pair of role and realm is one grant");
        assert_eq!(of(&["platform"]), [Grant::ALL.to_string()]);
        for none in [&[][..], &["Platform"], &["platform "], &["plat"], &[""]] {
            assert!(of(none).is_empty(), "{none:?}");
        }
    }

    #[test]
    fn pairs_that_spell_one_namespace_are_two_realms() {
        let grant = Grant { role: Role::Admin, realm: realm("a/b-c") };
        assert!(grant.allows(Action::Delete, &realm("a/b-c")));
        assert!(!grant.allows(Action::Read, &realm("a-b/c")));
    }

    #[test]
    fn an_environment_needs_its_project() {
        assert!(Realm::of(None, Some("test".parse().unwrap())).is_err());
        assert!("owner".parse::<Role>().is_err());
    }

    #[test]
    fn grants_are_stored_by_their_words() {
        let stored = |grant: &Grant| serde_json::to_string(grant).unwrap();
        assert_eq!(stored(&Grant::ALL), r#"{"role":"admin","on":"everything"}"#);
        let grant = Grant { role: Role::Deployer, realm: realm("shop/test") };
        assert_eq!(stored(&grant), r#"{"role":"deployer","on":"environment","project":"shop","environment":"test"}"#);
        assert_eq!(serde_json::from_str::<Grant>(&stored(&grant)).unwrap(), grant);
    }
}
