//! The actions that a caller may be allowed to do to an app.

use std::fmt;

use crate::text::words;

/// An action on one app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Reads an app, its history, and the logs of its builds.
    Read,
    /// Deploys an image, or builds a commit.
    Deploy,
    /// Builds a commit again.
    Rebuild,
    /// Deploys the version that another environment runs.
    Promote,
    /// Returns an app to an earlier revision.
    Rollback,
    /// Ends an unfinished deploy.
    Cancel,
    /// Decides on a deploy in the place of checks that came to no verdict.
    Decide,
    /// Runs a command by hand, and ends it.
    Run,
    /// Reads an app's configuration: names, and the values that are not secret.
    ReadConfiguration,
    /// Changes an app's configuration.
    Configure,
    /// Releases the holds of rollbacks.
    ReleaseHold,
    /// Locks an app, and ends or changes its lock.
    Lock,
    /// Deploys in spite of a lock.
    BreakGlass,
    /// Gives a webhook a new token, which is shown.
    EnableWebhook,
    /// Reads a webhook's token.
    ReadToken,
    /// Disables a webhook.
    DisableWebhook,
    /// Measures a check of an app now.
    TestCheck,
    /// Changes an app's policy or source.
    Change,
    /// Deletes an app.
    Delete,
}

words! { Action:
    Read = "read",
    Deploy = "deploy",
    Rebuild = "rebuild",
    Promote = "promote",
    Rollback = "roll back",
    Cancel = "cancel",
    Decide = "decide without a verdict",
    Run = "run commands by hand",
    ReadConfiguration = "read the configuration",
    Configure = "change the configuration",
    ReleaseHold = "release holds",
    Lock = "lock deploys",
    BreakGlass = "deploy in spite of a lock",
    EnableWebhook = "enable the webhook",
    ReadToken = "read the webhook's token",
    DisableWebhook = "disable the webhook",
    TestCheck = "test checks",
    Change = "change policy and source",
    Delete = "delete apps",
}

impl Action {
    /// Every action.
    pub const ALL: &'static [Self] = &[
        Self::Read,
        Self::Deploy,
        Self::Rebuild,
        Self::Promote,
        Self::Rollback,
        Self::Cancel,
        Self::Decide,
        Self::Run,
        Self::ReadConfiguration,
        Self::Configure,
        Self::ReleaseHold,
        Self::Lock,
        Self::BreakGlass,
        Self::EnableWebhook,
        Self::ReadToken,
        Self::DisableWebhook,
        Self::TestCheck,
        Self::Change,
        Self::Delete,
    ];
}
