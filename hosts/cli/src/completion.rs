//! Completion of command lines: commands and flags by their definition, names by the apps that the server lists.
//!
//! The script of `rollhook completions` calls `rollhook` with the words so far and this variable set.

use std::{
    env,
    ffi::{OsStr, OsString},
    time::Duration,
};

use clap::Command;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell, env::Shells};
use rollhook_api::App;

use crate::{
    api::Api,
    args::{Cli, Format, Named},
    commands::Session,
    contexts::Contexts,
    exit::CliError,
    output::{Output, print},
    remote::Server,
};

/// The variable that says for which shell words are completed.
const VARIABLE: &str = "ROLLHOOK_COMPLETE";
/// The time in which the server has to list its apps: a person has pressed a key.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Completes the words and ends the process if the shell asks for it.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| with_names(Cli::definition())).var(VARIABLE).bin("rollhook").complete();
}

/// Prints the script that makes a shell ask.
///
/// # Errors
/// If the shell is unknown, or standard output is closed.
pub(crate) fn script(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer =
        shells.completer(&name).ok_or_else(|| CliError::Usage(format!("There are no completions for {name}.")))?;
    let written = completer.write_registration(VARIABLE, "rollhook", "rollhook", "rollhook", &mut script);
    written.map_err(|error| CliError::Other(format!("The script cannot be written: {error}.")))?;
    print(&String::from_utf8_lossy(&script))
}

/// Adds the completers of names to a command and those below it.
fn with_names(command: Command) -> Command {
    let backends = Cli::backend_flags();
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        // They would hide the others.
        id if backends.iter().any(|backend| backend.as_str() == id) => arg.hide(true),
        "app" => arg.add(ArgValueCompleter::new(apps_of_context)),
        "project" | "from_project" => arg.add(ArgValueCompleter::new(|word: &OsStr| names(word, |app| &app.project))),
        "environment" | "from_environment" => {
            arg.add(ArgValueCompleter::new(|word: &OsStr| names(word, |app| &app.environment)))
        }
        _ => arg,
    });
    command.mut_subcommands(with_names)
}

/// Returns the names of apps, of the context's project and environment where none is named.
fn apps_of_context(word: &OsStr) -> Vec<CompletionCandidate> {
    let named = Named::by(&words(word));
    let contexts = Contexts::read().unwrap_or_default();
    let named = match contexts.current().filter(|_| named.server.is_none() && !named.names_backends) {
        Some(context) => named.or(context),
        None => named,
    };
    candidates(word, &named, |app| &app.app)
}

/// Returns the names that begin like the word, of the apps that the other words leave. A server that does not answer
/// has none: nothing is printed between the words of a person.
fn names(word: &OsStr, name: fn(&App) -> &String) -> Vec<CompletionCandidate> {
    candidates(word, &Named::by(&words(word)), name)
}

fn candidates(word: &OsStr, named: &Named, name: fn(&App) -> &String) -> Vec<CompletionCandidate> {
    let Some(begin) = word.to_str() else { return Vec::new() };
    let mut found: Vec<String> = apps(named)
        .unwrap_or_default()
        .iter()
        .filter(|app| named.has(&app.project, &app.environment))
        .map(|app| name(app).clone())
        .filter(|name| name.starts_with(begin))
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the words of the command line without the one that is being completed.
fn words(current: &OsStr) -> Vec<OsString> {
    let mut words: Vec<OsString> = env::args_os().skip_while(|word| word != "--").skip(1).collect();
    if let Some(at) = words.iter().rposition(|word| word == current) {
        words.remove(at);
    }
    words
}

fn apps(named: &Named) -> Option<Vec<App>> {
    let contexts = Contexts::read().ok()?;
    let server = match &named.server {
        Some(server) => server,
        None if named.names_backends => return None,
        None => &contexts.current()?.server,
    };
    let server = Server::new(server).ok()?;
    let session = Session { api: &Api::Server(server), direct: None, output: Output::new(Format::Table) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let listed = runtime.block_on(async { tokio::time::timeout(LIST_TIMEOUT, session.apps(None)).await });
    Some(listed.ok()?.ok()?.apps)
}
