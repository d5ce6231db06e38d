//! The outermost layer of a call: assigns its id, renders failures, logs and counts.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rollhook_api::Kind;
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    error_reply::ErrorReply,
    reply::Reply,
    route,
    router::{self, Incoming},
    state::State,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id that is taken over from a caller.
const REQUEST_ID_MAX: usize = 64;

/// Answers a call.
pub(crate) async fn answer(state: Arc<State>, incoming: Incoming) -> Result<Reply, Infallible> {
    let start = Instant::now();
    let request = &incoming.request;
    let id = request_id(request.headers()).unwrap_or_else(|| state.metrics.new_request_id());
    let (method, template) = (request.method().clone(), route::template(request.uri().path()));
    // The path is left out: callers choose it freely, and the route says enough.
    let span = tracing::info_span!("call", id, %method, route = template);
    let result = catch_panic(router::dispatch(state.clone(), incoming)).instrument(span.clone()).await;
    let kind = result.as_ref().err().map_or("", ErrorReply::slug);
    let mut reply = result.unwrap_or_else(|failure| failure.render(&id));
    reply.headers_mut().extend(HeaderValue::from_str(&id).map(|id| (REQUEST_ID, id)));
    let (status, took) = (reply.status().as_u16(), start.elapsed());
    state.metrics.answered(template, &method, status, took);
    if route::is_webhook(template) {
        state.metrics.webhook_answered(status);
    }
    if reply.status() == StatusCode::UNAUTHORIZED {
        state.metrics.auth_failed(template);
    }
    let ms = took.as_secs_f64() * 1000.0;
    let line = if is_routine(&method, status) { None } else { state.lines.take(status) };
    span.in_scope(|| match line {
        None => tracing::debug!(status, problem = kind, ms, "answered a call"),
        Some(left_out) => {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::info!(status, problem = kind, ms, left_out, "answered a call");
        }
    });
    Ok(reply)
}

/// Returns whether a call only read, and was answered: probes, scrapes and waiting clients make such calls by the
/// second, and a line for each would hide the others.
fn is_routine(method: &Method, status: u16) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && status < 400
}

/// Returns the id that the caller gave the call, if it is fit for a log line.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(REQUEST_ID)?.to_str().ok()?;
    let sound = (1..=REQUEST_ID_MAX).contains(&given.len())
        // Without an underscore: a token sent here by mistake must not get into a log.
        && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':'));
    sound.then(|| given.to_owned())
}

/// Confines a panic to its call; the panic hook logs its place.
fn catch_panic<F>(call: F) -> impl Future<Output = Result<Reply, ErrorReply>> + Send
where
    F: Future<Output = Result<Reply, ErrorReply>> + Send,
{
    AssertUnwindSafe(call).catch_unwind().map(|result| {
        result
            .unwrap_or_else(|_| Err(ErrorReply::new(Kind::Internal, "The server could not answer; its log says more.")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_harmless_request_id_is_taken_over() {
        let id = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_static(text));
            request_id(&headers)
        };
        assert_eq!(id("4f1a-77.b:2").as_deref(), Some("4f1a-77.b:2"));
        for text in
            ["", "a b", "rh_abc", "a\"b", "0123456789012345678901234567890123456789012345678901234567890123456789"]
        {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_a_500_that_tells_nothing() {
        let call = async { if true { panic!("secret") } else { Err(ErrorReply::new(Kind::NotFound, "")) } };
        let reply = catch_panic(call).await.unwrap_err().render("1");
        assert_eq!(reply.status(), 500);
        assert!(!format!("{:?}", reply.body()).contains("secret"));
    }
}
