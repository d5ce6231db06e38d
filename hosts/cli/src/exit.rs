//! Exit codes, and the failures of commands.

use std::process::ExitCode;

use rollhook_api::{Kind, Problem};
use rollhook_core::{app::InvalidName, request::Refusal as CoreRefusal, text::escaped};
use rollhook_management::Refusal;
use serde_json::Value;

use crate::args::{in_flags, list_in_flags};

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command did what it was asked; with `--wait`, the deploy succeeded.
    Done = 0,
    /// The service refused, or the command failed for a reason that no other code names.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The deploy that was waited for ended without success.
    Unsuccessful = 3,
    /// The credentials are missing, wrong or not sufficient.
    Unauthorized = 4,
    /// The server or the store does not answer.
    Unreachable = 5,
    /// The command needs a confirmation that was not given.
    Unconfirmed = 6,
    /// The person or the system stopped the command: 128 and the number of SIGINT, as shells have it.
    Interrupted = 130,
}

impl Exit {
    /// The codes as `--help` lists them.
    pub(crate) const HELP: &str = "\
Exit codes:
  0    done; with --wait, the deploy succeeded
  1    refused, or failed for another reason
  2    the command line is wrong
  3    the deploy ended without success
  4    not authorised
  5    the server or the store cannot be reached
  6    needs a confirmation that was not given (see --yes)
  130  interrupted; what was accepted stays accepted";

    /// The code of `app run` where the command's own is not known: as `env` and `docker run` have it.
    pub(crate) const UNKNOWN: u8 = 125;

    /// The codes of `app run` as its `--help` lists them.
    pub(crate) const OF_RUN: &str = "\
Exit codes:
  0-255  the command's own
  125    also: the command has no exit code (it never began, or was ended), or rollhook failed or refused
  130    also: interrupted; the run was told to end
With --detach, those of rollhook --help.";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The service's refusal, or the end of a deploy.
    Problem(Box<Problem>),
    /// The command line is wrong.
    Usage(String),
    /// The deploy that was waited for ended without success; the end was printed already.
    Unsuccessful,
    /// The server or the store does not answer.
    Unreachable(String),
    /// The command needs a confirmation that was not given.
    Unconfirmed(String),
    /// The person stopped the command; the text says the consequence.
    Interrupted(String),
    /// The command of a run by hand ended without success, with this exit code if it is known.
    Command(String, Option<i32>),
    /// Any other failure.
    Other(String),
}

impl CliError {
    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Other(_) => Exit::Failed,
            Self::Usage(_) => Exit::Usage,
            Self::Unsuccessful | Self::Command(..) => Exit::Unsuccessful,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Unconfirmed(_) => Exit::Unconfirmed,
            Self::Interrupted(_) => Exit::Interrupted,
            Self::Problem(problem) => match problem.status {
                401 | 403 => Exit::Unauthorized,
                424 => Exit::Unsuccessful,
                502..=504 => Exit::Unreachable,
                _ => Exit::Failed,
            },
        }
    }

    /// Returns whether the service refused with this kind of problem.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        matches!(self, Self::Problem(problem) if Kind::of_slug(problem.slug()) == Some(kind))
    }

    /// Returns the message, escaped for a terminal; empty if it was printed already.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Unsuccessful => Vec::new(),
            Self::Usage(why)
            | Self::Unreachable(why)
            | Self::Unconfirmed(why)
            | Self::Interrupted(why)
            | Self::Command(why, _)
            | Self::Other(why) => why.lines().map(escaped).collect(),
            Self::Problem(problem) => {
                let what = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
                let field = problem.members.get("field").and_then(Value::as_str);
                let unused = problem.members.get("unused").and_then(Value::as_array);
                let unused = unused.map(|fields| fields.iter().filter_map(Value::as_str).collect::<Vec<_>>());
                let listed = unused.map(|fields| list_in_flags(&fields, what));
                let named = field.and_then(|field| in_flags(field, what)).or(listed);
                let mut lines = vec![escaped(named.as_deref().unwrap_or(what))];
                if !problem.request_id.is_empty() {
                    lines.push(format!("request {}", escaped(&problem.request_id)));
                }
                lines
            }
        }
    }

    /// Prints the message on standard error, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let mut lines = self.lines().into_iter();
        if let Some(first) = lines.next() {
            crate::output::message(&format!("error: {first}"));
        }
        for line in lines {
            crate::output::message(&format!("       {line}"));
        }
        match self {
            Self::Command(_, code) => code_of(*code).into(),
            Self::Problem(_)
            | Self::Usage(_)
            | Self::Unsuccessful
            | Self::Unreachable(_)
            | Self::Unconfirmed(_)
            | Self::Interrupted(_)
            | Self::Other(_) => self.exit().into(),
        }
    }

    /// Returns the failure of a command line whose exit code is that of a run: its own failures must not read as one.
    pub(crate) fn of_run(self) -> Self {
        if matches!(self, Self::Command(..) | Self::Interrupted(_)) {
            return self;
        }
        Self::Command(self.lines().join("\n"), None)
    }
}

/// Returns the exit code for that of a command that did not succeed.
fn code_of(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(Exit::UNKNOWN)
}

impl From<CoreRefusal> for CliError {
    fn from(refusal: CoreRefusal) -> Self {
        Refusal::from(refusal).into()
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::Problem(Box::new(Problem::of(&refusal)))
    }
}

impl From<rollhook_wiring::Error> for CliError {
    fn from(error: rollhook_wiring::Error) -> Self {
        let why = format!("{}.", error.chain());
        if matches!(error, rollhook_wiring::Error::Usage(_)) { Self::Usage(why) } else { Self::Unreachable(why) }
    }
}

impl From<InvalidName> for CliError {
    fn from(invalid: InvalidName) -> Self {
        Self::Usage(invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_command_is_handed_on_and_failures_of_our_own_have_another() {
        let codes = [Some(1), Some(255), Some(0), Some(256), Some(-1), None].map(code_of);
        assert_eq!(codes, [1, 255, 125, 125, 125, 125]);
        let refused = CliError::Problem(Box::new(Problem::new(Kind::RunUnfinished, "Run 3 goes on."))).of_run();
        assert!(matches!(&refused, CliError::Command(why, None) if why == "Run 3 goes on."), "{refused:?}");
        let interrupted = CliError::Interrupted("why".to_owned()).of_run();
        assert_eq!(interrupted.exit(), Exit::Interrupted);
    }

    #[test]
    fn no_failure_has_exit_code_zero() {
        let texts =
            [CliError::Usage, CliError::Unreachable, CliError::Unconfirmed, CliError::Interrupted, CliError::Other];
        let mut exits: Vec<Exit> = texts.iter().map(|failure| failure("why".to_owned()).exit()).collect();
        exits.push(CliError::Unsuccessful.exit());
        exits.extend(Kind::ALL.iter().map(|kind| CliError::Problem(Box::new(Problem::new(*kind, ""))).exit()));
        assert!(exits.iter().all(|exit| *exit != Exit::Done), "{exits:?}");
        for exit in exits {
            assert!(Exit::HELP.contains(&format!("\n  {:<5}", exit as u8)), "{exit:?} is in the help");
        }
    }

    #[test]
    fn problems_exit_by_what_the_caller_can_do() {
        let exit = |kind| CliError::Problem(Box::new(Problem::new(kind, ""))).exit();
        assert_eq!(exit(Kind::Unauthorized), Exit::Unauthorized);
        assert_eq!(exit(Kind::StoreUnavailable), Exit::Unreachable);
        assert_eq!(exit(Kind::DeployFailed), Exit::Unsuccessful);
        assert_eq!(exit(Kind::CurrentChanged), Exit::Failed);
        assert_eq!(exit(Kind::AppNotFound), Exit::Failed);
    }

    #[test]
    fn failure_is_of_the_kind_of_its_problem() {
        let refused = CliError::Problem(Box::new(Problem::new(Kind::ReleaseBetween, "")));
        assert!(refused.is(Kind::ReleaseBetween) && !refused.is(Kind::CurrentChanged));
        assert!(!CliError::Other("release-between".to_owned()).is(Kind::ReleaseBetween));
    }

    #[test]
    fn refusal_of_a_field_names_its_flag() {
        let refusal =
            CoreRefusal::InvalidField(rollhook_core::request::Field::GitImageRepository, "must be one.".to_owned());
        assert_eq!(CliError::from(refusal).lines(), ["--image-repository: must be one."]);
        let refusal =
            CoreRefusal::InvalidSetting("template.env_from_secrets".to_owned(), "is for Kubernetes.".to_owned());
        assert_eq!(CliError::from(refusal).lines(), ["--env-from-secret: is for Kubernetes."]);
    }

    #[test]
    fn a_problem_is_its_detail_and_request_escaped() {
        let mut problem = Problem::new(Kind::ImageHeld, "held\u{1b}[2J\nby 3");
        problem.request_id = "r-1".to_owned();
        let lines = CliError::Problem(Box::new(problem)).lines();
        assert_eq!(lines, ["held\\u{1b}[2J\\u{a}by 3", "request r-1"]);
    }
}
