//! The webhook: deploys by CI, with a token or a signature, and pushes that git hosts report.

use std::{future::ready, net::IpAddr};

use http::{HeaderMap, StatusCode};
use rollhook_api::{DeployAnswer, DeployPost, Kind, PushAnswer};
use rollhook_core::{
    app::AppId,
    delivery::Delivery,
    deploy::Revision,
    request::{IdempotencyKey, KeyHeader, Refusal},
    service::{Accepted, Authorized, Pushed},
    text::hex,
};
use rollhook_management::{CallAnswer, Caller, Management, keyless::WebhookProof};
use sha2::{Digest, Sha256};

use crate::{
    answer, auth, body,
    call::Call,
    deploys,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
};

const KEYS: &[KeyHeader] = &[KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::Delivery];
/// The key of a signed message of Standard Webhooks: the one header that its signature covers.
const SIGNED_KEY: &[KeyHeader] = &[KeyHeader::WebhookId];

/// Answers a webhook call.
pub(crate) async fn post(call: &Call) -> Result<Reply, ErrorReply> {
    let mut outcome = Outcome::default();
    let answered = accept(call, &mut outcome).await.map_err(ErrorReply::redacted);
    note(call, &outcome, &answered);
    answered
}

/// The proof and the deploy of a call, for the list of the app's last calls.
#[derive(Default)]
struct Outcome {
    access: Option<Authorized>,
    revision: Option<Revision>,
}

/// Remembers the call and its answer, for those who may read them.
fn note(call: &Call, outcome: &Outcome, answered: &Result<Reply, ErrorReply>) {
    let management = &call.state.management;
    let Some(access) = &outcome.access else {
        // A store that is away says nothing about the caller.
        if matches!(answered, Err(failure) if failure.kind() == Kind::Unauthorized)
            && let Ok(app) = call.app()
        {
            note_refused(management, &app, call.client, &call.headers, &call.body.bytes);
        }
        return;
    };
    let (status, reason) = match answered {
        Ok(reply) => (reply.status().as_u16(), None),
        Err(failure) => (failure.status(), Some(failure.kind().parts())),
    };
    let reason = reason.map(|(slug, _, title)| (slug, title));
    let answer = CallAnswer { status, reason, revision: outcome.revision };
    let at = auth::wall_clock();
    let caller = Caller { at, source: call.client, credentials: &auth::credentials(&call.headers, at) };
    management.note_call(access, &caller, answer);
}

/// Remembers a call of an app that this process knows, whose credentials were refused.
pub(crate) fn note_refused(management: &Management, app: &AppId, client: IpAddr, headers: &HeaderMap, body: &[u8]) {
    let at = auth::wall_clock();
    let caller = Caller { at, source: client, credentials: &auth::credentials(headers, at) };
    management.note_refused_call(app, &caller, body);
}

/// Answers one entry to a holder of the app's webhook token.
pub(crate) async fn entry(call: &Call) -> Result<Reply, ErrorReply> {
    let entry = async { deploys::entry(call, &authorize(call, &[]).await?.reading()).await };
    entry.await.map_err(ErrorReply::redacted)
}

/// The request of a webhook call.
enum Request {
    /// A CI job deploys.
    Deploy(DeployPost),
    /// A git host reports a push.
    Push(Delivery),
}

async fn accept(call: &Call, outcome: &mut Outcome) -> Result<Reply, ErrorReply> {
    let proof = authorize(call, &call.body.bytes).await?;
    let access = proof.reading();
    outcome.access = Some(access.clone());
    call.state.limits.call(access.uid())?;
    let (operation, request) = match rollhook_git_hosts::delivery(&call.headers, &call.body.bytes)? {
        Some(delivery) => ("push", Request::Push(delivery)),
        None => ("webhook", Request::Deploy(body::deploy_post(&call.headers, &call.body.bytes)?)),
    };
    let given = headers::key(&call.headers, keys(call), operation, &call.body.bytes)?;
    let key = match request {
        Request::Deploy(_) => signed_body(call).or(given),
        Request::Push(_) => given,
    };
    if let Err(refusal) = call.state.limits.deploy(access.uid()) {
        return repeated(call, &proof, key, refusal, outcome).await;
    }
    // A body that cannot be read uses no id_token up.
    if let Request::Deploy(post) = &request {
        post.parse(None)?;
    }
    let (access, key) = call.state.management.bind(&proof, key).await?;
    let access = access.traced(headers::trace_parent(&call.headers));
    let accepted = match request {
        Request::Deploy(post) => call.state.deployer.submit(&access, post.parse(key)?).await?,
        Request::Push(delivery) => match call.state.deployer.push(&access, &delivery, key).await? {
            Pushed::Accepted(accepted) => *accepted,
            Pushed::Ignored(why) => {
                return Ok(reply::json(StatusCode::OK, &PushAnswer::nothing(access.app(), &why)));
            }
        },
    };
    outcome.revision = Some(accepted.deploy.revision);
    answered(call, access, &accepted).await
}

/// Answers a call that repeats an accepted one, or refuses it.
async fn repeated(
    call: &Call,
    proof: &WebhookProof,
    key: Option<IdempotencyKey>,
    refusal: ErrorReply,
    outcome: &mut Outcome,
) -> Result<Reply, ErrorReply> {
    if key.is_none() {
        return Err(refusal);
    }
    let (access, Some(key)) = call.state.management.bind(proof, key).await? else { return Err(refusal) };
    match call.state.deployer.repeated(&access, &key).await? {
        Some(accepted) => {
            outcome.revision = Some(accepted.deploy.revision);
            answered(call, access, &accepted).await
        }
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

/// Returns the key of a deploy that a signature over its body alone opens: the body itself, for the time of an
/// `Idempotency-Key`. Headers are not signed, so that whoever has observed the call could repeat it under another key.
fn signed_body(call: &Call) -> Option<IdempotencyKey> {
    let presented = auth::presented_by_app(&call.headers);
    if presented.identity.is_some() || !presented.secrets.are_repeatable() {
        return None;
    }
    let request: [u8; 32] = Sha256::digest(&call.body.bytes).into();
    Some(IdempotencyKey { header: KeyHeader::IdempotencyKey, key: format!("signed-{}", hex(&request)), request })
}

/// Checks the credentials. All failures look alike: an impossible app's name is one reason among others.
async fn authorize(call: &Call, body: &[u8]) -> Result<WebhookProof, ErrorReply> {
    let app = call.app().map_err(|_| Refusal::Unauthorized)?;
    let credentials = auth::credentials(&call.headers, auth::wall_clock());
    let proof = call.state.management.authorize(&app, &credentials, body).await?;
    call.in_call.known();
    Ok(proof)
}
