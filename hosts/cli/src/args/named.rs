//! The names on a command line, as far as it is written.

use std::ffi::OsString;

use clap::{ArgMatches, parser::ValueSource};
use rollhook_core::app::{Environment, Project};

use super::Cli;
use crate::contexts::Context;

/// The names on a command line, by flags or by variables; the line may lack its end.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The URL of the server.
    pub(crate) server: Option<String>,
    /// Whether a store or a driver is named, to work without a server.
    pub(crate) names_backends: bool,
    project: Option<Project>,
    environment: Option<Environment>,
}

impl Named {
    /// Reads the names on a command line.
    pub(crate) fn by(words: &[OsString]) -> Self {
        let Ok(matches) = Cli::definition().ignore_errors(true).try_get_matches_from(words) else {
            return Self::default();
        };
        let backend = |name| one::<String>(&matches, name).is_some();
        let command = innermost(&matches);
        Self {
            server: one::<String>(&matches, "server").filter(|server| !server.is_empty()),
            names_backends: backend("store") || backend("driver"),
            project: one(command, "project"),
            environment: one(command, "environment"),
        }
    }

    /// The same, with the project and the environment of the context where none is named.
    pub(crate) fn or(self, context: &Context) -> Self {
        let project = self.project.or_else(|| context.project.clone());
        Self { project, environment: self.environment.or_else(|| context.environment.clone()), ..self }
    }

    /// Returns whether apps of this project and environment are meant.
    pub(crate) fn has(&self, project: &str, environment: &str) -> bool {
        self.project.as_ref().is_none_or(|named| named.as_str() == project)
            && self.environment.as_ref().is_none_or(|named| named.as_str() == environment)
    }
}

/// Returns the matches of the command that was called last on a line.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    match matches.subcommand() {
        Some((_, inner)) => innermost(inner),
        None => matches,
    }
}

/// Returns why a line names one environment and its whole project; a context or a variable names one for other lines too.
pub(super) fn contradiction(matches: &ArgMatches) -> Option<&'static str> {
    let command = innermost(matches);
    let is_given =
        |id| command.try_contains_id(id).is_ok() && command.value_source(id) == Some(ValueSource::CommandLine);
    (is_given("environment") && is_given("whole_project"))
        .then_some("--environment names one environment, --whole-project means all of them: give one or the other")
}

fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.try_get_one::<T>(name).ok().flatten().cloned()
}

/// Fills in the project and the environment that a person has set for the context, where a command needs them, or the environment
/// in place of a whole project.
pub(super) fn with_defaults(command: clap::Command, context: &Context) -> clap::Command {
    let may_be_whole = command.get_arguments().any(|arg| arg.get_id() == "whole_project");
    let command = command.mut_args(|arg| {
        let value = match arg.get_id().as_str() {
            "project" if arg.is_required_set() => context.project.as_ref().map(ToString::to_string),
            "environment" if arg.is_required_set() || may_be_whole => {
                context.environment.as_ref().map(ToString::to_string)
            }
            _ => None,
        };
        match value {
            Some(value) => arg.required(false).default_value(value).hide_default_value(true),
            None => arg,
        }
    });
    command.mut_subcommands(|command| with_defaults(command, context))
}
