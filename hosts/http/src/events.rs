//! A deploy's changes as server-sent events, until it has ended.
//!
//! An event's id is the revision and the entry's step. Both are in the entry itself, so that no event is skipped, and
//! any replica can resume a stream that another one began.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use rollhook_api::{Deploy, Local};
use rollhook_core::{deploy::Revision, request::Refusal, service::Authorized};
use rollhook_management as management;

use crate::{
    call::Call,
    connections::InCall,
    error_reply::ErrorReply,
    reply::{self, Reply},
    state::State,
};

/// The time without a change after which a comment is sent, so that no proxy takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers `GET …/deploys/{revision}/events`.
pub(crate) async fn stream(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, revision) = call.subject()?;
    let access = caller.open(&id).await?;
    let (state, now) = call.state.deployer.entry_and_state(&access, revision).await?;
    let seen = last_seen(&call.headers, revision).filter(|step| *step <= now.step);
    if now.is_terminal() && seen == Some(now.step) {
        // Tells a browser's EventSource not to connect again.
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let first = (seen != Some(now.step)).then(|| Deploy::shown(&call.state.deployer, &state, &now));
    let watch = Watch {
        state: call.state.clone(),
        caller,
        access,
        revision,
        seen: seen.unwrap_or(0),
        first,
        ended: false,
        _in_call: call.in_call.clone(),
    };
    let parts = stream::unfold(watch, async |mut watch| Some((Bytes::from(watch.next().await?), watch)));
    Ok(reply::stream("text/event-stream", parts))
}

/// Returns the last step of this revision that the caller has seen.
fn last_seen(headers: &HeaderMap, revision: Revision) -> Option<u32> {
    let (of, step) = headers.get("last-event-id")?.to_str().ok()?.split_once('-')?;
    (of == revision.to_string()).then(|| step.parse().ok()).flatten()
}

/// The position of a stream.
struct Watch {
    state: Arc<State>,
    caller: Local,
    access: Authorized,
    revision: Revision,
    seen: u32,
    /// The entry to begin with.
    first: Option<Deploy>,
    ended: bool,
    _in_call: InCall,
}

impl Watch {
    /// Returns the next event or comment, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        let entry = match self.first.take() {
            Some(first) => first,
            None => {
                let drain = self.state.drain.clone();
                let changed = tokio::select! {
                    changed = self.state.deployer.changed(&self.access, self.revision, self.seen, KEEP_ALIVE) => changed,
                    () = drain.begun() => return None,
                };
                // A stream lasts no longer than its caller's token or session.
                match self.caller.reopen(self.access.app()).await {
                    Ok(access) => self.access = access,
                    Err(
                        management::Refusal::Core(Refusal::StoreUnavailable { .. })
                        | management::Refusal::ReviewUnavailable,
                    ) => {
                        return Some(": still here\n\n".to_owned());
                    }
                    Err(_) => return None,
                }
                match changed {
                    Ok((state, entry)) if entry.step > self.seen || entry.is_terminal() => {
                        Deploy::shown(&self.state.deployer, &state, &entry)
                    }
                    // The store may be back by the next turn.
                    Ok(_) | Err(Refusal::StoreUnavailable { .. }) => return Some(": still here\n\n".to_owned()),
                    // The app was deleted with its history.
                    Err(_) => return None,
                }
            }
        };
        self.seen = entry.step;
        self.ended = entry.status.is_terminal();
        Some(event(&entry))
    }
}

fn event(entry: &Deploy) -> String {
    let data = serde_json::to_string(entry).unwrap_or_default();
    format!("event: status\nid: {}-{}\ndata: {data}\n\n", entry.revision, entry.step)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
