//! Deploys by an operator: the history, and every operation that adds an entry to it.

use std::time::Duration;

use http::StatusCode;
use rollhook_api::{Deploy, DeployPost, Local, Operations, Promote, Rebuild, Rollback, Until, openapi};
use rollhook_core::{deploy::Revision, service::Authorized};

use crate::{
    answer, body,
    error_reply::ErrorReply,
    headers,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// The number of entries per page: by default, and at most.
const PAGE: (usize, usize) = (20, openapi::PAGE_MAX);

/// Answers `GET …/deploys`.
pub(crate) async fn list(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let query = Query::parse(call.uri.query(), &["limit", "before"])?;
    let (limit, before) = (query.limit(PAGE.0, PAGE.1)?, query.get::<Revision>("before")?);
    Ok(reply::json(StatusCode::OK, &operations.history(&call.app()?, before, limit).await?))
}

/// Answers `GET …/deploys/{revision}`.
pub(crate) async fn show(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    entry(call, &operations.open(&call.app()?).await?).await
}

/// Answers one entry with its evidence, at once or, if the caller prefers to wait, after its end or its next change.
pub(crate) async fn entry(call: &Call, access: &Authorized) -> Result<Reply, ErrorReply> {
    let query = Query::parse(call.uri.query(), &["seen"])?;
    let until = query.get::<u32>("seen")?.map_or(Until::Ended, Until::Changed);
    let (deployer, revision, wait) = (&call.state.deployer, call.revision()?, headers::wait(&call.headers));
    let place = wait.and_then(|_| call.state.waits.begin(access.uid()));
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
pub(crate) async fn post(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, post) = (call.app()?, body::deploy_post(&call.headers, &call.body.bytes)?);
    let post = DeployPost { break_glass: body::break_glass(&call.body.bytes)?, ..post };
    let operations = operations.with_key(call.key("deploy")?);
    answer::accepted(call, operations.deploy(&id, post).await?, operations.open(&id)).await
}

/// Answers `POST …/promote`.
pub(crate) async fn promote(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, promote) = (call.app()?, call.json::<Promote>()?);
    let operations = operations.with_key(call.key("promote")?);
    answer::accepted(call, operations.promote(&id, promote).await?, operations.open(&id)).await
}

/// Answers `POST …/rebuild`.
pub(crate) async fn rebuild(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, rebuild) = (call.app()?, call.json_or_default::<Rebuild>()?);
    let operations = operations.with_key(call.key("rebuild")?);
    answer::accepted(call, operations.rebuild(&id, rebuild).await?, operations.open(&id)).await
}

/// Answers `POST …/rollback`.
pub(crate) async fn rollback(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, rollback) = (call.app()?, call.json_or_default::<Rollback>()?);
    let answer = operations.with_key(call.key("rollback")?).rollback(&id, rollback).await?;
    let mut reply = reply::json(StatusCode::ACCEPTED, &answer);
    reply.headers_mut().extend(answer::of_accept(&answer.deploy));
    Ok(reply)
}

/// Answers `POST …/deploys/{revision}/cancel`.
pub(crate) async fn cancel(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Ok(reply::json(StatusCode::OK, &operations.cancel(&call.app()?, call.revision()?).await?))
}
