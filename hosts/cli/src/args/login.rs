//! `rollhook login …` and `rollhook context …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    },
}
