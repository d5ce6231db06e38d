//! The log of a build, a release command or a command by hand as plain text: the present part, or all parts until it has
//! ended.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header::X_CONTENT_TYPE_OPTIONS};
use rollhook_api::{
    Local,
    operations::{LogQuery, LogStep, RunLogQuery},
};
use rollhook_core::{
    app::AppId,
    deploy::Revision,
    request::Refusal,
    run::RunNumber,
    service::{Authorized, Deployer, LogPart},
};
use rollhook_management as management;
use tokio::time::sleep;

use crate::{
    call::Call,
    connections::InCall,
    error_reply::ErrorReply,
    reply::{self, Reply},
    state::State,
};

/// The time without text after which the caller is confirmed again: a quiet build must not outlast a session unseen.
const CONFIRM: Duration = Duration::from_secs(15);

/// Answers `GET …/deploys/{revision}/log`.
pub(crate) async fn read(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let query: LogQuery = call.input()?;
    let (id, revision) = call.subject()?;
    let log = Log::OfStep(query.step.unwrap_or_default(), revision);
    parts(call, caller, (&id, log), query.from, query.follow).await
}

/// Answers `GET …/runs/{run}/log`.
pub(crate) async fn read_of_run(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let query: RunLogQuery = call.input()?;
    let (id, number) = call.subject()?;
    parts(call, caller, (&id, Log::OfRun(number)), query.from, query.follow).await
}

/// A log that grows.
#[derive(Clone, Copy)]
enum Log {
    OfStep(LogStep, Revision),
    OfRun(RunNumber),
}

impl Log {
    async fn read(self, deployer: &Deployer, access: &Authorized, from: u64, follow: bool) -> Result<LogPart, Refusal> {
        match self {
            Self::OfStep(step, revision) => step.read(deployer, access, (revision, from), follow).await,
            Self::OfRun(number) => deployer.run_log(access, number, from, follow).await,
        }
    }
}

async fn parts(
    call: &Call,
    caller: Local,
    (id, log): (&AppId, Log),
    from: Option<u64>,
    follow: Option<bool>,
) -> Result<Reply, ErrorReply> {
    let (from, follow) = (from.unwrap_or(0), follow.unwrap_or(false));
    let access = caller.open(id).await?;
    // The first part is read before the answer begins, so that a failure still gets a status.
    let first = log.read(&call.state.deployer, &access, from, false).await?;
    let reading = Reading {
        state: call.state.clone(),
        caller,
        access,
        log,
        from,
        follow,
        first: Some(first),
        _in_call: call.in_call.clone(),
    };
    let parts = stream::unfold(reading, async |mut reading| Some((Bytes::from(reading.next().await?), reading)));
    let mut reply = reply::stream("text/plain; charset=utf-8", parts);
    // Builds and commands write text of strangers.
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(reply)
}

/// The position of a caller in the log.
struct Reading {
    state: Arc<State>,
    caller: Local,
    access: Authorized,
    log: Log,
    from: u64,
    follow: bool,
    first: Option<LogPart>,
    _in_call: InCall,
}

impl Reading {
    /// Returns the next part, or `None` at the log's end, or if the server stops.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let part = match self.first.take() {
                // The first part was read without waiting; later parts are waited for.
                Some(first) => LogPart { last: !self.follow, ..first },
                None => {
                    let drain = self.state.drain.clone();
                    let next = self.log.read(&self.state.deployer, &self.access, self.from, self.follow);
                    tokio::select! {
                        part = next => part.ok()?,
                        () = sleep(CONFIRM) => LogPart { bytes: Vec::new(), last: false },
                        () = drain.begun() => return None,
                    }
                }
            };
            // A stream lasts no longer than its caller's token or session.
            match self.caller.reopen(self.access.app()).await {
                Ok(access) => self.access = access,
                // Nothing is shown meanwhile; the store may be back by the next turn.
                Err(
                    management::Refusal::Core(Refusal::StoreUnavailable { .. })
                    | management::Refusal::ReviewUnavailable,
                ) if part.bytes.is_empty() && !part.last => continue,
                Err(_) => return None,
            }
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
