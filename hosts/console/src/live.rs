//! The history of an app, and activity, as they change: server-sent events, each of which holds the changed part of the page.
//!
//! An event's id is a hash of what it shows. A browser that has lost its connection sends the last one, and gets the
//! present state if that is another: nothing is skipped, and any replica can go on.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use rollhook_api::Kind;
use rollhook_core::app::AppId;
use rollhook_management::access::{Principal, SessionSecret};
use sha2::{Digest, Sha256};

use crate::{
    console::{Call, Console},
    host::{Access, Failure, Watch, WatchAll},
    pages::{
        activity::{self, Filter},
        deploys::{self, Read},
    },
    reply::{self, Reply},
    view::Frame,
};

/// The time without a change after which a comment is sent, so that no proxy takes the connection for dead, and a
/// session that has ended is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The comments after which activity is read again although no change was heard of.
const QUIET_MAX: u32 = 3;
/// The comment of a stream that has nothing new.
const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// Answers `GET …/live`.
pub(crate) async fn stream(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let watch = call.console.host.watch(&call.access.principal, id).await?;
    let last = call.request.headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    // Until the first event, what is seen is the page itself.
    let seen = last.or_else(|| call.request.query("seen"));
    let live = Live {
        console: call.console.clone(),
        session: call.session.clone(),
        access: call.access.clone(),
        id: id.clone(),
        watch,
        seen: seen.unwrap_or_default(),
        is_first: true,
    };
    Ok(reply::events(Box::pin(stream::unfold(live, async |mut live| Some((live.next().await?, live))))))
}

/// The position of a stream.
struct Live {
    console: Arc<Console>,
    session: SessionSecret,
    access: Access,
    id: AppId,
    watch: Watch,
    /// The id of the last event.
    seen: String,
    is_first: bool,
}

impl Live {
    /// Returns the next event or comment, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_first {
            self.is_first = false;
        } else {
            if let Err(failure) = self.watch.changed(KEEP_ALIVE).await {
                return ends(&failure);
            }
            // The stream must not outlive its session, nor the session's permissions.
            match self.confirm().await {
                Ok(access) => self.access = access,
                Err(failure) => return ends(&failure),
            }
        }
        let operations = self.console.host.operations(&self.access.principal, None);
        match deploys::read(&self.console.host, &operations, &self.id, None).await {
            Ok(read) => Some(self.event(&read)),
            Err(failure) => ends(&failure),
        }
    }

    async fn confirm(&self) -> Result<Access, Failure> {
        let access = self.console.host.session(&self.session).await?;
        let permissions = self.console.host.permissions(&access.principal, &self.id).await?;
        Ok(Access { permissions, ..access })
    }

    fn event(&mut self, read: &Read) -> Bytes {
        let id = fingerprint(read);
        if id == self.seen {
            return STILL_HERE;
        }
        let host = &self.console.host;
        let frame = Frame { may: self.access.permissions, targets: host.targets(), ..Frame::signed_out(host.now()) };
        self.seen.clone_from(&id);
        event(&id, &deploys::part(read, &frame))
    }
}

/// Returns an event that has this part of a page.
fn event(id: &str, part: &str) -> Bytes {
    let mut event = format!("id: {id}\n");
    for line in part.lines() {
        let _ = writeln!(event, "data: {line}");
    }
    event.push('\n');
    event.into()
}

/// Answers `GET /activity/live`.
pub(crate) async fn activity(call: &Call<'_>) -> Result<Reply, Failure> {
    let last = call.request.headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let live = LiveActivity {
        console: call.console.clone(),
        session: call.session.clone(),
        principal: call.access.principal.clone(),
        filter: Filter::of(call.request),
        changes: call.console.host.watch_all(),
        seen: last.or_else(|| call.request.query("seen")).unwrap_or_default(),
        quiet: 0,
        is_first: true,
    };
    Ok(reply::events(Box::pin(stream::unfold(live, async |mut live| Some((live.next().await?, live))))))
}

/// The position of a stream of activity.
struct LiveActivity {
    console: Arc<Console>,
    session: SessionSecret,
    principal: Principal,
    filter: Filter,
    changes: WatchAll,
    /// The id of the last event.
    seen: String,
    /// The number of comments since the list was read.
    quiet: u32,
    is_first: bool,
}

impl LiveActivity {
    /// Returns the next event or comment, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_first {
            self.is_first = false;
        } else {
            let has_changed = self.changes.changed(KEEP_ALIVE).await;
            // The stream must not outlive its session, nor the session's permissions.
            match self.console.host.session(&self.session).await {
                Ok(access) => self.principal = access.principal,
                Err(failure) => return ends(&failure),
            }
            // Hints of changes may be lost.
            if !has_changed && self.quiet < QUIET_MAX {
                self.quiet += 1;
                return Some(STILL_HERE);
            }
        }
        self.quiet = 0;
        let host = &self.console.host;
        match activity::read(&host.operations(&self.principal, None), &self.filter).await {
            Ok(list) => {
                let id = activity::fingerprint(&list);
                if id == self.seen {
                    return Some(STILL_HERE);
                }
                let frame = Frame { targets: host.targets(), ..Frame::signed_out(host.now()) };
                self.seen.clone_from(&id);
                Some(event(&id, &activity::part(&list, &self.filter, &frame)))
            }
            Err(failure) => ends(&failure),
        }
    }
}

/// Returns a comment if the store may be back by the next turn, and else the end.
fn ends(failure: &Failure) -> Option<Bytes> {
    let is_passing = matches!(
        failure.kind,
        Kind::StoreUnavailable | Kind::StoreRefused | Kind::Busy | Kind::RateLimited | Kind::ReviewUnavailable
    );
    is_passing.then(|| Bytes::from_static(b": the store is away\n\n"))
}

/// Returns a hash of what the page shows, except for the time.
pub(crate) fn fingerprint(read: &Read) -> String {
    let app = rollhook_api::App { polling: None, ..read.app.clone() };
    hash(&serde_json::to_vec(&(&app, &read.list)).unwrap_or_default())
}

/// Returns a hash of what a page shows.
pub(crate) fn hash(shown: &[u8]) -> String {
    let mut hex = String::new();
    for byte in &Sha256::digest(shown)[..12] {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
