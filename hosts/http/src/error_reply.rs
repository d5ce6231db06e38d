//! The failure of a call: one type, rendered in one place.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use rollhook_api::{Kind, Problem, problem};
use rollhook_core::request::{Field, Refusal as CoreRefusal};
use rollhook_git_hosts as git_hosts;
use rollhook_management::Refusal;

use crate::{
    body,
    reply::{self, Reply},
};

/// A problem and the headers that go with it.
#[derive(Debug)]
pub(crate) struct ErrorReply(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    problem: Problem,
    headers: HeaderMap,
}

impl ErrorReply {
    /// Returns a failure of this kind.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self::of(kind, Problem::new(kind, detail))
    }

    fn of(kind: Kind, problem: Problem) -> Self {
        let mut headers = HeaderMap::new();
        if let Some(wait) = kind.retry_after() {
            headers.insert(RETRY_AFTER, wait.as_secs().into());
        }
        if kind == Kind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"rollhook\""));
        }
        Self(Box::new(Inner { kind, problem, headers }))
    }

    /// Returns the failure of a method that the path does not take.
    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let failure = Self::new(Kind::MethodNotAllowed, format!("This path takes {allowed}."));
        failure.header(ALLOW, allowed)
    }

    /// Returns the failure of too many calls, with the time to wait.
    pub(crate) fn rate_limited(detail: &str, wait: Duration) -> Self {
        let seconds = wait.as_millis().div_ceil(1000).max(1);
        Self::new(Kind::RateLimited, detail).header(RETRY_AFTER, &seconds.to_string())
    }

    /// Returns the failure with one more member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.0.problem.members.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the failure with a header, which replaces one of its name.
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers.insert(name, value);
        }
        self
    }

    /// Returns the failure with these headers beside its own.
    pub(crate) fn headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers.extend(headers);
        self
    }

    /// Removes a store's message to its operator, which is for holders of the API token: the log has it.
    pub(crate) fn redacted(self) -> Self {
        if self.kind() != Kind::StoreRefused {
            return self;
        }
        Self::new(Kind::StoreUnavailable, problem::STORE_REFUSES)
    }

    /// The kind of the failure.
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.0.problem.status
    }

    /// Returns kind and problem, for a page.
    pub(crate) fn into_parts(self) -> (Kind, Problem) {
        (self.0.kind, self.0.problem)
    }

    /// The kind's slug, for a log line.
    pub(crate) fn slug(&self) -> &'static str {
        self.0.kind.parts().0
    }

    /// Returns the answer.
    pub(crate) fn render(self, request_id: &str) -> Reply {
        let mut inner = self.0;
        inner.problem.request_id = request_id.to_owned();
        let status = StatusCode::from_u16(inner.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut reply = reply::json(status, &inner.problem);
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        reply.headers_mut().extend(inner.headers);
        reply
    }
}

impl From<CoreRefusal> for ErrorReply {
    fn from(refusal: CoreRefusal) -> Self {
        Refusal::from(refusal).into()
    }
}

impl From<Refusal> for ErrorReply {
    fn from(refusal: Refusal) -> Self {
        let reply = Self::of(Kind::of(&refusal), Problem::of(&refusal));
        let Refusal::Core(refusal) = &refusal else { return reply };
        let named = if let CoreRefusal::Locked(locked) = refusal { locked.left } else { refusal.retry_after() };
        match named {
            Some(wait) => reply.header(RETRY_AFTER, &wait.as_millis().div_ceil(1000).max(1).to_string()),
            None => reply,
        }
    }
}

impl From<git_hosts::Error> for ErrorReply {
    fn from(error: git_hosts::Error) -> Self {
        match &error {
            git_hosts::Error::Json(error) => body::unreadable(error),
            git_hosts::Error::Commit => CoreRefusal::InvalidField(Field::Commit, error.to_string()).into(),
            git_hosts::Error::Field(field) => CoreRefusal::InvalidField(*field, "must be a string.".to_owned()).into(),
            git_hosts::Error::TooManyChanges => Self::new(Kind::BodyTooLarge, error.to_string()),
            git_hosts::Error::Key(..) => Self::new(Kind::InvalidKey, error.to_string()),
            git_hosts::Error::ContentType => Self::new(Kind::UnsupportedMediaType, error.to_string()),
            git_hosts::Error::Event(_) | git_hosts::Error::Form | git_hosts::Error::NotAnObject => {
                Self::new(Kind::Malformed, error.to_string())
            }
        }
    }
}
