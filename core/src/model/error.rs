//! The errors of ports, sorted by the caller's next step.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

/// The failure that led to an [`Error`], for logs on this side only.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl<T: Into<Box<dyn std::error::Error + Send + Sync>>> From<T> for Cause {
    fn from(cause: T) -> Self {
        Self(cause.into().into())
    }
}

impl Deref for Cause {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// The entity that is missing or in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Entity {
    /// An app, by its name or its uid.
    App,
    /// A namespace, which belongs to another project and environment.
    Namespace,
    /// The version of an app's state, or of a record, that a write was made on.
    Version,
    /// An idempotency key, which is in use.
    IdempotencyKey,
    /// A build of a git app.
    Build,
    /// Room for one more call of this kind at the same time.
    Capacity,
    /// An object of the backend, such as a workload or a Secret.
    Object,
    /// An image of a repository, by its tag or its digest.
    Image,
    /// A repository of images.
    Repository,
}

crate::text::words! { Entity:
    App = "app",
    Namespace = "namespace",
    Version = "the stored state has changed in the meantime",
    IdempotencyKey = "the idempotency key is in use",
    Build = "build",
    Capacity = "too many calls of this kind at the same time",
    Object = "the object has changed in the meantime",
    Image = "image",
    Repository = "repository of images",
}

/// The time for which a part that is unavailable has asked to be left alone: the cause of an [`Error::Unavailable`], which
/// [`Error::retry_after`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it may be asked again in {} s", .0.as_secs())]
pub struct RetryAfter(pub Duration);

/// A port's failure, sorted by the caller's next step. Calls that share a failure have a clone each.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The named entity does not exist.
    #[error("{0} not found")]
    NotFound(Entity),
    /// The entity has changed or is taken: read again and decide again.
    #[error("conflict: {0}")]
    Conflict(Entity),
    /// Our own credentials do not suffice, for now or for long: they may be renewed, and permissions granted. Nothing
    /// was changed.
    #[error("denied: {what}")]
    Denied {
        /// The refused operation, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// The request cannot be met as it is, now or later.
    #[error("invalid: {what}")]
    Invalid {
        /// The invalid part, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// The operation may work later. A write may have happened, or not.
    #[error("unavailable: {what}")]
    Unavailable {
        /// The part that is unavailable, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
    /// Stored data cannot be read: never an empty answer in its place.
    #[error("corrupt: {what}")]
    Corrupt {
        /// The unreadable part, in a sentence.
        what: String,
        /// The failure underneath.
        #[source]
        cause: Option<Cause>,
    },
}

/// The outcome of a port's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the error of a part that may come back.
    pub fn unavailable(what: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Unavailable { what: what.into(), cause: Some(cause.into()) }
    }

    /// Returns the error of stored data that cannot be read.
    pub fn corrupt(what: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Corrupt { what: what.into(), cause: Some(cause.into()) }
    }

    /// Returns the error of a request that cannot be met.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), cause: None }
    }

    /// Returns the time after which a part that is unavailable may be asked again, if it has named one.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Unavailable { cause: Some(cause), .. } = self else { return None };
        cause.downcast_ref::<RetryAfter>().map(|RetryAfter(time)| *time)
    }

    /// Returns whether the operation may work later.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns whether the same call may succeed when it is repeated.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Conflict(_) | Self::Denied { .. })
    }

    /// Returns whether the caller must read and decide again.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    /// Returns the error and its causes in one line, for a log.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// Returns an error and its causes in one line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_ask_again_is_that_of_a_part_which_names_one() {
        let time = Duration::from_secs(30);
        let error = Error::unavailable("the registry is busy", RetryAfter(time));
        assert_eq!((error.retry_after(), error.is_unavailable()), (Some(time), true));
        assert!(error.chain().ends_with("it may be asked again in 30 s"), "{}", error.chain());
        assert_eq!(Error::unavailable("the registry is away", fmt::Error).retry_after(), None);
        assert_eq!(Error::invalid("no such thing").retry_after(), None);
    }

    #[test]
    fn clone_is_the_same_failure_for_another_caller() {
        let failure = Error::unavailable("the store is away", fmt::Error);
        let clone = failure.clone();
        assert!(clone.is_unavailable());
        assert_eq!(clone.chain(), failure.chain());
        let Error::Unavailable { cause: Some(cause), .. } = clone else { panic!("{clone:?}") };
        assert!(cause.is::<fmt::Error>(), "the cause is the same error, and not its text");
    }
}
