//! Values of flags that have parts.

use std::str::FromStr;

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

/// `KIND[/NAME]` of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadName {
    pub(crate) kind: &'static str,
    pub(crate) name: Option<String>,
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
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
        Ok(Self { kind: known.ok_or_else(rule)?, name })
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

/// Reads a program and its arguments.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn command_line(text: &str) -> Result<CommandLine, String> {
    rollhook_api::words::command(text).map(CommandLine)
}

/// Checks a duration or `off`, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn duration_or_off(text: &str) -> Result<String, &'static str> {
    if text == "off" { Ok(text.to_owned()) } else { duration(text) }
}
/// Checks the time of a token or a lock, and returns it as it was written.
///
/// # Errors
/// The rule that the text breaks.
pub(crate) fn expires(text: &str) -> Result<String, &'static str> {
    rollhook_api::access::expires(text).map(|_| text.to_owned()).ok_or(rollhook_api::access::EXPIRES_RULE)
}
