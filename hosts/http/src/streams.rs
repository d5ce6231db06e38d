//! The answers that are streamed, of which each token or session has a bounded number, and all together leave
//! connections to others: a stream lasts as long as its caller likes, and a known caller's connection is never closed to
//! make room.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Either};

use crate::{error_reply::ErrorReply, reply::Reply};

/// The most streams of one token or session.
const STREAMS: usize = 50;
/// The time after which a refused caller may try again.
const AGAIN: Duration = Duration::from_secs(10);

/// The open streams.
pub(crate) struct Streams {
    /// Makes secrets small keys that no caller can choose.
    hasher: RandomState,
    all: usize,
    open: Arc<Mutex<HashMap<u64, usize>>>,
}

/// A stream, until this is dropped.
struct Streaming {
    open: Arc<Mutex<HashMap<u64, usize>>>,
    key: u64,
}

impl Streams {
    /// Returns no streams, of which there may be so many.
    pub(crate) fn new(all: usize) -> Self {
        Self { hasher: RandomState::new(), all, open: Arc::default() }
    }

    /// Returns the answer to the holder of this secret; one that is streamed counts until its end.
    ///
    /// # Errors
    /// 429 if the holder has too many streams, or all together have.
    pub(crate) fn held(&self, secret: &[u8], reply: Reply) -> Result<Reply, ErrorReply> {
        let (parts, body) = reply.into_parts();
        let body = match body {
            Either::Left(whole) => Either::Left(whole),
            Either::Right(stream) => {
                let place = self.begin(secret).ok_or_else(|| {
                    let detail =
                        format!("A token or session may have {STREAMS} open streams, and the server a number.");
                    ErrorReply::rate_limited(&detail, AGAIN)
                })?;
                Either::Right(
                    stream
                        .map_frame(move |frame| {
                            let _place = &place;
                            frame
                        })
                        .boxed_unsync(),
                )
            }
        };
        Ok(Reply::from_parts(parts, body))
    }

    fn begin(&self, secret: &[u8]) -> Option<Streaming> {
        let key = self.hasher.hash_one(secret);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.values().sum::<usize>() >= self.all || open.get(&key).is_some_and(|number| *number >= STREAMS) {
            return None;
        }
        *open.entry(key).or_default() += 1;
        Some(Streaming { open: self.open.clone(), key })
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = open.get_mut(&self.key) {
            *number -= 1;
            if *number == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_bounded_per_holder_and_altogether() {
        let streams = Streams::new(STREAMS + 10);
        let mut ours: Vec<_> = (0..STREAMS).map(|_| streams.begin(b"ours").unwrap()).collect();
        assert!(streams.begin(b"ours").is_none());
        let theirs: Vec<_> = (0..10).map(|_| streams.begin(b"theirs").unwrap()).collect();
        assert!(streams.begin(b"others").is_none(), "connections are left for calls");
        ours.pop();
        assert!(streams.begin(b"others").is_some());
        drop((ours, theirs));
        assert!(streams.open.lock().unwrap().is_empty());
    }
}
