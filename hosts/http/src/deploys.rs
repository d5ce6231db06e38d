//! Deploys by hand: the history, and everything that a manager makes an entry with.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{Deploy, DeployList, Promote, Rebuild, Rollback, RollbackAnswer, Standing};
use rollhook_core::{
    deploy::Revision,
    ports::Page,
    request::{IdempotencyKey, KeyHeader},
    service::{Authorized, Operator},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    body,
    failure::Failure,
    headers,
    query::Query,
    reply::{self, Reply},
    router::Call,
    webhook,
};

/// Entries per page where nothing else is asked for, and at most.
const PAGE: (usize, usize) = (20, 200);

/// `GET …/deploys`.
pub(crate) async fn list(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let query = Query::parse(call.uri.query(), &["limit", "before"])?;
    let (limit, before) = (query.limit(PAGE.0, PAGE.1)?, query.get::<Revision>("before")?);
    let access = call.host.deployer.open(operator, &call.app()?).await?;
    let entries = call.host.deployer.history(&access, Page { before, succeeded: false, limit }).await?;
    let standing = Standing::of(&call.host.deployer.view(&access).await?);
    let next = entries.last().map(|entry| entry.revision).filter(|oldest| *oldest != Revision::FIRST);
    let entry = |entry| Deploy::of(access.app(), entry, standing).without_evidence();
    let deploys: Vec<Deploy> = entries.iter().map(entry).collect();
    let next = next.filter(|_| deploys.len() == limit);
    Ok(reply::json(StatusCode::OK, &DeployList { deploys, next }))
}

/// `GET …/deploys/{revision}`.
pub(crate) async fn show(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let access = call.host.deployer.open(operator, &call.app()?).await?;
    entry(call, &access).await
}

/// One entry with its evidence, at once or, where the caller prefers, once it has ended.
pub(crate) async fn entry(call: &Call, access: &Authorized) -> Result<Reply, Failure> {
    Query::parse(call.uri.query(), &[])?;
    let revision = call.revision()?;
    let wait = headers::wait(&call.headers);
    let mut entry = call.host.deployer.entry(access, revision).await?;
    let end = Instant::now() + wait.unwrap_or_default();
    while !entry.is_terminal() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        entry = tokio::select! {
            changed = call.host.deployer.changed(access, revision, entry.step, left) => changed?,
            () = call.host.drain.begun() => break,
        };
    }
    let standing = Standing::of(&call.host.deployer.view(access).await?);
    let mut reply = reply::json(StatusCode::OK, &Deploy::of(access.app(), &entry, standing));
    if let Some(Ok(applied)) = wait.map(|wait| HeaderValue::from_str(&format!("wait={}", wait.as_secs()))) {
        reply.headers_mut().insert(HeaderName::from_static("preference-applied"), applied);
    }
    Ok(reply)
}

/// `POST …/deploys`.
pub(crate) async fn post(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let access = call.host.deployer.open(operator, &call.app()?).await?;
    body::require_json(&call.headers)?;
    let post = webhook::parse(&call.body.bytes)?;
    let accepted = call.host.deployer.submit(&access, post.parse(key(call, "deploy")?)?).await?;
    webhook::answer(call, &access, &accepted).await
}

/// `POST …/promote`.
pub(crate) async fn promote(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    let access = call.host.deployer.open(operator, &id).await?;
    body::require_json(&call.headers)?;
    let from = body::object::<Promote>(&call.body.bytes)?.parse(&id)?;
    let accepted = call.host.deployer.promote(operator, &id, &from, key(call, "promote")?).await?;
    webhook::answer(call, &access, &accepted).await
}

/// `POST …/rollback`.
pub(crate) async fn rollback(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    let request = optional::<Rollback>(call)?.parse(key(call, "rollback")?);
    let accepted = call.host.deployer.rollback(operator, &id, request).await?;
    let answer = RollbackAnswer::of(&id, &accepted);
    let mut reply = accepted_as(&answer, &answer.deploy.url);
    if accepted.replayed {
        reply.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    Ok(reply)
}

/// `POST …/deploys/{revision}/cancel`.
pub(crate) async fn cancel(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let (id, revision) = (call.app()?, call.revision()?);
    let deploy = call.host.deployer.cancel(operator, &id, revision).await?;
    let access = call.host.deployer.open(operator, &id).await?;
    let standing = Standing::of(&call.host.deployer.view(&access).await?);
    Ok(reply::json(StatusCode::OK, &Deploy::of(&id, &deploy, standing)))
}

/// `POST …/rebuild`.
pub(crate) async fn rebuild(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    let commit = optional::<Rebuild>(call)?.parse()?;
    let accepted = call.host.deployer.rebuild(operator, &id, commit, key(call, "rebuild")?).await?;
    let access = call.host.deployer.open(operator, &id).await?;
    webhook::answer(call, &access, &accepted).await
}

/// A body that may be left out.
fn optional<T: DeserializeOwned + Default>(call: &Call) -> Result<T, Failure> {
    if call.body.bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    body::require_json(&call.headers)?;
    body::object(&call.body.bytes)
}

pub(crate) fn key(call: &Call, operation: &str) -> Result<Option<IdempotencyKey>, Failure> {
    headers::key(&call.headers, &[KeyHeader::IdempotencyKey], operation, &call.body.bytes)
}

fn accepted_as<T: Serialize>(answer: &T, location: &str) -> Reply {
    let mut reply = reply::json(StatusCode::ACCEPTED, answer);
    if let Ok(location) = HeaderValue::from_str(location) {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply
}
