//! The webhook: deploys by CI, with a token or a signature, and pushes that git hosts report.

use std::future::ready;

use http::StatusCode;
use rollhook_api::{DeployAnswer, DeployPost, PushAnswer};
use rollhook_core::{
    delivery::Delivery,
    request::{IdempotencyKey, KeyHeader, Refusal},
    service::{Accepted, Authorized, Pushed},
};

use crate::{
    answer, auth, body, deploys,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
    router::Call,
};

const KEYS: &[KeyHeader] = &[KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::GithubDelivery];
/// The key of a signed message of Standard Webhooks: the one header that its signature covers.
const SIGNED_KEY: &[KeyHeader] = &[KeyHeader::WebhookId];

/// Answers a webhook call.
pub(crate) async fn post(call: &Call) -> Result<Reply, ErrorReply> {
    accept(call).await.map_err(ErrorReply::redacted)
}

/// Answers one entry to a holder of the app's webhook token.
pub(crate) async fn entry(call: &Call) -> Result<Reply, ErrorReply> {
    let entry = async { deploys::entry(call, &authorize(call, &[]).await?).await };
    entry.await.map_err(ErrorReply::redacted)
}

/// The request of a webhook call.
enum Request {
    /// A CI job deploys.
    Deploy(DeployPost),
    /// A git host reports a push.
    Push(Delivery),
}

async fn accept(call: &Call) -> Result<Reply, ErrorReply> {
    let access = authorize(call, &call.body.bytes).await?;
    call.state.limits.call(access.uid())?;
    let (operation, request) = match rollhook_git_hosts::delivery(&call.headers, &call.body.bytes)? {
        Some(delivery) => ("push", Request::Push(delivery)),
        None => ("webhook", Request::Deploy(body::deploy_post(&call.headers, &call.body.bytes)?)),
    };
    let key = headers::key(&call.headers, keys(call), operation, &call.body.bytes)?;
    if let Err(refusal) = call.state.limits.deploy(access.uid()) {
        return repeated(call, access, key.as_ref(), refusal).await;
    }
    let accepted = match request {
        Request::Deploy(post) => call.state.deployer.submit(&access, post.parse(key)?).await?,
        Request::Push(delivery) => match call.state.deployer.push(&access, &delivery, key).await? {
            Pushed::Accepted(accepted) => *accepted,
            Pushed::Ignored(why) => {
                return Ok(reply::json(StatusCode::OK, &PushAnswer::nothing(access.app(), &why)));
            }
        },
    };
    answered(call, access, &accepted).await
}

/// Answers a call that repeats an accepted one, or refuses it.
async fn repeated(
    call: &Call,
    access: Authorized,
    key: Option<&IdempotencyKey>,
    refusal: ErrorReply,
) -> Result<Reply, ErrorReply> {
    let Some(key) = key else { return Err(refusal) };
    match call.state.deployer.repeated(&access, key).await? {
        Some(accepted) => answered(call, access, &accepted).await,
        None => Err(refusal),
    }
}

async fn answered(call: &Call, access: Authorized, accepted: &Accepted) -> Result<Reply, ErrorReply> {
    if !accepted.replayed {
        call.state.limits.deployed(access.uid());
    }
    let answer = DeployAnswer::accepted(access.app(), accepted);
    answer::accepted(call, answer, ready(Ok(access))).await
}

/// Returns the headers that may carry the call's key. A signed message that was observed could be sent again with
/// another `Idempotency-Key`, which would be another deploy.
///
/// The key of a push is the id under which the host repeats a delivery: GitHub redelivers under the same
/// `X-GitHub-Delivery` ("Best practices for using webhooks"), GitLab retries under the same `Idempotency-Key` and
/// `webhook-id` ("Delivery headers"). Gitea and Forgejo redeliver under another, and Bitbucket promises nothing of its
/// `X-Request-UUID`: there the core knows a push by its commits.
fn keys(call: &Call) -> &'static [KeyHeader] {
    if auth::is_signed_message(&call.headers) { SIGNED_KEY } else { KEYS }
}

/// Checks the credentials. All failures look alike: an impossible app's name is one reason among others.
async fn authorize(call: &Call, body: &[u8]) -> Result<Authorized, ErrorReply> {
    let app = call.app().map_err(|_| Refusal::Unauthorized)?;
    let credentials = auth::credentials(&call.headers, auth::wall_clock());
    let access = call.state.deployer.authorize(&app, &credentials, body).await?;
    call.in_call.known();
    Ok(access)
}
