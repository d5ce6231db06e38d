//! How a command ends when it does not end well: the exit code, and the one or two lines that say why.

use std::process::ExitCode;

use rollhook_api::Problem;
use rollhook_core::{app::InvalidName, request::Refusal, text::escaped};

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The service says so.
    Problem(Box<Problem>),
    /// The command line is not right.
    Usage(String),
    /// The deploy that was waited for ended without success, and that was said already.
    Unsuccessful,
    /// Server or store do not answer.
    Unreachable(String),
    /// It needs a yes that was not given.
    Unconfirmed(String),
    /// The person stopped it; what that means.
    Interrupted(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// The exit code, as `--help` lists it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::Unsuccessful => 3,
            Self::Unreachable(_) => 5,
            Self::Unconfirmed(_) => 6,
            Self::Interrupted(_) => 130,
            Self::Problem(problem) => match problem.status {
                401 | 403 => 4,
                424 => 3,
                502..=504 => 5,
                _ => 1,
            },
        }
    }

    /// What a person is told, fit for a terminal; nothing where it was told already.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Unsuccessful => Vec::new(),
            Self::Usage(why)
            | Self::Unreachable(why)
            | Self::Unconfirmed(why)
            | Self::Interrupted(why)
            | Self::Other(why) => why.lines().map(escaped).collect(),
            Self::Problem(problem) => {
                let what = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
                let mut lines = vec![escaped(what)];
                if !problem.request_id.is_empty() {
                    lines.push(format!("request {}", escaped(&problem.request_id)));
                }
                lines
            }
        }
    }

    /// Says it on standard error, and gives the exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        let mut lines = self.lines().into_iter();
        if let Some(first) = lines.next() {
            crate::output::message(&format!("error: {first}"));
        }
        for line in lines {
            crate::output::message(&format!("       {line}"));
        }
        ExitCode::from(self.code())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Problem(Box::new(Problem::of(&refusal)))
    }
}

impl From<rollhook_wiring::Error> for Failure {
    fn from(error: rollhook_wiring::Error) -> Self {
        let why = format!("{}.", error.chain());
        if matches!(error, rollhook_wiring::Error::Usage(_)) { Self::Usage(why) } else { Self::Unreachable(why) }
    }
}

impl From<InvalidName> for Failure {
    fn from(invalid: InvalidName) -> Self {
        Self::Usage(invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use rollhook_api::Kind;

    use super::*;

    #[test]
    fn no_failure_has_exit_code_zero() {
        let texts = [Failure::Usage, Failure::Unreachable, Failure::Unconfirmed, Failure::Interrupted, Failure::Other];
        let mut codes: Vec<u8> = texts.iter().map(|failure| failure("why".to_owned()).code()).collect();
        codes.push(Failure::Unsuccessful.code());
        codes.extend(Kind::ALL.iter().map(|kind| Failure::Problem(Box::new(Problem::new(*kind, ""))).code()));
        assert!(codes.iter().all(|code| *code != 0), "{codes:?}");
    }

    #[test]
    fn problems_exit_by_what_the_caller_can_do() {
        let code = |kind| Failure::Problem(Box::new(Problem::new(kind, ""))).code();
        assert_eq!(code(Kind::Unauthorized), 4);
        assert_eq!(code(Kind::StoreUnavailable), 5);
        assert_eq!(code(Kind::DeployFailed), 3);
        assert_eq!(code(Kind::CurrentChanged), 1);
        assert_eq!(code(Kind::AppNotFound), 1);
    }

    #[test]
    fn a_problem_is_its_detail_and_request_escaped() {
        let mut problem = Problem::new(Kind::ImageHeld, "held\u{1b}[2J\nby 3");
        problem.request_id = "r-1".to_owned();
        let lines = Failure::Problem(Box::new(problem)).lines();
        assert_eq!(lines, ["held\\u{1b}[2J\\u{a}by 3", "request r-1"]);
    }
}
