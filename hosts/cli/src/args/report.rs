//! `rollhook activity` and `rollhook report`.

use clap::Args;
use rollhook_api::report::Days;
use rollhook_core::app::{Environment, Project};
use rollhook_management::report::StatusFilter;

// Not by environment variables: a person who has set them must still be able to see all apps.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Only apps of this project
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// Only apps in environments of this name
    #[arg(short, long)]
    pub(crate) environment: Option<Environment>,
    /// The period, which ends today: 7, 30 or 90 days, in UTC
    #[arg(long, value_name = "N", default_value_t)]
    pub(crate) days: Days,
}

#[derive(Debug, Args)]
pub(crate) struct Activity {
    /// Only deploys of this project
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// Only deploys to environments of this name
    #[arg(short, long)]
    pub(crate) environment: Option<Environment>,
    /// Only deploys by those whose name has this text, in capitals or not
    #[arg(long, value_name = "TEXT")]
    pub(crate) actor: Option<String>,
    /// Only deploys that are so: succeeded, failed, superseded, cancelled or unfinished
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<StatusFilter>,
    /// At most this many deploys
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}
