//! Failures of the engine's API, sorted by the caller's next step.

use std::{io, path::PathBuf};

use http::StatusCode;
use rollhook_core::{Error, error::Entity, text::escaped};

/// The most characters of what the engine or a registry says that a message of ours has.
const WORDS_MAX: usize = 2_000;

/// Returns what the engine or a registry says as a message may have it: on one line, escaped, and cut.
pub(crate) fn shortened(text: &str) -> String {
    let kept = text.trim().chars().take(WORDS_MAX + 1);
    let line: String = kept.map(|character| if character.is_whitespace() { ' ' } else { character }).collect();
    let line = escaped(&line);
    if line.chars().count() <= WORDS_MAX {
        return line;
    }
    line.chars().take(WORDS_MAX - 1).chain(['…']).collect()
}

/// A failed call of the engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The socket could not be opened.
    #[error("cannot connect to {}", socket.display())]
    Connect {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The connection ended early.
    #[error("the engine's answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what the API describes.
    #[error("the engine's answer cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The answer is larger than usual, and the call holds no slot for such.
    #[error("the engine's answer is larger than usual")]
    Large,
    /// The answer takes more memory than one object may.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The engine refused the call; the message is shortened.
    #[error("the engine answered {status}: {message}")]
    Status { status: StatusCode, message: String },
}

impl Failure {
    /// Returns the engine's own words, if it refused the call.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Status { message, .. } => Some(message),
            Self::Connect { .. } | Self::Broken(_) | Self::Unreadable(_) | Self::Large | Self::TooLarge(_) => None,
        }
    }

    /// Returns the engine's own words, or what else failed.
    pub(crate) fn words(&self) -> String {
        self.refusal().map_or_else(|| rollhook_core::error::chain(self), str::to_owned)
    }

    pub(crate) fn is(&self, expected: StatusCode) -> bool {
        matches!(self, Self::Status { status, .. } if *status == expected)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.is(StatusCode::NOT_FOUND)
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.is(StatusCode::CONFLICT)
    }
}

/// Returns whether a call of a port failed as it reads an object that is larger than usual.
pub(crate) fn is_large(error: &Error) -> bool {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.any(|cause| matches!(cause.downcast_ref(), Some(Failure::Large)))
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let what = failure.to_string();
        match &failure {
            Failure::Connect { socket, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                let what = format!(
                    "this process may not open {}: run it as a member of the socket's group, which is docker as a rule",
                    socket.display()
                );
                Self::Denied { what, cause: Some(failure.into()) }
            }
            Failure::Connect { .. } | Failure::Broken(_) => Self::unavailable("Docker cannot be reached", failure),
            Failure::Unreadable(_) => Self::corrupt(what, failure),
            Failure::Large => Self::unavailable(what, failure),
            Failure::TooLarge(_) => Self::Invalid { what, cause: None },
            Failure::Status { status, .. } => match *status {
                StatusCode::NOT_FOUND => Self::NotFound(Entity::Object),
                StatusCode::CONFLICT => Self::Conflict(Entity::Object),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Denied { what, cause: Some(failure.into()) },
                status if status.is_client_error() => Self::Invalid { what, cause: Some(failure.into()) },
                _ => Self::unavailable(what, failure),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_are_one_line_without_control_characters_and_cut() {
        assert_eq!(shortened(" no space\nleft\ton device\n"), "no space left on device");
        assert_eq!(shortened("\u{1b}[2Jdenied\u{202e}"), "\\u{1b}[2Jdenied\\u{202e}");
        let longest = "é".repeat(WORDS_MAX);
        assert_eq!(shortened(&longest), longest);
        for long in [longest.clone() + "é", "\0".repeat(1 << 20)] {
            let cut = shortened(&long);
            assert!(cut.chars().count() == WORDS_MAX && cut.ends_with('…'), "{cut}");
        }
    }

    #[test]
    fn failures_say_what_the_caller_does_next() {
        let status = |code: u16| Failure::Status { status: StatusCode::from_u16(code).unwrap(), message: "no".into() };
        assert!(matches!(Error::from(status(404)), Error::NotFound(_)));
        assert!(matches!(Error::from(status(409)), Error::Conflict(_)));
        assert!(matches!(Error::from(status(400)), Error::Invalid { .. }));
        assert!(matches!(Error::from(status(403)), Error::Denied { .. }));
        assert!(matches!(Error::from(status(500)), Error::Unavailable { .. }));
        let connect = |kind: io::ErrorKind| Failure::Connect { socket: "/s".into(), source: kind.into() };
        assert!(matches!(Error::from(connect(io::ErrorKind::NotFound)), Error::Unavailable { .. }));
        assert!(matches!(Error::from(connect(io::ErrorKind::ConnectionRefused)), Error::Unavailable { .. }));
        let denied = Error::from(connect(io::ErrorKind::PermissionDenied));
        assert!(matches!(&denied, Error::Denied { what, .. } if what.contains("group")), "{denied}");
    }
}
