//! The words of the command line; every flag that configures is an environment variable too, except secrets, which are
//! never a flag's value.

mod app;
mod cluster;
mod value;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, error::ErrorKind, parser::ValueSource,
};

pub(crate) use app::{AppCommand, BuildLogs, Create, Deploy, List, Promote, Rebuild, Rollback, Set, Webhook};
pub(crate) use cluster::InCluster;
pub(crate) use value::Names;

/// What stands below every help text.
const EXIT_CODES: &str = "\
Exit codes:
  0    done; with --wait, the deploy succeeded
  1    refused, or failed for another reason
  2    the command line is not right
  3    the deploy ended without success
  4    not authorised
  5    the server or the store cannot be reached
  6    needs a confirmation that was not given (see --yes)
  130  interrupted; what was accepted stays accepted";

/// Deploys images to apps, shows what was deployed, and rolls back.
///
/// With --server, it talks to a rollhook server. Without, it works on the store and the cluster itself, and drives each
/// deploy to its end.
#[derive(Debug, Parser)]
#[command(name = "rollhook", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// How data is printed
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) connection: Connection,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the apps are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where the apps are")]
pub(crate) struct Connection {
    /// URL of the rollhook server
    ///
    /// The management token comes from ROLLHOOK_TOKEN, or from the file that ROLLHOOK_TOKEN_FILE names.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_SERVER",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub(crate) server: Option<String>,

    /// Without a server: the store: sqlite:FILE, postgres://USER@HOST/DATABASE or kubernetes; default: SQLite in the XDG data directory
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_STORE",
        hide_env_values = true,
        value_name = "STORE"
    )]
    pub(crate) store: Option<String>,

    /// Without a server: what rolls out: kubernetes, or to try things out simulated or simulated:DELAY, which deploy nowhere
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_DRIVER",
        hide_env_values = true,
        value_name = "DRIVER"
    )]
    pub(crate) driver: Option<String>,

    /// Without a server: the directory of the keys that tokens are sealed with; default: in the XDG data directory
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_KEY_DIR",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub(crate) key_dir: Option<PathBuf>,

    /// Without a server: the program that builds git apps on this machine
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_COMMAND",
        hide_env_values = true,
        value_name = "PROGRAM"
    )]
    pub(crate) build_command: Option<PathBuf>,

    /// Without a server: the directory of builds and their logs; default: in the XDG data directory
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_DIR",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub(crate) build_dir: Option<PathBuf>,

    /// Without a server: the directory of the credentials that git apps name
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_CREDENTIALS",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub(crate) build_credentials: Option<PathBuf>,

    /// Without a server: let git apps be built from this machine's files and addresses, and over plain http
    #[arg(long, global = true, hide_short_help = true, env = "ROLLHOOK_ALLOW_LOCAL_SOURCES", hide_env_values = true)]
    pub(crate) allow_local_sources: bool,

    #[command(flatten)]
    pub(crate) cluster: InCluster,

    /// Without a server: where the server that shares the store is reached, for webhook URLs
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BASE_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) base_url: String,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For people, with all columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl Format {
    /// Whether a program reads it.
    pub(crate) const fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}

impl Cli {
    /// Reads a command line. A flag that names the place beats a variable that names another one.
    ///
    /// # Errors
    /// What clap has to say about it, help included.
    pub(crate) fn read<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let flag = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let direct = flag("store") || flag("driver");
        if flag("server") && direct {
            let why = "--server asks a server, --store and --driver work without one: name one place";
            return Err(command.error(ErrorKind::ArgumentConflict, why));
        }
        let mut cli = Self::from_arg_matches(&matches)?;
        if direct {
            cli.connection.server = None;
        }
        Ok(cli)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Apps, their webhooks, deploys and rollbacks
    #[command(subcommand)]
    App(AppCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests;
