//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{Either, Full, combinators::UnsyncBoxBody};
use serde::Serialize;

/// What an answer carries: a whole text, or a stream of events.
pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// An answer.
pub(crate) type Reply = Response<Body>;

/// An answer in JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => whole(status, "application/json", text.into()),
        // Our own types have string keys and finite numbers only.
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// An answer of this type and text.
pub(crate) fn whole(status: StatusCode, media_type: &'static str, text: Bytes) -> Reply {
    let mut reply = empty(status);
    *reply.body_mut() = Either::Left(Full::new(text));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// An answer without content.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Either::Left(Full::default()));
    *reply.status_mut() = status;
    // Answers tell of a moment, and some of them a secret.
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
