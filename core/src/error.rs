//! What a port's failure means for the caller.

/// The failure that led to an [`Error`], for logs on this side only.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A port's failure, told by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was named is not there.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// It changed in the meantime: read again and decide again.
    #[error("conflict: {0}")]
    Conflict(&'static str),
    /// Our own credentials do not suffice.
    #[error("denied: {what}")]
    Denied {
        /// What was refused, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// The request cannot be met as it is, now or later.
    #[error("invalid: {what}")]
    Invalid {
        /// What is wrong, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// It may work later. For a write: it may have happened, or not.
    #[error("unavailable: {what}")]
    Unavailable {
        /// What is away, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// What is stored cannot be read: never an empty answer in its place.
    #[error("corrupt: {what}")]
    Corrupt {
        /// What cannot be read, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
}

/// The outcome of a port's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Something is away and may come back.
    pub fn unavailable(what: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Unavailable { what: what.into(), cause: Some(cause.into()) }
    }

    /// Something stored cannot be read.
    pub fn corrupt(what: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Corrupt { what: what.into(), cause: Some(cause.into()) }
    }

    /// The request cannot be met.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), cause: None }
    }

    /// Whether it may work later.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether it must be read and decided again.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    /// The failure with all that led to it, for a log line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// A failure with all that led to it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
