//! CI's call: a token or a signature, an image, and where wanted a wait for the end. Git hosts call here too.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{Deploy, DeployAnswer, DeployPost, Kind, PushAnswer, Standing, path};
use rollhook_core::{
    delivery::Delivery,
    deploy::{State, Status},
    request::{KeyHeader, Refusal},
    service::{Accepted, Authorized, Pushed, Waited},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    auth, body, deploys,
    failure::Failure,
    headers,
    host::Host,
    reply::{self, Reply},
    router::Call,
};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const KEYS: [KeyHeader; 3] = [KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::GithubDelivery];

/// Accepts a deploy.
pub(crate) async fn post(call: &Call) -> Result<Reply, Failure> {
    accept(call).await.map_err(told_to_ci)
}

/// What the store says to its operator is in the log, not for the holder of a token.
fn told_to_ci(failure: Failure) -> Failure {
    if failure.kind() == Kind::StoreRefused {
        return Failure::new(Kind::StoreUnavailable, "The store cannot do this now; the server's log says why.");
    }
    failure
}

async fn accept(call: &Call) -> Result<Reply, Failure> {
    let access = authorize(call, &call.body.bytes).await?;
    call.host.limits.call(access.uid())?;
    if let Some(delivery) = rollhook_git_hosts::delivery(&call.headers, &call.body.bytes)? {
        return told(call, &access, &delivery).await;
    }
    body::require_json(&call.headers)?;
    let post = parse(&call.body.bytes)?;
    let key = headers::key(&call.headers, &KEYS, "webhook", &call.body.bytes)?;
    let accepted = call.host.deployer.submit(&access, post.parse(key)?).await?;
    answer(call, &access, &accepted).await
}

/// Answers a git host.
///
/// The key is the id under which the host tells again: GitHub redelivers under the same `X-GitHub-Delivery` ("Best
/// practices for using webhooks"), GitLab retries under the same `Idempotency-Key` and `webhook-id` ("Delivery
/// headers"). Gitea and Forgejo redeliver under another, and of Bitbucket's `X-Request-UUID` nothing is promised: there
/// the core knows a push by what it brought.
async fn told(call: &Call, access: &Authorized, delivery: &Delivery) -> Result<Reply, Failure> {
    let key = headers::key(&call.headers, &KEYS, "push", &call.body.bytes)?;
    match call.host.deployer.push(access, delivery, key).await? {
        Pushed::Accepted(accepted) => answer(call, access, &accepted).await,
        Pushed::Nothing(why) => Ok(reply::json(StatusCode::OK, &PushAnswer::nothing(access.app(), &why))),
    }
}

/// One entry, for the holder of the app's webhook token.
pub(crate) async fn entry(call: &Call) -> Result<Reply, Failure> {
    let access = authorize(call, &[]).await.map_err(told_to_ci)?;
    deploys::entry(call, &access).await.map_err(told_to_ci)
}

/// What is wrong about a caller is never told: an impossible app's name is one reason among others.
async fn authorize(call: &Call, body: &[u8]) -> Result<Authorized, Failure> {
    let app = call.app().map_err(|_| Refusal::Unauthorized)?;
    let credentials = auth::credentials(&call.headers, auth::wall_clock());
    Ok(call.host.deployer.authorize(&app, &credentials, body).await?)
}

/// The parts of the body that are looked at, of whatever type they were sent.
#[derive(Deserialize)]
struct Posted {
    #[serde(default)]
    image: Value,
    #[serde(default)]
    commit: Value,
}

pub(crate) fn parse(body: &[u8]) -> Result<DeployPost, Failure> {
    let posted: Posted = body::object(body)?;
    Ok(DeployPost { image: text("image", posted.image)?, commit: text("commit", posted.commit)? })
}

fn text(field: &'static str, value: Value) -> Result<Option<String>, Refusal> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(Refusal::InvalidField(field, "must be a string.".to_owned()))
        }
    }
}

/// The answer to an accepted deploy, at once or, where the caller prefers, once it has ended.
pub(crate) async fn answer(call: &Call, access: &Authorized, accepted: &Accepted) -> Result<Reply, Failure> {
    let wait = headers::wait(&call.headers);
    let waited = match wait {
        Some(limit) => ended(&call.host, access, accepted, limit).await?,
        None => None,
    };
    let location = path::deploy(access.app(), accepted.deploy.revision);
    let applied = wait.map(|limit| format!("wait={}", limit.as_secs()));
    match render(call, access, accepted, waited).await {
        Ok(mut reply) => {
            let headers = reply.headers_mut();
            headers.extend(HeaderValue::from_str(&location).map(|value| (LOCATION, value)));
            headers.extend(accepted.replayed.then_some((REPLAYED, HeaderValue::from_static("true"))));
            headers.extend(applied.and_then(|text| Some((PREFERENCE_APPLIED, HeaderValue::from_str(&text).ok()?))));
            Ok(reply)
        }
        Err(mut failure) => {
            failure = failure.header(LOCATION, &location);
            if accepted.replayed {
                failure = failure.header(REPLAYED, "true");
            }
            Err(match applied {
                Some(text) => failure.header(PREFERENCE_APPLIED, &text),
                None => failure,
            })
        }
    }
}

/// What the deploy came to; none where that is not known in time, or the server stops.
async fn ended(
    host: &Host,
    access: &Authorized,
    accepted: &Accepted,
    limit: Duration,
) -> Result<Option<Waited>, Failure> {
    let waited = tokio::select! {
        waited = host.deployer.wait(access, accepted.deploy.revision, limit) => waited,
        () = host.drain.begun() => return Ok(None),
    };
    match waited {
        Ok(waited) => Ok(Some(waited)),
        Err(Refusal::RevisionNotFound(revision)) => {
            let detail = format!("The app was deleted before revision {revision} ended.");
            Err(Failure::new(Kind::DeployFailed, detail).with("reason", "app-deleted"))
        }
        // It is accepted; that its end cannot be read now is no failure of it.
        Err(_) => Ok(None),
    }
}

async fn render(
    call: &Call,
    access: &Authorized,
    accepted: &Accepted,
    waited: Option<Waited>,
) -> Result<Reply, Failure> {
    let Some(waited) = waited else {
        return Ok(reply::json(StatusCode::ACCEPTED, &DeployAnswer::accepted(access.app(), accepted)));
    };
    let status = match (&waited.last().state, waited.last().status()) {
        (_, Status::Succeeded) => StatusCode::OK,
        (_, Status::Failed | Status::Cancelled) | (State::Superseded { rollback: true, .. }, _) => {
            return Err(failed(call, access, &waited).await);
        }
        (_, Status::Queued | Status::Building | Status::RollingOut | Status::Superseded) => StatusCode::ACCEPTED,
    };
    let now = Accepted { deploy: waited.deploy, ..accepted.clone() };
    let mut answer = DeployAnswer::accepted(access.app(), &now);
    if let Some(last) = &waited.superseded_by {
        answer.superseded_by = Some(last.revision);
    }
    Ok(reply::json(status, &answer))
}

/// Why a deploy, or the one that took its place, did not succeed.
async fn failed(call: &Call, access: &Authorized, waited: &Waited) -> Failure {
    let last = waited.last();
    let standing = match call.host.deployer.view(access).await {
        Ok(view) => Standing::of(&view),
        // The marks are left out rather than the failure.
        Err(_) => Standing::default(),
    };
    let deploy = Deploy::of(access.app(), last, standing);
    let (kind, what) = match &last.state {
        State::Superseded { rollback: true, .. } => (Kind::DeployRolledBack, "was rolled back"),
        State::Cancelled { .. } => (Kind::DeployFailed, "was cancelled"),
        State::Queued | State::Building { .. } | State::RollingOut { .. } | State::Succeeded { .. } => {
            (Kind::DeployFailed, "did not succeed")
        }
        State::Superseded { rollback: false, .. } | State::Failed { .. } => (Kind::DeployFailed, "failed"),
    };
    let mut detail = format!("Revision {} {what}", last.revision);
    if waited.superseded_by.is_some() {
        detail =
            format!("Revision {}, which took the place of revision {}, {what}", last.revision, waited.deploy.revision);
    }
    if let (Some(reason), State::Failed { .. }) = (&deploy.reason, &last.state) {
        detail = format!("{detail} ({reason})");
    }
    if let Some(message) = &deploy.message {
        detail = format!("{detail}: {message}");
    }
    let mut failure = Failure::new(kind, detail).with("revision", waited.deploy.revision.get());
    if let Some(last) = &waited.superseded_by {
        failure = failure.with("superseded_by", last.revision.get());
    }
    match serde_json::to_value(&deploy) {
        Ok(deploy) => failure.with("deploy", deploy),
        Err(_) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_ignored_and_others_must_be_text() {
        let post = parse(br#"{"image":"r.example.com/a:1","commit":null,"pusher":{"name":[1]}}"#).unwrap();
        assert_eq!(post, DeployPost { image: Some("r.example.com/a:1".to_owned()), commit: None });
        for (body, kind) in [
            (r#"{"image":7}"#, Kind::InvalidImage),
            (r#"{"image":["a"]}"#, Kind::InvalidImage),
            (r#"{"commit":{}}"#, Kind::InvalidCommit),
            (r#"{"image":"a","image":"b"}"#, Kind::Malformed),
            (r#"["a","b"]"#, Kind::Malformed),
            (r#""a""#, Kind::Malformed),
            ("", Kind::Malformed),
            ("{", Kind::Malformed),
            ("{} {}", Kind::Malformed),
        ] {
            assert_eq!(parse(body.as_bytes()).unwrap_err().kind(), kind, "{body}");
        }
    }
}
