//! The command line. Every flag that configures is an environment variable too; secrets are environment variables or
//! files only.

mod access;
mod app;
mod check;
mod config;
mod flag;
mod lock;
mod login;
mod made_with;
mod named;
mod receiver;
mod report;
mod requirement;
mod runs;
mod signers;
mod trust;
mod value;

use std::ffi::OsString;

use clap::{
    Args, CommandFactory, FromArgMatches, Id, Parser, Subcommand, ValueEnum, error::ErrorKind, parser::ValueSource,
};
use rollhook_wiring::Settings;

use crate::{contexts::Contexts, exit::Exit};

pub(crate) use access::{Audit, CreateToken, EndSession, ListSessions, RevokeToken, SessionCommand, TokenCommand};
pub(crate) use app::{
    AppCommand, BuildLogs, Cancel, Create, Delete, Deploy, Follow, History, List, Logs, LookUp, Promote, Rebuild,
    Rollback, Rotate, Scale, Set, Target, Verdict, Wait, WaitFor, Webhook, WebhookStatus,
};
pub(crate) use check::{AddCheck, CheckCommand, NamedCheck};
pub(crate) use config::{ConfigCommand, ConfigDiff, ConfigDiscard, ConfigList, ConfigSet, ConfigUnset, When};
pub(crate) use flag::{flags, in_flags, list_in_flags};
pub(crate) use lock::{EnvironmentCommand, EnvironmentName, Lock, LockEnvironment, NewLock};
pub(crate) use login::{ContextCommand, LoginArgs, Place};
pub(crate) use named::Named;
pub(crate) use receiver::{AddReceiverArgs, NamedReceiver, ReceiverCommand};
pub(crate) use report::{Activity, Report};
pub(crate) use requirement::{NewRequirement, RequirementCommand, RequirementRealm};
pub(crate) use runs::{Run, Runs};
pub(crate) use trust::{AddTrustArgs, RemoveTrust, TrustCommand};
pub(crate) use value::{KeyValue, NamedCommand, WorkloadName};

/// Deploys images to apps, shows what was deployed, and rolls back.
///
/// With --server, it talks to a rollhook server. Without, it works on the store and the cluster itself, and drives each
/// deploy to its end.
#[derive(Debug, Parser)]
#[command(name = "rollhook", version, after_help = Exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// How data is printed
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) connection: Connection,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The heading of flags that replace a server.
const WITHOUT_SERVER: &str = "Without a server";

/// Where the apps are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where the apps are")]
pub(crate) struct Connection {
    /// URL of the rollhook server
    ///
    /// The API token comes from ROLLHOOK_TOKEN, from the file that ROLLHOOK_TOKEN_FILE names, or from rollhook login.
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

impl Connection {
    /// Returns whether a store or a driver is named, to work without a server.
    pub(crate) const fn names_backends(&self) -> bool {
        self.backends.store.store.is_some() || self.backends.driver.is_some()
    }
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// A table for people, with all columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// A table for spreadsheets: of report and activity alone.
    Csv,
}

impl Format {
    /// Returns whether the format is for programs.
    pub(crate) const fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Csv)
    }
}

fn ids(command: &clap::Command) -> Vec<Id> {
    command.get_arguments().map(|arg| arg.get_id().clone()).collect()
}

impl Cli {
    /// Returns the flags that replace a server.
    pub(crate) fn backend_flags() -> Vec<Id> {
        ids(&Settings::augment_args(clap::Command::new("")))
    }

    /// Returns the definition of the command line. The flags of the connection may stand behind any command.
    pub(crate) fn definition() -> clap::Command {
        let connection = ids(&Connection::augment_args(clap::Command::new("")));
        let backends = Self::backend_flags();
        Self::command().mut_args(|arg| {
            let arg = if backends.contains(arg.get_id()) { arg.help_heading(WITHOUT_SERVER) } else { arg };
            if !connection.contains(arg.get_id()) {
                return arg;
            }
            arg.global(true).hide_short_help(true).hide_env_values(true)
        })
    }

    /// Reads a command line. A flag that names a server or store overrides a variable that names another one.
    ///
    /// # Errors
    /// clap's message, help included.
    pub(crate) fn read<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = Self::definition();
        // Contexts that cannot be read are reported by the command.
        if let Some(context) = Contexts::read().ok().as_ref().and_then(Contexts::current)
            && (context.project.is_some() || context.environment.is_some())
        {
            let named = Named::by(&words);
            if named.server.is_none() && !named.names_backends {
                command = named::with_defaults(command, context);
            }
        }
        let matches = command.try_get_matches_from_mut(words)?;
        let flag = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let direct = flag("store") || flag("driver");
        if flag("server") && direct {
            let why = "--server asks a server, --store and --driver work without one: give one or the other";
            return Err(command.error(ErrorKind::ArgumentConflict, why));
        }
        if let Some(why) = named::contradiction(&matches) {
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
    /// Requirements of signed images on projects and environments: set, list, remove
    #[command(subcommand)]
    Requirement(RequirementCommand),
    /// Environments: lock all of their apps, and unlock them
    #[command(subcommand)]
    Environment(EnvironmentCommand),
    /// Show who deployed what where, newest first
    Activity(Activity),
    /// Show how often deploys reach users, how long changes take, and how many fail
    Report(Report),
    /// Sign in to a server: commands that name none work on it from then on
    Login(LoginArgs),
    /// Servers that you are signed in to: list, use
    #[command(subcommand)]
    Context(ContextCommand),
    /// API tokens: create, list, revoke
    #[command(subcommand)]
    Token(TokenCommand),
    /// Sessions of the console and of command lines: list, end
    #[command(subcommand)]
    Session(SessionCommand),
    /// Receivers of notifications: add, list, test, remove
    #[command(subcommand)]
    Receiver(ReceiverCommand),
    /// Show who managed what, and what was refused, newest first
    Audit(Audit),
    /// Show the caller and its roles
    Whoami,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests;
