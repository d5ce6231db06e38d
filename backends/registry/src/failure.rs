//! The meaning of what a registry answers, or does not: the one place that classifies.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use rollhook_core::error::{Cause, Entity, Error, RetryAfter};
use rollhook_https::FetchError;
use serde::Deserialize;

/// The longest time that a registry is left alone for because it asks for it.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// The most characters of an error's code.
const CODE_MAX: usize = 64;

/// A registry's answer in the form of a failure, for logs: its status, and its code if it has one.
#[derive(Debug, thiserror::Error)]
#[error("it answered {status}{}", .code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default())]
struct Refused {
    status: StatusCode,
    code: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    errors: Vec<Code>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

/// Returns the code of an answer, such as `MANIFEST_UNKNOWN`. The messages beside it are for nobody here.
pub(crate) fn code(body: &[u8]) -> Option<String> {
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let code = answer.errors.into_iter().next()?.code;
    let valid = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (code.len() <= CODE_MAX && code.bytes().all(valid)).then_some(code)
}

/// Returns the failure of a call of a registry that was answered with something else than what was asked for.
pub(crate) fn refused(registry: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let code = code(body);
    let is_busy = status == StatusCode::TOO_MANY_REQUESTS || code.as_deref() == Some("TOOMANYREQUESTS");
    let is_named = |name: &str| code.as_deref() == Some(name);
    match status {
        _ if is_busy => unavailable(format!("{registry} has had too many calls"), headers, status, code),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => denied(registry, Refused { status, code }),
        StatusCode::NOT_FOUND if is_named("NAME_UNKNOWN") => Error::NotFound(Entity::Repository),
        StatusCode::NOT_FOUND => Error::NotFound(Entity::Image),
        StatusCode::REQUEST_TIMEOUT => unavailable(format!("{registry} gave up waiting"), headers, status, code),
        _ if status.is_client_error() => Error::Invalid {
            what: format!("{registry} refuses the request with status {}", status.as_u16()),
            cause: Some(Refused { status, code }.into()),
        },
        _ => unavailable(format!("{registry} answered with status {}", status.as_u16()), headers, status, code),
    }
}

/// Returns the failure of a call for whose environment the registry has no login that it accepts.
pub(crate) fn denied(registry: &str, cause: impl Into<Cause>) -> Error {
    let what = format!("{registry} does not let this server read the repository, or has none of this name");
    Error::Denied { what, cause: Some(cause.into()) }
}

fn unavailable(what: String, headers: &HeaderMap, status: StatusCode, code: Option<String>) -> Error {
    match retry_after(headers) {
        Some(time) => Error::unavailable(what, RetryAfter(time)),
        None => Error::unavailable(what, Refused { status, code }),
    }
}

/// Returns the failure of a call that was not answered. What else a registry has named, such as where it leads, is in the
/// cause alone.
pub(crate) fn unanswered(registry: &str, error: FetchError) -> Error {
    if error.is_refused_here() {
        let what = format!("{registry} is not called, or leads to where this server does not go");
        return Error::Invalid { what, cause: Some(error.into()) };
    }
    let why = if matches!(error, FetchError::TimedOut) { "does not answer in time" } else { "cannot be reached" };
    Error::unavailable(format!("{registry} {why}"), error)
}

/// Returns the failure of a document that is not what the registry, or its asker, says.
pub(crate) fn corrupt(registry: &str, why: &str) -> Error {
    Error::Corrupt { what: format!("the answer of {registry} {why}"), cause: None }
}

/// Returns the failure of an answer that is longer than any that is expected.
pub(crate) fn too_long(registry: &str, what: &str, most: usize) -> Error {
    Error::invalid(format!("{what} at {registry} has more than {} KiB", most >> 10))
}

/// Returns the time for which a registry asks to be left alone.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    rollhook_https::retry_after(headers).map(|time| time.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::RETRY_AFTER};

    use super::*;

    fn classified(status: u16, retry: Option<&'static str>, body: &str) -> Error {
        let mut headers = HeaderMap::new();
        headers.extend(retry.map(|retry| (RETRY_AFTER, HeaderValue::from_static(retry))));
        refused("r.example.com", StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes())
    }

    /// Answers as registries have given them.
    #[test]
    fn answers_are_classified() {
        let hub_limit = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"}]}"#;
        let hub_unknown = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required","detail":[{"Type":"repository","Class":"","Name":"library/nope","Action":"pull"}]}]}"#;
        let unknown =
            r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"nope"}}]}"#;
        let no_name = r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}"#;
        let is = |error: Error, kind: &str| {
            let found = match &error {
                Error::NotFound(Entity::Repository) => "repository",
                Error::NotFound(_) => "image",
                Error::Denied { .. } => "denied",
                Error::Invalid { .. } => "invalid",
                Error::Unavailable { .. } if error.retry_after().is_some() => "busy",
                Error::Unavailable { .. } => "unavailable",
                Error::Conflict(_) | Error::Corrupt { .. } => "other",
            };
            assert_eq!(found, kind, "{}", error.chain());
        };
        is(classified(429, Some("30"), hub_limit), "busy");
        is(classified(429, None, hub_limit), "unavailable");
        is(classified(403, None, hub_limit), "unavailable");
        is(classified(401, None, hub_unknown), "denied");
        is(classified(403, None, "<html>"), "denied");
        is(classified(404, None, unknown), "image");
        is(classified(404, None, no_name), "repository");
        is(classified(404, None, "404 page not found"), "image");
        is(classified(400, None, ""), "invalid");
        is(classified(405, None, ""), "invalid");
        for status in [500, 502, 503, 504, 408, 302] {
            is(classified(status, None, ""), "unavailable");
        }
        is(classified(503, Some("5"), ""), "busy");
    }

    #[test]
    fn failures_say_the_code_and_no_message() {
        let error = classified(500, None, r#"{"errors":[{"code":"UNKNOWN","message":"dial tcp 10.0.0.7: refused"}]}"#);
        let text = error.chain();
        assert!(text.contains("500") && text.contains("UNKNOWN") && !text.contains("10.0.0.7"), "{text}");
        let odd = classified(500, None, r#"{"errors":[{"code":"dial tcp 10.0.0.7","message":""}]}"#);
        assert!(!odd.chain().contains("10.0.0.7"), "{}", odd.chain());
    }

    #[test]
    fn time_that_a_registry_asks_for_is_bounded() {
        assert_eq!(classified(429, Some("7"), "").retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(classified(429, Some("86400"), "").retry_after(), Some(RETRY_AFTER_MAX));
        assert_eq!(classified(429, Some("soon"), "").retry_after(), None);
    }
}
