//! The answers that are streamed, of which each known caller has a bounded number, those of an environment or a project a
//! part, and all together leave connections to others: a stream lasts as long as its caller likes.

use std::time::Duration;

use http_body_util::{BodyExt, Either};

use crate::{callers::Caller, error_reply::ErrorReply, places::CallerPlaces, reply::Reply};

/// The most streams of one token, person or account.
const STREAMS: usize = 50;
/// The time after which a refused caller may try again.
const AGAIN: Duration = Duration::from_secs(10);

/// The open streams.
pub(crate) struct Streams(CallerPlaces);

impl Streams {
    /// Returns no streams, of which there may be so many.
    pub(crate) fn new(all: usize) -> Self {
        Self(CallerPlaces::new(STREAMS, all))
    }

    /// Returns the answer to a caller; one that is streamed counts until its end.
    ///
    /// # Errors
    /// 429 if the caller has too many streams, or those of its environment or project, or all together.
    pub(crate) fn held(&self, reply: Reply, caller: impl FnOnce() -> Caller) -> Result<Reply, ErrorReply> {
        let (parts, body) = reply.into_parts();
        let Either::Right(stream) = body else { return Ok(Reply::from_parts(parts, body)) };
        let place = self.0.take(caller()).ok_or_else(|| {
            let detail = format!(
                "A token, person or account may have {STREAMS} open streams, the tokens of an environment a quarter of the \
                 server's, and those of a project a half."
            );
            ErrorReply::rate_limited(&detail, AGAIN)
        })?;
        let held = stream.map_frame(move |frame| {
            let _place = &place;
            frame
        });
        Ok(Reply::from_parts(parts, Either::Right(held.boxed_unsync())))
    }
}
