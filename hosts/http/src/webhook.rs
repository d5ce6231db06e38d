//! The webhook: deploys by CI, with a token or a signature, pushes that git hosts report, and events of registries.

use std::{future::ready, net::IpAddr};

use http::{HeaderMap, StatusCode};
use rollhook_api::{DeployAnswer, HintAnswer, Kind, PushAnswer};
use rollhook_core::{
    app::AppId,
    delivery::Delivery,
    deploy::Revision,
    request::{IdempotencyKey, Refusal},
    service::{Accepted, Authorized, Hinted, Pushed},
};
use rollhook_git_hosts::{self as git_hosts, PostedDeploy, RegistryEvent, Request};
use rollhook_management::{
    CallAnswer, Caller, Management,
    keyless::{BoundCall, WebhookProof},
};

use crate::{
    answer, auth,
    call::Call,
    deploys,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
    target::Target,
};

/// The largest body that is read of a caller who has proved nothing, in bytes: events have the texts of a repository's page.
const UNPROVEN_MAX: usize = 128 * 1024;

/// Answers a webhook call.
pub(crate) async fn post(call: &Call) -> Result<Reply, ErrorReply> {
    if let Some(reply) = unproven(call) {
        return Ok(reply);
    }
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
            note_refused(management, &app, call.client, &call.headers, &call.body.bytes());
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

async fn accept(call: &Call, outcome: &mut Outcome) -> Result<Reply, ErrorReply> {
    let (access, accepted) = match submit(call, outcome).await? {
        Submitted::Accepted(access, accepted) => (access, accepted),
        Submitted::Ignored(reply) => return Ok(reply),
    };
    outcome.revision = Some(accepted.deploy.revision);
    call.body.release();
    let answer = DeployAnswer::accepted(access.app(), &accepted);
    answer::accepted(call, answer, ready(Ok(access))).await
}

/// The deploy of a call, or the answer to a push that deploys nothing.
enum Submitted {
    Accepted(Authorized, Box<Accepted>),
    Ignored(Reply),
}

/// The deploy that an authenticated caller asks for.
enum Asked {
    Deploy(PostedDeploy),
    Push(Delivery),
}

/// Authenticates a call, and submits the deploy that it asks for.
async fn submit(call: &Call, outcome: &mut Outcome) -> Result<Submitted, ErrorReply> {
    let body = call.body.bytes();
    let proof = authorize(call, &body).await?;
    let access = proof.reading();
    outcome.access = Some(access.clone());
    call.state.limits.call(access.uid())?;
    let webhook = git_hosts::Call::new(&call.headers, &body, auth::wall_clock());
    let has_identity = auth::presented_by_app(&call.headers).identity.is_some();
    let (request, key) = if has_identity { webhook.with_another_credential() } else { webhook }.request()?;
    let asked = match request {
        Request::Deploy(post) => Asked::Deploy(post),
        Request::Push(delivery) => Asked::Push(delivery),
        Request::RegistryEvent(event) => {
            return Ok(Submitted::Ignored(nothing(&access, &hint(call, &proof, &event).await?)));
        }
    };
    if let Err(refusal) = call.state.limits.deploy(access.uid()) {
        return repeated(call, &proof, key, refusal).await;
    }
    // A call that has no effect uses no id_token up.
    match &asked {
        Asked::Deploy(post) => drop(post.parse(None)?),
        Asked::Push(delivery) => {
            if let Some(why) = ignored(call, &proof, delivery, key.as_ref()).await? {
                return Ok(Submitted::Ignored(nothing(&access, &why)));
            }
        }
    }
    let BoundCall { access, key, is_newly_bound } = call.state.management.bind(&proof, key).await?;
    if is_newly_bound == Some(true) {
        // The store remembers the id_token, whatever comes of the call.
        call.state.limits.deployed(access.uid());
    }
    let access = access.traced(headers::trace_parent(&call.headers));
    let accepted = match asked {
        Asked::Deploy(post) => Box::new(call.state.deployer.submit(&access, post.parse(key)?).await?),
        Asked::Push(delivery) => match call.state.deployer.push(&access, &delivery, key).await? {
            Pushed::Accepted(accepted) => accepted,
            Pushed::Ignored(why) => return Ok(Submitted::Ignored(nothing(&access, &why))),
        },
    };
    if is_newly_bound.is_none() && !accepted.replayed {
        call.state.limits.deployed(access.uid());
    }
    Ok(Submitted::Accepted(access, accepted))
}

fn nothing(access: &Authorized, why: &str) -> Reply {
    reply::json(StatusCode::OK, &PushAnswer::nothing(access.app(), why))
}

/// Has the app's repository read soon if the event of a registry is a reason to; returns what comes of the event.
async fn hint(call: &Call, proof: &WebhookProof, event: &RegistryEvent) -> Result<String, ErrorReply> {
    let RegistryEvent { registry, images } = event;
    if images.is_empty() {
        return Ok(format!("the event of {registry} reports no image that was pushed"));
    }
    Ok(match call.state.management.hint(proof, images).await? {
        Hinted::Noted => format!("noted the event of {registry}: the repository is read next"),
        Hinted::NotFollowing => "the app follows no tags of its repository (app set --follow)".to_owned(),
        Hinted::Other => {
            format!("the event of {registry} is of another repository, or of tags that the app does not follow")
        }
    })
}

/// Returns the answer to the event of a registry that cannot prove itself, if the call is one and presents nothing. It is
/// the same whichever app the path names, and costs no read of the store: it has this process read a repository that
/// it polls anyway a little earlier. Such a call counts as one that failed to authenticate.
fn unproven(call: &Call) -> Option<Reply> {
    let body = call.body.bytes();
    if body.len() > UNPROVEN_MAX || auth::presented_by_app(&call.headers).kinds().next().is_some() {
        return None;
    }
    let event = git_hosts::registry_event(&call.headers, &body).ok()?.filter(RegistryEvent::is_unsigned)?;
    let app = call.app().ok();
    if let Some(app) = app.as_ref().filter(|_| !event.images.is_empty()) {
        call.state.deployer.hint_unproven(app);
    }
    call.state.limits.failed(call.client, &app.map_or(Target::Nothing, Target::App));
    call.in_call.refused();
    Some(reply::json(StatusCode::ACCEPTED, &HintAnswer::unproven()))
}

/// Returns why a push that an id_token proves is ignored by the app's settings alone, unless the call repeats an earlier one.
async fn ignored(
    call: &Call,
    proof: &WebhookProof,
    delivery: &Delivery,
    key: Option<&IdempotencyKey>,
) -> Result<Option<String>, ErrorReply> {
    let is_new = proof.is_by_identity() && call.state.management.bound(proof, key.cloned()).await?.is_none();
    if !is_new {
        return Ok(None);
    }
    Ok(call.state.deployer.ignored_push(&proof.reading(), delivery).await?)
}

/// Returns the deploy of an accepted call that this one repeats, or refuses it.
async fn repeated(
    call: &Call,
    proof: &WebhookProof,
    key: Option<IdempotencyKey>,
    refusal: ErrorReply,
) -> Result<Submitted, ErrorReply> {
    let Some((access, key)) = call.state.management.bound(proof, key).await? else { return Err(refusal) };
    let accepted = call.state.deployer.repeated(&access, &key).await?;
    accepted.map(|accepted| Submitted::Accepted(access, Box::new(accepted))).ok_or(refusal)
}

/// Checks the credentials. All failures look alike: an impossible app's name is one reason among others.
async fn authorize(call: &Call, body: &[u8]) -> Result<WebhookProof, ErrorReply> {
    let app = call.app().map_err(|_| Refusal::Unauthorized)?;
    let credentials = auth::credentials(&call.headers, auth::wall_clock());
    let proof = call.state.management.authorize(&app, &credentials, body).await?;
    call.state.management.read_environment(&app).await;
    call.state.known(&call.in_call, call.state.webhook(&app))?;
    Ok(proof)
}
