//! Answers, whole or streamed.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;
use http_body_util::{BodyExt, Either, Full, StreamBody, combinators::UnsyncBoxBody};
use serde::Serialize;

/// The body of an answer: a whole text, or a stream.
pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// An answer with its headers and body.
pub(crate) type Reply = Response<Body>;

/// Returns an answer in JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => whole(status, "application/json", text.into()),
        // Our own types have string keys and finite numbers only.
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Returns an answer of this type and text.
pub(crate) fn whole(status: StatusCode, media_type: &'static str, text: Bytes) -> Reply {
    let mut reply = empty(status);
    *reply.body_mut() = full(text);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Returns an answer that is sent part by part.
pub(crate) fn stream(media_type: &'static str, parts: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    let mut reply = empty(StatusCode::OK);
    *reply.body_mut() = streamed(parts);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    // Some proxies buffer answers unless this header forbids it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// Returns a body that is sent part by part.
pub(crate) fn streamed(parts: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    Either::Right(StreamBody::new(parts.map(|part| Ok::<_, Infallible>(Frame::data(part)))).boxed_unsync())
}

/// Returns a body that is sent as a whole.
pub(crate) fn full(text: Bytes) -> Body {
    Either::Left(Full::new(text))
}

/// Returns an answer without content.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Either::Left(Full::default()));
    *reply.status_mut() = status;
    // Answers describe a moment, and some contain a secret.
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
