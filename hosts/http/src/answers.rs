//! The large answers to known callers, which hold their bytes until they were read: a caller may read as slowly as it likes.
//!
//! Of these bytes each caller has a share, those of an environment or a project a part, as of the bodies that are read: see
//! [`Budget`]. An answer for which there is no room is dropped, so that none waits with its bytes.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Method;
use http_body::Body as _;
use http_body_util::{BodyExt, Either};

use crate::{
    body::PUSH_MAX,
    budget::{Budget, Holder, Room, SMALL_MAX},
    callers::Caller,
    error_reply::ErrorReply,
    reply::{self, Reply},
};

/// The time after which a refused caller may try again.
const AGAIN: Duration = Duration::from_secs(2);

/// The bytes of large answers.
#[derive(Default)]
pub(crate) struct Answers(Budget);

/// The bytes of an answer in their room.
struct Held {
    text: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The text in place of an answer for which there is no room, of a call that was done or refused already.
const LEFT_OUT: &str = "The answer was left out: too many long answers to this caller, or to those of its environment, are being \
                        read. Its status holds; ask again for what it would have shown.\n";

impl Answers {
    /// Returns the answer to a call, whose bytes are counted until they were sent if they are many. Without room for them,
    /// the answer to a call that may have changed something keeps its status, and has no more than a sentence.
    ///
    /// # Errors
    /// 429 for a call that changes nothing, if the caller has too many bytes to read, or those of its environment or project,
    /// or all together.
    pub(crate) fn held(
        &self,
        reply: Reply,
        method: &Method,
        caller: impl FnOnce() -> Caller,
    ) -> Result<Reply, ErrorReply> {
        let (parts, body) = reply.into_parts();
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let whole = match body {
            Either::Left(whole) if length > SMALL_MAX => whole,
            body @ (Either::Left(_) | Either::Right(_)) => return Ok(Reply::from_parts(parts, body)),
        };
        let Some(room) = self.0.take(Holder::Known(caller()), length.min(PUSH_MAX)).now_or_never() else {
            if *method != Method::GET {
                return Ok(reply::whole(parts.status, "text/plain; charset=utf-8", LEFT_OUT.into()));
            }
            let detail = "Too many long answers to this caller, or to those of its environment, are being read: read them \
                          first, or ask for fewer entries at once (limit).";
            return Err(ErrorReply::rate_limited(detail, AGAIN));
        };
        // It is here as a whole.
        let text =
            whole.collect().now_or_never().and_then(Result::ok).map(|whole| whole.to_bytes()).unwrap_or_default();
        Ok(Reply::from_parts(parts, reply::full(Bytes::from_owner(Held { text, _room: room }))))
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::reply::Body;

    fn caller(party: u64, environment: u64) -> Caller {
        Caller { party, environment: Some(environment), project: Some(environment) }
    }

    /// The bytes of an answer, as they wait to be sent; `None` if it was refused.
    fn answered(answers: &Answers, caller: Caller, length: usize) -> Option<Bytes> {
        let reply = reply::whole(StatusCode::OK, "application/json", vec![b'x'; length].into());
        let body: Body = answers.held(reply, &Method::GET, || caller).ok()?.into_body();
        Some(body.collect().now_or_never().unwrap().unwrap().to_bytes())
    }

    #[test]
    fn long_answers_that_are_not_read_are_bounded_for_a_caller_and_leave_room_to_others() {
        let answers = Answers::default();
        let hold = |caller| (0..1_000).map_while(|_| answered(&answers, caller, 1 << 20)).collect::<Vec<_>>();
        let greedy = hold(caller(1, 1));
        assert_eq!(greedy.len(), 4, "4 MiB");
        assert_eq!(greedy[0].len(), 1 << 20, "the whole answer");
        assert!(answered(&answers, caller(1, 1), SMALL_MAX).is_some(), "a short one");
        let of_the_same = hold(caller(2, 1));
        assert_eq!(of_the_same.len(), 4, "8 MiB of an environment");
        assert!(hold(caller(3, 1)).is_empty());
        assert!(!hold(caller(4, 2)).is_empty(), "another environment");
        let reply = reply::whole(StatusCode::UNPROCESSABLE_ENTITY, "text/html", vec![b'x'; 1 << 20].into());
        let reply = answers.held(reply, &Method::POST, || caller(1, 1)).ok().unwrap();
        let length = reply.body().size_hint().exact();
        assert_eq!((reply.status().as_u16(), length), (422, Some(LEFT_OUT.len() as u64)), "what was done is done");
        drop(greedy);
        assert_eq!(hold(caller(1, 1)).len(), 4, "what was sent is free again");
    }
}
