//! `rollhook app lock`, `rollhook app unlock` and `rollhook environment …`.

use clap::{Args, Subcommand};
use rollhook_core::{
    app::{Environment, Project},
    lock::LockReason,
};

use super::{Target, value::expires};

/// A new lock.
#[derive(Clone, Debug, Args)]
pub(crate) struct NewLock {
    /// The reason, for those whose deploys are refused
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: LockReason,
    /// The time after which the lock ends by itself, such as 2h or 3d [default: it is ended by hand]
    #[arg(long, value_name = "TIME", value_parser = expires)]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) lock: NewLock,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvironmentCommand {
    /// Refuse new deploys of all its apps, except rollbacks
    Lock(LockEnvironment),
    /// End its lock; the locks of its apps alone stay
    Unlock(EnvironmentName),
    /// List the locked environments
    Locks,
}

/// An environment of a project.
#[derive(Clone, Debug, Args)]
pub(crate) struct EnvironmentName {
    /// The project
    #[arg(short, long, env = "ROLLHOOK_PROJECT", hide_env_values = true)]
    pub(crate) project: Project,
    /// The project's environment
    #[arg(short, long, env = "ROLLHOOK_ENVIRONMENT", hide_env_values = true)]
    pub(crate) environment: Environment,
}

#[derive(Debug, Args)]
pub(crate) struct LockEnvironment {
    #[command(flatten)]
    pub(crate) name: EnvironmentName,
    #[command(flatten)]
    pub(crate) lock: NewLock,
}
