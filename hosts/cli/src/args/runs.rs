//! The arguments of commands by hand.

use clap::Args;
use rollhook_core::run::RunNumber;

use super::{Target, value::duration};

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The program and its arguments, after --; no shell reads them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// The time that the command may take, such as 15m; at most 4h [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<String>,
    /// Return at once; app runs --follow shows the log and the end
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print the log of this run until it has ended, and end with its exit code
    #[arg(long, value_name = "RUN")]
    pub(crate) follow: Option<RunNumber>,
    /// End this run
    #[arg(long, value_name = "RUN", conflicts_with = "follow")]
    pub(crate) cancel: Option<RunNumber>,
}
