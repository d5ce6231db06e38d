//! Preferences and idempotency keys in headers.

use std::time::Duration;

use http::{HeaderMap, Version, header::HOST, request::Parts};
use rollhook_api::Kind;
use rollhook_core::{
    request::{IdempotencyKey, KeyHeader},
    trace::TraceParent,
};
use rollhook_git_hosts as git_hosts;

use crate::error_reply::ErrorReply;

/// The longest wait in seconds, below the timeout of common proxies.
const WAIT_MAX: u64 = 50;

/// Returns the time that the caller prefers to wait (RFC 7240, `Prefer: wait=N`), bounded.
pub(crate) fn wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
    let seconds = lines.flat_map(preferences).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    // More digits than fit are a long wait too.
    digits.then(|| Duration::from_secs(seconds.parse().unwrap_or(WAIT_MAX).min(WAIT_MAX)))
}

/// Refuses a call that does not name its host exactly once (RFC 9112 section 3.2): a proxy in front may have taken
/// another one for it.
///
/// # Errors
/// 400.
pub(crate) fn require_host(parts: &Parts) -> Result<(), ErrorReply> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    if hosts == 1 || (hosts == 0 && parts.version == Version::HTTP_10) {
        return Ok(());
    }
    Err(ErrorReply::new(Kind::Malformed, format!("The call must have one Host header; it has {hosts}.")))
}

/// Returns the parts between commas outside of quotation marks.
fn preferences(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    })
}

/// Returns the caller's place in a trace (W3C Trace Context). One that cannot be read is ignored, and so are several.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut given = headers.get_all("traceparent").iter();
    match (given.next(), given.next()) {
        (Some(parent), None) => parent.to_str().ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the idempotency key of a call of this operation with this body. Of several headers, the first in `accepted`
/// counts.
///
/// # Errors
/// 422 if the header is present and not a key.
pub(crate) fn key(
    headers: &HeaderMap,
    accepted: &[KeyHeader],
    operation: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, ErrorReply> {
    Ok(git_hosts::key(headers, accepted, operation, body)?)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn waits(lines: &[&'static str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("prefer", HeaderValue::from_static(line));
        }
        wait(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn a_wait_is_read_as_rfc_7240_has_it() {
        assert_eq!(waits(&["wait=10"]), Some(10));
        assert_eq!(waits(&["respond-async, Wait = \"7\"; x=1"]), Some(7));
        assert_eq!(waits(&["return=minimal", "wait=3"]), Some(3));
        assert_eq!(waits(&["wait=3, wait=9"]), Some(3), "the first counts");
        assert_eq!(waits(&["wait=50000000000000000000000"]), Some(50));
        assert_eq!(waits(&["wait=51"]), Some(50));
        assert_eq!(waits(&["wait=0"]), Some(0));
        assert_eq!(waits(&["foo=\"a, wait=3\""]), None);
        for line in ["wait", "wait=", "wait=-1", "wait=1.5", "waiting=3"] {
            assert_eq!(waits(&[line]), None, "{line}");
        }
    }

    fn keyed(lines: &[(&'static str, &'static str)]) -> Result<Option<IdempotencyKey>, ErrorReply> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let all = [KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::Delivery];
        key(&headers, &all, "webhook", b"{}")
    }

    #[test]
    fn the_first_header_counts() {
        let found = keyed(&[("x-github-delivery", "g"), ("webhook-id", "w")]).unwrap().unwrap();
        assert_eq!((found.header, found.key.as_str()), (KeyHeader::WebhookId, "w"));
        let found = keyed(&[("x-github-delivery", "g"), ("idempotency-key", "\"i 1\"")]).unwrap().unwrap();
        assert_eq!((found.header, found.key.as_str()), (KeyHeader::IdempotencyKey, "i 1"));
        assert!(keyed(&[]).unwrap().is_none());
    }

    #[test]
    fn a_key_that_cannot_be_read_is_refused() {
        for lines in [&[("idempotency-key", "")][..], &[("idempotency-key", "a"), ("idempotency-key", "a")]] {
            assert_eq!(keyed(lines).unwrap_err().kind(), Kind::InvalidKey);
        }
    }

    #[test]
    fn operation_and_body_make_the_request() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        let request =
            |operation, body| key(&headers, &[KeyHeader::IdempotencyKey], operation, body).unwrap().unwrap().request;
        assert_eq!(request("deploy", b"{}"), request("deploy", b"{}"));
        assert_ne!(request("deploy", b"{}"), request("rollback", b"{}"));
        assert_ne!(request("deploy", b"{}"), request("deploy", b"{ }"));
    }
}
