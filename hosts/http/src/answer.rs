//! Answers of operations. That to an accepted deploy comes at once, or after its end if the caller prefers to wait.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{Deploy, DeployAnswer, Kind, Local, Operation, Progress, Standing, ends_within};
use rollhook_core::{
    deploy::{self, State, Trigger},
    request::Refusal,
    service::{Authorized, Deployer, Waited},
};

use crate::{
    call::Call,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
};

pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Performs an operation, and answers what it returns.
pub(crate) async fn performed<O: Operation>(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (subject, input) = (call.subject()?, call.input()?);
    let caller = caller.with_key(call.key()?);
    call.body.release();
    Ok(of::<O>(&O::perform(&caller, &subject, input).await?))
}

/// Returns the answer of an operation.
pub(crate) fn of<O: Operation>(answer: &O::Answer) -> Reply {
    let status = StatusCode::from_u16(O::ENDPOINT.status).unwrap_or(StatusCode::OK);
    if status == StatusCode::NO_CONTENT { reply::empty(status) } else { reply::json(status, answer) }
}

/// Answers an accepted deploy; `access` opens its app, and is polled only if the caller waits.
pub(crate) async fn accepted(
    call: &Call,
    answer: DeployAnswer,
    access: impl Future<Output = Result<Authorized, rollhook_management::Refusal>>,
) -> Result<Reply, ErrorReply> {
    let wait = headers::wait(&call.headers);
    let mut added = of_accept(&answer);
    let access = match wait {
        Some(_) => access.await.ok(),
        None => None,
    };
    // A call that may not wait is answered at once: its deploy is accepted, and its caller repeats the call.
    let place = access.as_ref().and_then(|access| call.state.waits.take(access.uid()));
    let outcome = match (wait, access, &place) {
        (Some(limit), Some(access), Some(_)) => {
            added.extend(applied(limit));
            ended(call, answer, access, limit).await
        }
        _ => Ok(reply::json(StatusCode::ACCEPTED, &answer)),
    };
    match outcome {
        Ok(mut reply) => {
            reply.headers_mut().extend(added);
            Ok(reply)
        }
        Err(failure) => Err(failure.headers(added)),
    }
}

/// Returns the headers of every answer to an accepted deploy.
pub(crate) fn of_accept(answer: &DeployAnswer) -> HeaderMap {
    let location = HeaderValue::from_str(&answer.url).ok().map(|url| (LOCATION, url));
    location.into_iter().chain(answer.replayed.then_some((REPLAYED, HeaderValue::from_static("true")))).collect()
}

/// Returns the header that names the granted wait (RFC 7240).
pub(crate) fn applied(wait: Duration) -> Option<(HeaderName, HeaderValue)> {
    Some((PREFERENCE_APPLIED, HeaderValue::from_str(&format!("wait={}", wait.as_secs())).ok()?))
}

/// Waits for the end of a deploy; answers 202 if it has not ended in time, or the server stops.
async fn ended(call: &Call, answer: DeployAnswer, access: Authorized, limit: Duration) -> Result<Reply, ErrorReply> {
    let deployer = &call.state.deployer;
    let waited = tokio::select! {
        waited = deployer.wait(&access, answer.revision, limit) => waited,
        () = call.state.drain.begun() => return Ok(reply::json(StatusCode::ACCEPTED, &answer)),
    };
    let waited = match waited {
        Ok(waited) => waited,
        Err(Refusal::RevisionNotFound(revision)) => {
            let detail = format!("The app was deleted before revision {revision} ended.");
            return Err(ErrorReply::new(Kind::DeployFailed, detail).with("reason", "app-deleted"));
        }
        // The deploy is accepted; only its end cannot be read now.
        Err(_) => return Ok(reply::json(StatusCode::ACCEPTED, &answer)),
    };
    let mut now = DeployAnswer {
        superseded: answer.superseded,
        ignored: answer.ignored,
        stopped: answer.stopped,
        ..DeployAnswer::of(access.app(), &waited.deploy)
    };
    if let Some(last) = &waited.superseded_by {
        now.superseded_by = Some(last.revision);
    }
    now.progress = Progress::shown(waited.last(), deployer.progress_of(&access, waited.last()).await.as_ref());
    let (kind, what) = match &waited.last().state {
        State::Succeeded { .. } => match earlier(&waited) {
            Some(earlier) if is_rolled_back(deployer, &access, earlier).await => {
                (Kind::DeployRolledBack, "was rolled back")
            }
            Some(_) | None => return Ok(reply::json(StatusCode::OK, &now)),
        },
        State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Superseded { rollback: false, .. } => {
            // A state that cannot be read leaves the time out.
            let state = deployer.state(&access).await.ok();
            now.ends_within = state.and_then(|state| ends_within(&state, &waited.deploy, waited.last()));
            return Ok(reply::json(StatusCode::ACCEPTED, &now));
        }
        State::Superseded { rollback: true, .. } => (Kind::DeployRolledBack, "was rolled back"),
        State::Cancelled { .. } => (Kind::DeployFailed, "was cancelled"),
        State::Failed { .. } => (Kind::DeployFailed, "failed"),
    };
    // A standing that cannot be read is left out: the failure is still answered.
    let standing = Standing::read(deployer, &access).await.unwrap_or_default();
    let entry = Deploy::of(access.app(), waited.last(), &standing);
    let restore = waited.restore.as_ref().and_then(|restoration| entry.clone().restored(restoration).restore);
    let failure = failed(kind, what, &waited, entry);
    Err(match restore.and_then(|restore| serde_json::to_value(restore).ok()) {
        Some(restore) => failure.with("restore", restore),
        None => failure,
    })
}

/// Returns the earlier deploy that superseded this one, which came too late.
fn earlier(waited: &Waited) -> Option<&deploy::Deploy> {
    waited.superseded_by.as_ref().filter(|last| last.revision < waited.deploy.revision)
}

/// Returns whether a deploy that succeeded has been rolled back since. A state that cannot be read shows nothing of that.
async fn is_rolled_back(deployer: &Deployer, access: &Authorized, succeeded: &deploy::Deploy) -> bool {
    let Ok(state) = deployer.state(access).await else { return false };
    let current = state.current.as_ref().filter(|current| current.revision > succeeded.revision);
    current.is_some_and(|current| current.trigger == Trigger::Rollback && current.effective != succeeded.effective)
}

/// Returns the problem of a deploy that did not succeed, or whose successor did not; `deploy` is the last of them.
fn failed(kind: Kind, what: &str, waited: &Waited, deploy: Deploy) -> ErrorReply {
    let revision = waited.deploy.revision;
    let mut detail = match &waited.superseded_by {
        Some(last) => format!("Revision {}, which superseded revision {revision}, {what}", last.revision),
        None => format!("Revision {revision} {what}"),
    };
    if let (Some(reason), State::Failed { .. }) = (&deploy.reason, &waited.last().state) {
        detail = format!("{detail} ({reason})");
    }
    if let Some(message) = &deploy.message {
        detail = format!("{detail}: {message}");
    }
    let mut failure = ErrorReply::new(kind, detail).with("revision", revision.get());
    if let Some(last) = &waited.superseded_by {
        failure = failure.with("superseded_by", last.revision.get());
    }
    match serde_json::to_value(&deploy) {
        Ok(deploy) => failure.with("deploy", deploy),
        Err(_) => failure,
    }
}
