//! A build's log, as plain text: what there is, or what comes until the build has ended.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body::Frame;
use http_body_util::{BodyExt, Either, StreamBody};
use rollhook_api::Local;
use rollhook_core::{
    deploy::Revision,
    service::{Authorized, LogPart},
};

use crate::{failure::Failure, host::Host, query::Query, reply::Reply, router::Call};

/// `GET …/deploys/{revision}/log`.
pub(crate) async fn read(call: &Call, operations: Local<Failure>) -> Result<Reply, Failure> {
    let query = Query::parse(call.uri.query(), &["from", "follow"])?;
    let from = query.get::<u64>("from")?.unwrap_or(0);
    let follow = query.get::<bool>("follow")?.unwrap_or(false);
    let access = operations.open(&call.app()?).await?;
    let revision = call.revision()?;
    // The first part is read before the answer begins, so that what is wrong can still be told by a status.
    let first = call.host.deployer.build_log(&access, revision, from, false).await?;
    let reading = Reading { host: call.host.clone(), access, revision, from, follow, first: Some(first) };
    let frames = stream::unfold(reading, |mut reading| async move {
        let bytes = reading.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))), reading))
    });
    let mut reply = Response::new(Either::Right(StreamBody::new(frames).boxed_unsync()));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // What a build writes is a stranger's text.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(reply)
}

/// A caller's place in the log.
struct Reading {
    host: Arc<Host>,
    access: Authorized,
    revision: Revision,
    from: u64,
    follow: bool,
    first: Option<LogPart>,
}

impl Reading {
    /// The next part; none where the log is over, or the server stops.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let part = match self.first.take() {
                // It was not waited for; what follows is.
                Some(first) => LogPart { last: !self.follow, ..first },
                None => {
                    let drain = self.host.drain.clone();
                    let next = self.host.deployer.build_log(&self.access, self.revision, self.from, self.follow);
                    tokio::select! {
                        part = next => part.ok()?,
                        () = drain.begun() => return None,
                    }
                }
            };
            if !part.bytes.is_empty() {
                self.from += part.bytes.len() as u64;
                return Some(part.bytes);
            }
            if part.last {
                return None;
            }
        }
    }
}
