//! Values of flags that have parts.

use std::{fmt, str::FromStr};

use rollhook_core::{
    app::{AppUrl, InvalidName, ReleaseGroup},
    follow::Follow,
};
use serde_json::{Value, json};

/// `NAME=VALUE`, an environment variable of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for KeyValue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self { name: name.to_owned(), value: value.to_owned() }),
            Some(_) | None => Err("must be NAME=VALUE (the app's environment is --environment)"),
        }
    }
}

/// The kinds of workload that can be rolled out.
const KINDS: [&str; 6] = ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "container", "compose"];

/// `[+]KIND[/NAME[:CONTAINER,…]]` of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadName {
    /// Whether it goes together with the workload before it.
    pub(crate) is_together: bool,
    pub(crate) kind: &'static str,
    pub(crate) name: Option<String>,
    /// Its containers, separated by commas.
    pub(crate) containers: Option<String>,
}

impl WorkloadName {
    /// Returns the first workload of a list, and the others.
    ///
    /// # Errors
    /// The rule that the list breaks.
    pub(crate) fn list(given: &[Self]) -> Result<(Option<&Self>, &[Self]), &'static str> {
        let Some((first, others)) = given.split_first() else { return Ok((None, &[])) };
        if first.is_together || first.containers.is_some() {
            return Err("--workload: the first one takes neither a + nor containers, which --container names.");
        }
        if others.iter().any(|other| other.name.is_none()) {
            return Err("--workload: each after the first one is named, such as Deployment/worker.");
        }
        Ok((Some(first), others))
    }

    /// Returns the workload as the API takes it in a list of further ones; with a command, it is made where it does not exist.
    pub(crate) fn listed(&self, command: Option<Value>) -> Value {
        let Some(command) = command else { return self.to_string().into() };
        let mut listed = json!({ "kind": self.kind, "name": self.name, "command": command });
        if self.is_together {
            listed["together"] = true.into();
        }
        if let Some(containers) = &self.containers {
            listed["containers"] = containers.split(',').collect();
        }
        listed
    }

    /// Returns whether these are the workload's kind and name.
    pub(crate) fn is(&self, kind: &str, name: &str) -> bool {
        self.kind == kind && self.name.as_deref().is_none_or(|own| own == name)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_together, kind, name, containers } = self;
        write!(f, "{}{kind}", if *is_together { "+" } else { "" })?;
        name.iter().try_for_each(|name| write!(f, "/{name}"))?;
        containers.iter().try_for_each(|containers| write!(f, ":{containers}"))
    }
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_together, text) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
        let (text, containers) = match text.split_once(':') {
            Some((_, "")) => return Err("the containers after the colon are empty".to_owned()),
            Some((text, containers)) => (text, Some(containers.to_owned())),
            None => (text, None),
        };
        let (kind, name) = match text.split_once('/') {
            Some((_, "")) => return Err("the name after the slash is empty".to_owned()),
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (text, None),
        };
        let known = KINDS.into_iter().find(|known| known.eq_ignore_ascii_case(kind));
        let rule = || {
            format!(
                "workload kind {kind:?}: must be Deployment, StatefulSet, DaemonSet or CronJob; on a machine with \
                 Docker, container or compose"
            )
        };
        Ok(Self { is_together, kind: known.ok_or_else(rule)?, name, containers })
    }
}

/// Checks a duration, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn duration(text: &str) -> Result<String, &'static str> {
    rollhook_api::duration::parse(text).map(|_| text.to_owned()).ok_or(rollhook_api::duration::RULE)
}

/// A program and its arguments, from one value of a flag.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine(pub(crate) Vec<String>);

/// `NAME=COMMAND`: the command of a container that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedCommand {
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

impl FromStr for NamedCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, line) = text.split_once('=').unwrap_or_default();
        if name.is_empty() || line.trim().is_empty() {
            return Err("must be NAME=COMMAND, with the name of a container, such as worker='bin/jobs'".to_owned());
        }
        Ok(Self { name: name.to_owned(), words: rollhook_api::words::command(line)? })
    }
}

/// Reads a program and its arguments.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn command_line(text: &str) -> Result<CommandLine, String> {
    rollhook_api::words::command(text).map(CommandLine)
}

/// Checks the address of an app, or nothing, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn app_url(text: &str) -> Result<String, InvalidName> {
    if text.is_empty() { Ok(String::new()) } else { text.parse().map(|url: AppUrl| url.to_string()) }
}

/// Checks the name of a release group, or nothing, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn release_group(text: &str) -> Result<String, InvalidName> {
    if text.is_empty() { Ok(String::new()) } else { text.parse().map(|group: ReleaseGroup| group.to_string()) }
}

/// Checks a duration or `off`, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn duration_or_off(text: &str) -> Result<String, &'static str> {
    if text == "off" { Ok(text.to_owned()) } else { duration(text) }
}

/// Reads a rule of following, or the word for none.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn follow_or_off(text: &str) -> Result<String, &'static str> {
    match text {
        "off" => Ok(text.to_owned()),
        rule => rule.parse::<Follow>().map(|rule| rule.to_string()).map_err(|invalid| invalid.rule),
    }
}

/// Reads a switch.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off"),
    }
}

/// Checks the time of a token or a lock, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(crate) fn expires(text: &str) -> Result<String, &'static str> {
    rollhook_api::access::expires(text).map(|_| text.to_owned()).ok_or(rollhook_api::access::EXPIRES_RULE)
}
