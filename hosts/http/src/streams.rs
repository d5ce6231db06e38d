//! The answers that are streamed, of which each token or session has a bounded number, and all together leave
//! connections to others: a stream lasts as long as its caller likes, and a known caller's connection is never closed to
//! make room.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use http_body_util::{BodyExt, Either};

use crate::{error_reply::ErrorReply, places::Places, reply::Reply};

/// The most streams of one token or session.
const STREAMS: usize = 50;
/// The time after which a refused caller may try again.
const AGAIN: Duration = Duration::from_secs(10);

/// The open streams.
pub(crate) struct Streams {
    /// Makes secrets small keys that no caller can choose.
    hasher: RandomState,
    places: Places<u64>,
}

impl Streams {
    /// Returns no streams, of which there may be so many.
    pub(crate) fn new(all: usize) -> Self {
        Self { hasher: RandomState::new(), places: Places::new(STREAMS, all) }
    }

    /// Returns the answer to the holder of this secret; one that is streamed counts until its end.
    ///
    /// # Errors
    /// 429 if the holder has too many streams, or all together have.
    pub(crate) fn held<S: AsRef<[u8]>>(&self, reply: Reply, secret: impl FnOnce() -> S) -> Result<Reply, ErrorReply> {
        let (parts, body) = reply.into_parts();
        let Either::Right(stream) = body else { return Ok(Reply::from_parts(parts, body)) };
        let place = self.places.take(self.hasher.hash_one(secret().as_ref())).ok_or_else(|| {
            let detail = format!("A token or session may have {STREAMS} open streams, and the server a number.");
            ErrorReply::rate_limited(&detail, AGAIN)
        })?;
        let held = stream.map_frame(move |frame| {
            let _place = &place;
            frame
        });
        Ok(Reply::from_parts(parts, Either::Right(held.boxed_unsync())))
    }
}
