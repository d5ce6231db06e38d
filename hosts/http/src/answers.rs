//! The large answers, which hold their bytes until they were read, for which their connection has a least
//! pace: see [`Stream`](crate::stream::Stream).
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
    budget::{Budget, Holder, Room, SMALL_MAX},
    error_reply::ErrorReply,
    reply::{self, Reply},
    stream::{LongAnswer, LongAnswers},
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
    _answer: LongAnswer,
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
    /// Returns the answer to a call, whose bytes are counted until they were sent if they are many, on the connection with these
    /// long answers. Without room for them, the answer to a call that may have changed something keeps its status, and has no
    /// more than a sentence.
    ///
    /// # Errors
    /// 429 for a call that changes nothing, if the caller has too many bytes to read, or those of its environment or project,
    /// or all together; or if the answer alone has more than the caller may hold.
    pub(crate) fn held(
        &self,
        reply: Reply,
        method: &Method,
        long_answers: &LongAnswers,
        holder: impl FnOnce() -> Holder,
    ) -> Result<Reply, ErrorReply> {
        let (parts, body) = reply.into_parts();
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let whole = match body {
            Either::Left(whole) if length > SMALL_MAX => whole,
            body @ (Either::Left(_) | Either::Right(_)) => return Ok(Reply::from_parts(parts, body)),
        };
        let Some(room) = self.0.take(holder(), length).now_or_never() else {
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
        let held = Held { text, _room: room, _answer: long_answers.begin() };
        Ok(Reply::from_parts(parts, reply::full(Bytes::from_owner(held))))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use futures_util::stream;
    use http::StatusCode;
    use hyper::{server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::sleep,
    };

    use super::*;
    use crate::{
        body::PUSH_MAX,
        callers::Caller,
        reply::Body,
        stream::{Stream, WRITE_TIME},
    };

    fn caller(party: u64, environment: u64) -> Caller {
        Caller { party, environment: Some(environment), project: Some(environment) }
    }

    /// The bytes of an answer, as they wait to be sent; `None` if it was refused.
    fn answered(answers: &Answers, caller: Caller, length: usize) -> Option<Bytes> {
        let reply = reply::whole(StatusCode::OK, "application/json", vec![b'x'; length].into());
        let body: Body =
            answers.held(reply, &Method::GET, &LongAnswers::default(), || Holder::Known(caller)).ok()?.into_body();
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
        let reply =
            answers.held(reply, &Method::POST, &LongAnswers::default(), || Holder::Known(caller(1, 1))).ok().unwrap();
        let length = reply.body().size_hint().exact();
        assert_eq!((reply.status().as_u16(), length), (422, Some(LEFT_OUT.len() as u64)), "what was done is done");
        drop(greedy);
        assert_eq!(hold(caller(1, 1)).len(), 4, "what was sent is free again");
    }

    #[test]
    fn long_answers_to_strangers_are_bounded_for_an_address_and_take_nothing_of_callers() {
        let answers = Answers::default();
        let metrics = |network: [u8; 4]| {
            let reply = reply::whole(StatusCode::OK, "text/plain", vec![b'x'; SMALL_MAX + 1].into());
            let holder = || Holder::Stranger(network.into());
            let answer = answers.held(reply, &Method::GET, &LongAnswers::default(), holder);
            Some(answer.ok()?.into_body().collect().now_or_never().unwrap().unwrap().to_bytes())
        };
        let unread = |network| (0..1_000).map_while(|_| metrics(network)).collect::<Vec<_>>();
        let all: Vec<_> = (1..=9).map(|last| unread([192, 0, 2, last])).collect();
        assert_eq!(all[0].len(), 63, "4 MiB");
        let bytes: usize = all.iter().flatten().map(Bytes::len).sum();
        assert!(all[1].len() == 63 && bytes <= 16 << 20, "{bytes}");
        assert!(answered(&answers, caller(1, 1), 1 << 20).is_some());
    }

    #[test]
    fn answer_beyond_the_share_of_a_caller_is_not_held() {
        let answers = Answers::default();
        assert!(answered(&answers, caller(1, 1), PUSH_MAX + 1).is_none());
        assert!(answered(&answers, caller(1, 1), PUSH_MAX).is_some());
    }

    /// The kibibytes of the longest answer that a pool of callers has room for beside three others.
    const LONG: usize = 1024;

    /// A connection on which `GET /long` has a long answer and `GET /events` one that is streamed without end; returns its
    /// peer.
    fn connected(answers: &Arc<Answers>, party: u64) -> DuplexStream {
        let (ours, theirs) = duplex(64 * 1024);
        let (answers, long_answers) = (answers.clone(), LongAnswers::default());
        let stream = Stream::new(ours, WRITE_TIME, long_answers.clone());
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let part = || Bytes::from(vec![b'x'; 64 * 1024]);
            let reply = if request.uri().path() == "/long" {
                reply::whole(StatusCode::OK, "application/json", vec![b'x'; LONG * 1024].into())
            } else {
                reply::stream("text/event-stream", stream::repeat_with(part))
            };
            let reply = answers.held(reply, &Method::GET, &long_answers, || Holder::Known(caller(party, party)));
            async move { Ok::<_, Infallible>(reply.ok().unwrap()) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        theirs
    }

    /// Calls, and reads these kibibytes of the answer in a second, for so many seconds at most; returns the kibibytes that were
    /// read.
    async fn read(peer: &mut DuplexStream, path: &str, pace: usize, seconds: usize) -> usize {
        peer.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut part = vec![0; pace * 1024];
        for second in 0..seconds {
            if peer.read_exact(&mut part).await.is_err() {
                return second * pace;
            }
            sleep(Duration::from_secs(1)).await;
        }
        seconds * pace
    }

    #[tokio::test(start_paused = true)]
    async fn long_answer_that_is_read_too_slowly_is_cut_off_and_its_room_is_free_again() {
        let answers = Arc::new(Answers::default());
        let mut peers: Vec<_> = (0..4).map(|_| connected(&answers, 1)).collect();
        let mut slow: Vec<_> = peers.iter_mut().map(|peer| Box::pin(read(peer, "/long", 8, LONG / 8))).collect();
        let begun = futures_util::future::join_all(slow.iter_mut().map(|read| async move {
            tokio::select! { biased; _ = read => true, () = sleep(Duration::from_secs(10)) => false }
        }));
        assert_eq!(begun.await, [false; 4], "they are being read");
        assert!(answered(&answers, caller(1, 1), 1 << 20).is_none(), "the caller's share is taken");
        for read in futures_util::future::join_all(slow).await {
            assert!(read < LONG / 2, "cut off after {read} KiB");
        }
        let again: Vec<_> = (0..5).map_while(|_| answered(&answers, caller(1, 1), 1 << 20)).collect();
        assert_eq!(again.len(), 4, "the whole share");
    }

    #[tokio::test(start_paused = true)]
    async fn long_answer_that_is_read_steadily_is_sent_as_a_whole() {
        let answers = Arc::new(Answers::default());
        let mut peer = connected(&answers, 1);
        for _ in 0..2 {
            assert_eq!(read(&mut peer, "/long", 18, LONG / 18).await, LONG / 18 * 18);
            // The rest, with the head.
            while answered(&answers, caller(1, 1), 4 << 20).is_none() {
                let _ = peer.read(&mut [0; 1024]).await.unwrap();
            }
            // Until the next call, nothing has to be read.
            sleep(10 * WRITE_TIME).await;
            while peer.read(&mut [0; 1024]).now_or_never().is_some() {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_and_followed_logs_may_be_read_slowly() {
        let mut peer = connected(&Arc::new(Answers::default()), 1);
        assert_eq!(read(&mut peer, "/events", 1, 600).await, 600);
    }
}
