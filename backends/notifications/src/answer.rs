//! The meaning of a receiver's answer.

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header::DATE};
use rollhook_core::error::chain;
use rollhook_https::FetchError;
use rollhook_management::ports::DeliveryFailure;

/// The answers that another attempt with the same notification will hardly change.
const FINAL: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNPROCESSABLE_ENTITY,
];

/// Returns a failure after which the notification is sent again.
pub(crate) fn failure(message: impl Into<String>) -> DeliveryFailure {
    DeliveryFailure { message: message.into(), retry_after: None, is_final: false }
}

/// Returns the failure by an answer that is none of the service's: the next notifications of the app fare no better than this one,
/// and those of other apps must not wait for them.
pub(crate) fn foreign(message: impl Into<String>) -> DeliveryFailure {
    DeliveryFailure { is_final: true, ..failure(message) }
}

/// Returns the failure of a call that was not answered. The URL is not repeated: it may hold a secret.
pub(crate) fn unanswered(host: &str, error: &FetchError) -> DeliveryFailure {
    // A call's error itself names its place, which may hold a secret.
    let cause = if let FetchError::Call(_, cause) = error { chain(&**cause) } else { chain(error) };
    failure(format!("calling {host} failed: {cause}"))
}

/// Returns `Ok` if the receiver has taken the notification.
pub(crate) fn judge(host: &str, answer: &Response<()>) -> Result<String, DeliveryFailure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(status.to_string());
    }
    let redirects = if status.is_redirection() { ", and redirects are not followed" } else { "" };
    let message = format!("{host} answered {status}{redirects}");
    Err(DeliveryFailure { message, retry_after: retry_after(status, answer.headers()), is_final: is_final(status) })
}

/// Returns whether another attempt with the same notification will hardly be answered in another way.
pub(crate) fn is_final(status: StatusCode) -> bool {
    FINAL.contains(&status)
}

/// Returns the time that the receiver asks to be left alone for.
pub(crate) fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let asks =
        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN);
    if asks { rollhook_https::retry_after(headers).or_else(|| until_reset(headers)) } else { None }
}

/// Returns the time until a used-up limit of GitHub begins anew, by the clock of the answer itself.
fn until_reset(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if text("x-ratelimit-remaining")? != "0" {
        return None;
    }
    let reset: i64 = text("x-ratelimit-reset")?.parse().ok()?;
    let now = jiff::fmt::rfc2822::parse(text(DATE.as_str())?).ok()?.timestamp().as_second();
    u64::try_from(reset.saturating_sub(now)).ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    fn answer(status: u16, retry: Option<&str>) -> Response<()> {
        let mut answer = Response::builder().status(status);
        if let Some(retry) = retry {
            answer = answer.header(RETRY_AFTER, retry);
        }
        answer.body(()).unwrap()
    }

    #[test]
    fn only_success_is_a_delivery() {
        assert_eq!(judge("h", &answer(204, None)), Ok("204 No Content".to_owned()));
        let failed = |status| {
            let failed = judge("h", &answer(status, None)).unwrap_err();
            assert!(failed.message.starts_with(&format!("h answered {status}")), "{failed:?}");
            failed
        };
        for status in [301, 308, 401, 403, 408, 429, 500, 503] {
            assert!(!failed(status).is_final, "{status}");
        }
        for status in [400, 404, 410, 413, 422] {
            assert!(failed(status).is_final, "{status}");
        }
    }

    #[test]
    fn time_that_the_receiver_asks_for_is_kept() {
        let asked = |status, retry| judge("h", &answer(status, Some(retry))).unwrap_err().retry_after;
        assert_eq!(asked(429, "30"), Some(Duration::from_secs(30)));
        assert_eq!(asked(503, " 7 "), Some(Duration::from_secs(7)));
        assert_eq!((asked(500, "30"), asked(429, "soon"), asked(429, "-1")), (None, None, None));
        let limited = |remaining: &str| {
            let answer = Response::builder()
                .status(403)
                .header("date", "Fri, 02 Jan 2026 03:04:05 GMT")
                .header("x-ratelimit-remaining", remaining)
                .header("x-ratelimit-reset", "1767323105");
            judge("h", &answer.body(()).unwrap()).unwrap_err().retry_after
        };
        assert_eq!((limited("0"), limited("7")), (Some(Duration::from_secs(60)), None));
    }
}
