//! Deploys by an operator: what their answers have beside the operation's own.

use std::time::Duration;

use http::StatusCode;
use rollhook_api::{
    Deploy, DeployAnswer, Local, Operation,
    operations::{DeployApp, DeployQuery, RollBack},
};
use rollhook_core::{app::AppId, deploy::Revision, service::Authorized};

use crate::{
    answer, body,
    call::Call,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
};

/// Answers `GET …/deploys/{revision}`.
pub(crate) async fn show(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    entry(call, &caller.open(&call.app()?).await?).await
}

/// Answers one entry with its evidence, at once or, if the caller prefers to wait, after its end or its next change.
pub(crate) async fn entry(call: &Call, access: &Authorized) -> Result<Reply, ErrorReply> {
    let query: DeployQuery = call.input()?;
    let until = query.until();
    let (_, revision): (AppId, Revision) = call.subject()?;
    call.body.release();
    let (deployer, wait) = (&call.state.deployer, headers::wait(&call.headers));
    let place = wait.and_then(|_| call.state.waits.take(access.uid()));
    let wait = wait.filter(|_| place.is_some());
    let read = |limit| Deploy::read(deployer, access, revision, (until, limit));
    let entry = match wait {
        Some(limit) => tokio::select! {
            entry = read(limit) => entry?,
            () = call.state.drain.begun() => read(Duration::ZERO).await?,
        },
        None => read(Duration::ZERO).await?,
    };
    let mut reply = reply::json(StatusCode::OK, &entry);
    reply.headers_mut().extend(wait.and_then(answer::applied));
    Ok(reply)
}

/// Answers `POST …/deploys`.
pub(crate) async fn post(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, post) = (call.app()?, body::deploy_post(&call.headers, &call.body.bytes())?);
    let caller = caller.with_key(call.key()?);
    call.body.release();
    answer::accepted(call, caller.call(DeployApp, &id, post).await?, caller.open(&id)).await
}

/// Answers another operation that accepts a deploy.
pub(crate) async fn accept<O>(call: &Call, caller: Local) -> Result<Reply, ErrorReply>
where
    O: Operation<Subject = AppId, Answer = DeployAnswer>,
{
    let (id, input) = (call.app()?, call.input()?);
    let caller = caller.with_key(call.key()?);
    call.body.release();
    answer::accepted(call, O::perform(&caller, &id, input).await?, caller.open(&id)).await
}

/// Answers `POST …/rollback`.
pub(crate) async fn roll_back(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, rollback) = (call.app()?, call.input()?);
    let caller = caller.with_key(call.key()?);
    call.body.release();
    let accepted = caller.call(RollBack, &id, rollback).await?;
    let mut reply = answer::of::<RollBack>(&accepted);
    reply.headers_mut().extend(answer::of_accept(&accepted.deploy));
    Ok(reply)
}
