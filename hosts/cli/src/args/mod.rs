//! The words of the command line; every flag that configures is an environment variable too, except secrets, which are
//! never a flag's value.

mod app;
mod value;

use std::ffi::OsString;

use clap::{
    Args, CommandFactory, FromArgMatches, Id, Parser, Subcommand, ValueEnum, error::ErrorKind, parser::ValueSource,
};
use rollhook_wiring::Settings;

pub(crate) use app::{AppCommand, BuildLogs, Create, Deploy, List, Promote, Rebuild, Rollback, Set, Webhook};
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

/// The heading of flags that a server has for itself.
const WITHOUT_SERVER: &str = "Without a server";

/// Where the apps are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where the apps are")]
pub(crate) struct Connection {
    /// URL of the rollhook server
    ///
    /// The management token comes from ROLLHOOK_TOKEN, or from the file that ROLLHOOK_TOKEN_FILE names.
    #[arg(long, env = "ROLLHOOK_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,

    /// The backends, without a server.
    #[command(flatten)]
    pub(crate) backends: Settings,

    /// URL of the server that shares the store, for webhook URLs
    #[arg(
        long,
        env = "ROLLHOOK_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        help_heading = WITHOUT_SERVER
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
    /// The definition of the command line. The flags that say where the apps are may stand behind any command.
    pub(crate) fn definition() -> clap::Command {
        let ids =
            |command: clap::Command| -> Vec<Id> { command.get_arguments().map(|arg| arg.get_id().clone()).collect() };
        let place = ids(Connection::augment_args(clap::Command::new("")));
        let backends = ids(Settings::augment_args(clap::Command::new("")));
        Self::command().mut_args(|arg| {
            let arg = if backends.contains(arg.get_id()) { arg.help_heading(WITHOUT_SERVER) } else { arg };
            if !place.contains(arg.get_id()) {
                return arg;
            }
            arg.global(true).hide_short_help(true).hide_env_values(true)
        })
    }

    /// Reads a command line. A flag that names the place beats a variable that names another one.
    ///
    /// # Errors
    /// What clap has to say about it, help included.
    pub(crate) fn read<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let mut command = Self::definition();
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
