//! Answers: a page, a part of one, a redirect, a stream, or a static file.

use std::{io::Write, pin::Pin};

use askama::Template;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::Stream;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
        REFERRER_POLICY, SET_COOKIE, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

use crate::request::COOKIE_NAME;

/// The policy of every answer: nothing from elsewhere, nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Smaller texts are sent as they are.
const COMPRESSED_FROM: usize = 1024;

/// The parts of an answer that is sent one by one.
pub type Parts = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The body of an answer.
pub enum Body {
    /// A whole text.
    Whole(Bytes),
    /// A stream.
    Stream(Parts),
}

/// The caller, as far as the host must know it beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The caller is signed in.
    Known,
    /// The caller has brought nothing that proves anything, and was not asked to.
    Unknown,
    /// The caller's credentials are wrong: a failed authentication.
    Refused,
}

/// An answer.
pub struct Answer {
    /// The response.
    pub response: Response<Body>,
    /// The caller that the call has shown.
    pub caller: Caller,
}

/// A response on the way to its caller.
pub(crate) type Reply = Response<Body>;

/// Returns a response without content.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::Whole(Bytes::new()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    // Pages describe a moment, and one of them may show a token.
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Returns a page, or a part of one.
pub(crate) fn html(status: StatusCode, template: &impl Template) -> Reply {
    match template.render() {
        Ok(text) => whole(status, "text/html; charset=utf-8", text.into()),
        // Rendering into memory does not fail.
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

pub(crate) fn whole(status: StatusCode, media_type: &'static str, text: Bytes) -> Reply {
    let mut reply = empty(status);
    *reply.body_mut() = Body::Whole(text);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding, HX-Request"));
    reply
}

/// Returns a stream of server-sent events.
pub(crate) fn events(parts: Parts) -> Reply {
    let mut reply = empty(StatusCode::OK);
    *reply.body_mut() = Body::Stream(parts);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Some proxies buffer answers unless this header forbids it.
    reply.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// Returns the answer that makes a browser fetch another page.
pub(crate) fn redirect(path: &str) -> Reply {
    let mut reply = empty(StatusCode::SEE_OTHER);
    reply.headers_mut().extend(HeaderValue::from_str(path).map(|path| (LOCATION, path)));
    reply
}

/// Sets the cookie of a session; without an id, removes it.
pub(crate) fn set_cookie(reply: &mut Reply, id: Option<&str>) {
    let (value, age) = id.map_or(("", "; Max-Age=0"), |id| (id, ""));
    // Lax: a link to a deploy, in a chat for example, opens signed in.
    let cookie = format!("{COOKIE_NAME}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{age}");
    reply.headers_mut().extend(HeaderValue::from_str(&cookie).map(|cookie| (SET_COOKIE, cookie)));
}

/// Sets another cookie for this many seconds; without a value, removes it.
pub(crate) fn set_cookie_for(reply: &mut Reply, name: &str, value: Option<(&str, u32)>) {
    let (value, age) = value.unwrap_or_default();
    let cookie = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={age}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Marks an answer that is sent as it is.
#[derive(Clone, Copy)]
struct Plain;

/// Keeps a page that shows a secret from being compressed: the size of what is compressed together with a stranger's
/// text tells of the secret.
pub(crate) fn with_secret(mut reply: Reply) -> Reply {
    reply.extensions_mut().insert(Plain);
    reply
}

/// Compresses a page for a browser that takes it.
pub(crate) fn compressed(mut reply: Reply, accepted: &HeaderMap) -> Reply {
    let Body::Whole(text) = reply.body() else { return reply };
    let is_kept = reply.headers().contains_key(CONTENT_ENCODING) || reply.extensions().get::<Plain>().is_some();
    if text.len() < COMPRESSED_FROM || is_kept || !takes_gzip(accepted) {
        return reply;
    }
    let Some(small) = gzip(text, Compression::new(5)) else { return reply };
    *reply.body_mut() = Body::Whole(small);
    reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    reply
}

pub(crate) fn gzip(text: &[u8], level: Compression) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 3), level);
    encoder.write_all(text).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut codings = lines.flat_map(|line| line.split(',')).map(|coding| coding.replace(' ', ""));
    codings.any(|coding| coding == "gzip" || (coding.starts_with("gzip;q=") && !coding.ends_with("q=0")))
}
