//! `rollhook app config …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rollhook_core::{deploy::Revision, lock::LockReason};

use super::{Target, Wait};

/// The words below the help of `app config set`.
const KEPT: &str = "A value in NAME=VALUE stays in the shell's history, and others on the machine see it in the list of \
                    processes: give secrets by NAME=- from standard input, by NAME=@FILE or by --file. Nothing in a value is expanded.";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Set variables: a new revision of the image that runs, or with --staged for the next deploy
    #[command(after_help = KEPT)]
    Set(ConfigSet),
    /// Remove variables, as set sets them
    Unset(ConfigUnset),
    /// Withdraw the change that waits for the next deploy
    Discard(ConfigDiscard),
    /// List the variables: names, lengths and fingerprints, and the values of plain ones
    #[command(visible_alias = "ls")]
    List(ConfigList),
    /// Show in which variables two revisions differ
    Diff(ConfigDiff),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSet {
    #[command(flatten)]
    pub(crate) target: Target,
    /// A variable: NAME=VALUE; NAME=- for the value from standard input, without its last line end; NAME=@FILE for the content
    /// of a file
    // Kept as text until it is used: clap repeats what it cannot parse.
    #[arg(value_name = "NAME=VALUE", required_unless_present = "file")]
    pub(crate) variables: Vec<String>,
    /// Set the variables of this .env file: NAME=VALUE, export, quotes and comments; nothing is expanded
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The values are no secrets: they are shown
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) when: When,
}

/// The time at which a change of the configuration takes effect.
#[derive(Debug, Args)]
pub(crate) struct When {
    /// Let the change wait for the next deploy, whatever it deploys
    #[arg(long, conflicts_with_all = ["wait", "break_glass"])]
    pub(crate) staged: bool,
    /// Change it in spite of a lock, for this reason, which the audit keeps (takes the role admin)
    #[arg(long, value_name = "REASON")]
    pub(crate) break_glass: Option<LockReason>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigUnset {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The name of a variable
    // Kept as text: see `ConfigSet`.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// The values have leaked: a rollback that would bring one of them back asks first
    #[arg(long)]
    pub(crate) revoked: bool,
    #[command(flatten)]
    pub(crate) when: When,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigDiscard {
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigList {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The variables of this revision [default: the current one, and what waits for the next deploy]
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<Revision>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigDiff {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The revision to compare from
    #[arg(value_name = "A")]
    pub(crate) from: Revision,
    /// The revision to compare with
    #[arg(value_name = "B")]
    pub(crate) to: Revision,
}
