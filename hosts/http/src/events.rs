//! A deploy's changes as server-sent events, until it has ended.
//!
//! An event's id is the revision and the entry's step: both are in the entry itself, so that no event can be skipped by
//! one that was committed before it, and any replica can resume a stream that another one began.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;
use http_body_util::{BodyExt, Either, StreamBody};
use rollhook_api::{Deploy, Local, Standing};
use rollhook_core::{
    deploy::{self, Revision},
    request::Refusal,
    service::Authorized,
};

use crate::{
    failure::Failure,
    host::Host,
    reply::{self, Reply},
    router::Call,
};

/// After this long without a change a comment is sent, so that nobody in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET …/deploys/{revision}/events`.
pub(crate) async fn stream(call: &Call, operations: Local<Failure>) -> Result<Reply, Failure> {
    let access = operations.open(&call.app()?).await?;
    let revision = call.revision()?;
    let now = call.host.deployer.entry(&access, revision).await?;
    let seen = last_seen(&call.headers, revision).filter(|step| *step <= now.step);
    if now.is_terminal() && seen == Some(now.step) {
        // By which a browser's EventSource knows that it need not connect again.
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let first = (seen != Some(now.step)).then_some(now);
    let watch = Watch { host: call.host.clone(), access, revision, seen: seen.unwrap_or(0), first, ended: false };
    let frames = stream::unfold(watch, |mut watch| async move {
        let text = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), watch))
    });
    let mut reply = Response::new(Either::Right(StreamBody::new(frames).boxed_unsync()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies collect answers before they pass them on.
    reply.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(reply)
}

/// The step that the caller saw last of this revision.
fn last_seen(headers: &HeaderMap, revision: Revision) -> Option<u32> {
    let (of, step) = headers.get("last-event-id")?.to_str().ok()?.split_once('-')?;
    (of == revision.to_string()).then(|| step.parse().ok()).flatten()
}

/// A stream's place in the history.
struct Watch {
    host: Arc<Host>,
    access: Authorized,
    revision: Revision,
    seen: u32,
    /// The state to begin with.
    first: Option<deploy::Deploy>,
    ended: bool,
}

impl Watch {
    /// The next piece of the stream; none where it is over.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        let entry = match self.first.take() {
            Some(entry) => entry,
            None => {
                let drain = self.host.drain.clone();
                let changed = tokio::select! {
                    changed = self.host.deployer.changed(&self.access, self.revision, self.seen, KEEP_ALIVE) => changed,
                    () = drain.begun() => return None,
                };
                match changed {
                    Ok(entry) if entry.step > self.seen || entry.is_terminal() => entry,
                    // The store may be back by the next time.
                    Ok(_) | Err(Refusal::StoreUnavailable { .. }) => return Some(": still here\n\n".to_owned()),
                    // The app is gone, and its history with it.
                    Err(_) => return None,
                }
            }
        };
        self.seen = entry.step;
        self.ended = entry.is_terminal();
        Some(self.event(&entry).await)
    }

    async fn event(&self, entry: &deploy::Deploy) -> String {
        // The marks are left out rather than the event.
        let standing = Standing::read(&self.host.deployer, &self.access).await.unwrap_or_default();
        let data = serde_json::to_string(&Deploy::of(self.access.app(), entry, standing)).unwrap_or_default();
        format!("event: status\nid: {}-{}\ndata: {data}\n\n", entry.revision, entry.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_revisions_id_is_resumed() {
        let seen = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("last-event-id", HeaderValue::from_static(text));
            last_seen(&headers, Revision::FIRST)
        };
        assert_eq!(seen("1-3"), Some(3));
        for text in ["2-3", "1", "1-", "-3", "1-x", "1-3-4"] {
            assert_eq!(seen(text), None, "{text}");
        }
    }
}
