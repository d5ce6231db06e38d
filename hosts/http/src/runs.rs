//! Commands by hand: what their answers have beside the operation's own.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{Local, Run, operations::StartRun};
use rollhook_core::{app::AppId, run::RunNumber};

use crate::{
    answer::{self, REPLAYED},
    call::Call,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
};

/// Answers `POST …/runs`.
pub(crate) async fn start(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, post) = (call.app()?, call.input()?);
    let caller = caller.with_key(call.key()?);
    call.body.release();
    let run = caller.call(StartRun, &id, post).await?;
    let mut reply = answer::of::<StartRun>(&run);
    let location = HeaderValue::from_str(&run.url).ok().map(|url| (LOCATION, url));
    reply.headers_mut().extend(location);
    reply.headers_mut().extend(run.replayed.then_some((REPLAYED, HeaderValue::from_static("true"))));
    Ok(reply)
}

/// Answers one run, at once or, if the caller prefers to wait, after its end.
pub(crate) async fn show(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, number): (AppId, RunNumber) = call.subject()?;
    call.body.release();
    let access = caller.open(&id).await?;
    let (deployer, wait) = (&call.state.deployer, headers::wait(&call.headers));
    let place = wait.and_then(|_| call.state.waits.take(access.uid()));
    let wait = wait.filter(|_| place.is_some());
    let run = tokio::select! {
        run = deployer.wait_for_run(&access, number, wait.unwrap_or(Duration::ZERO)) => run?,
        () = call.state.drain.begun() => deployer.wait_for_run(&access, number, Duration::ZERO).await?,
    };
    let mut reply = reply::json(StatusCode::OK, &Run::of(&id, &run));
    reply.headers_mut().extend(wait.and_then(answer::applied));
    Ok(reply)
}
