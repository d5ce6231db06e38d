//! `rollhook login …` and `rollhook context …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rollhook_core::app::{Environment, Project};

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The server's URL
    #[arg(value_name = "URL")]
    pub(crate) server: String,
    /// File of an API token, which is used in place of signing in with a browser; it is read at each command
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The context's name [default: the server's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// The project and environment that commands work on which name none.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The project of commands that name none
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// The environment of commands that name none
    #[arg(short, long)]
    pub(crate) environment: Option<Environment>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the servers that you are signed in to
    #[command(visible_alias = "ls")]
    List,
    /// Use this server where none is named
    Use {
        /// The context's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: Place,
    },
}
