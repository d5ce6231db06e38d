//! The console's calls: the same limits as for every other call, then `rollhook_console`.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Response, header::ACCEPT, request::Parts};
use hyper::body::Incoming;
use rollhook_api::{Kind, Local};
use rollhook_console::{
    Access, Answer, Body, Caller, CallerOperations, Console, Ended, Failure, Host, Permissions, Request, Watch, Welcome,
};
use rollhook_core::{
    Error,
    app::AppId,
    ledger::AppState,
    ports::TargetDescription,
    request::IdempotencyKey,
    service::{Authorized, Deployer, Progress},
    text::escaped,
    time::Timestamp,
};
use rollhook_management::{
    Management, Refusal,
    access::{Action, GroupGrant, Person, Principal, Realm, SessionSecret},
    ports::{RecordKey, SignInRequest},
};
use rollhook_wiring::SignIn;
use zeroize::Zeroizing;

use crate::{
    auth, body,
    budget::Holder,
    client_ip::Proxies,
    connections::InCall,
    disks::Disks,
    error_reply::ErrorReply,
    headers, limits,
    reply::{self, Reply},
    state::State,
    target::Target,
};

/// Returns the console of a management plane.
pub(crate) fn of(
    management: Arc<Management>,
    base_url: Arc<str>,
    notice: Option<&'static str>,
    (disks, proxies): (Arc<Disks>, Arc<Proxies>),
    sign_in: Option<SignIn>,
) -> Arc<Console> {
    Arc::new(Console::new(Arc::new(InProcess { management, base_url, notice, disks, proxies, sign_in })))
}

/// Returns whether a call is the console's: one of its paths, or any other that a browser wants as a page. Paths of the
/// API are the API's, whoever calls.
pub(crate) fn is_for(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let wants_page = || {
        let mut accepted = parts.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
        !path.starts_with("/api/") && accepted.any(|line| line.contains("text/html"))
    };
    rollhook_console::claims(path) || wants_page()
}

/// Answers a call: checks its limits, reads the body, and hands it to the console, in this order.
pub(crate) async fn answer(
    state: &Arc<State>,
    parts: Parts,
    incoming: Incoming,
    client: IpAddr,
    in_call: InCall,
) -> Reply {
    let early = headers::require_host(&parts).and_then(|()| body::require_identity(&parts.headers));
    let path = parts.uri.path().to_owned();
    let mut request = Request {
        method: parts.method,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        path,
        headers: parts.headers,
        body: Bytes::new(),
    };
    if let Err(failure) = early {
        body::discard(incoming, &request.headers);
        return refused(state, &request, failure);
    }
    let caller = || state.callers.holder(&request.session().unwrap_or_default());
    let known = state.console.recognizes(&request.headers).then(caller);
    let holder = known.map_or(Holder::Stranger(limits::network(client)), Holder::Known);
    if let Some(Err(failure)) = known.map(|caller| state.known(&in_call, caller)) {
        body::discard(incoming, &request.headers);
        return refused(state, &request, failure);
    }
    // A call without credentials is only led to the sign-in, and costs no read of the store.
    let is_counted = known.is_none() && state.console.brings_credentials(&request);
    let target = target_of(&request.path);
    let over = if is_counted { state.limits.admit(client, &target).err() } else { None };
    // A sign-in brings its token in the body, which is read first.
    let over = match over {
        Some(failure) if target != Target::SignIn && !state.limits.spare(&target) => {
            in_call.refused();
            body::discard(incoming, &request.headers);
            return refused(state, &request, failure);
        }
        over => over,
    };
    let whole = match body::read(incoming, &request.headers, &state.bodies, holder, body::Size::Usual).await {
        Ok(whole) => whole,
        Err(failure) => return refused(state, &request, failure),
    };
    request.body = whole.bytes.clone();
    if let Some(failure) = over.filter(|_| target == Target::SignIn)
        && !is_let_through(state, &request).await
    {
        in_call.refused();
        return refused(state, &request, failure);
    }
    let answer = state.console.answer(&request).await;
    let caller = || state.callers.holder(&request.session().unwrap_or_default());
    match answer.caller {
        Caller::Known => {
            in_call.known(caller());
        }
        Caller::Unknown => {}
        Caller::Refused => {
            state.limits.failed(client, &target);
            in_call.refused();
        }
    }
    let held = state.streams.held(sent(answer, state, in_call), caller);
    held.unwrap_or_else(|failure| refused(state, &request, failure))
}

/// Returns the secret that a page wants.
fn target_of(path: &str) -> Target {
    if rollhook_console::is_sign_in(path) {
        Target::SignIn
    } else if rollhook_console::is_provider_callback(path) {
        Target::ProviderCallback
    } else {
        Target::Management
    }
}

/// Returns whether a sign-in is tried although others have failed too often from its address.
async fn is_let_through(state: &State, request: &Request) -> bool {
    let Some(token) = request.sign_in_token() else { return false };
    let is_recognized = || state.management.recognizes_api_token(token.as_bytes());
    if is_recognized() || state.limits.spare(&Target::SignIn) {
        return true;
    }
    state.read_new_tokens().await;
    is_recognized()
}

fn refused(state: &State, request: &Request, failure: ErrorReply) -> Reply {
    let (kind, problem) = failure.into_parts();
    let answer = state.console.failure(request, &Failure { kind, problem: Box::new(problem) });
    let (parts, body) = answer.response.into_parts();
    match body {
        Body::Whole(text) => Response::from_parts(parts, reply::full(text)),
        Body::Stream(_) => reply::empty(parts.status),
    }
}

/// Returns the answer as the server sends it. A stream ends when the server stops, and is its call's for as long.
fn sent(answer: Answer, state: &State, in_call: InCall) -> Reply {
    let (parts, body) = answer.response.into_parts();
    let body = match body {
        Body::Whole(text) => reply::full(text),
        Body::Stream(events) => {
            let drain = state.drain.clone();
            let events = events.take_until(async move { drain.begun().await });
            reply::streamed(events.map(move |part| {
                // The call lasts until the stream is dropped.
                let _call = &in_call;
                part
            }))
        }
    };
    Response::from_parts(parts, body)
}

/// The console's host: the management plane in this process.
struct InProcess {
    management: Arc<Management>,
    base_url: Arc<str>,
    notice: Option<&'static str>,
    disks: Arc<Disks>,
    proxies: Arc<Proxies>,
    sign_in: Option<SignIn>,
}

impl InProcess {
    fn provider(&self) -> Result<&SignIn, Failure> {
        self.sign_in.as_ref().ok_or_else(|| Failure::new(Kind::NotFound, "This server has no provider of sign-ins."))
    }
}

/// Returns the failure of a provider; what it says is in the log alone.
fn provider_failed(error: &Error) -> Failure {
    tracing::warn!(error = %error.chain(), "signing in at the provider failed");
    match error.is_unavailable() {
        true => Failure::new(Kind::ProviderUnavailable, "The provider of sign-ins does not answer; try again."),
        false => Failure::new(Kind::Unauthorized, "The provider's answer proves nothing; try again."),
    }
}

#[async_trait]
impl Host for InProcess {
    async fn begin_session(&self, token: &str, name: Option<&str>) -> Result<SessionSecret, Failure> {
        let begun = self.management.begin_session(token.as_bytes(), name).await;
        begun.map(|(secret, _)| secret).map_err(redacted)
    }

    fn notice(&self, principal: &Principal) -> Option<String> {
        let for_all = self.notice.map(str::to_owned).into_iter().chain(self.disks.notice());
        let is_operator = principal.may(Action::ManageTokens, &Realm::Everything);
        let for_operators = self.proxies.notice().filter(|_| is_operator);
        let notices: Vec<String> = for_all.chain(for_operators).collect();
        (!notices.is_empty()).then(|| notices.join(" "))
    }

    fn targets(&self) -> TargetDescription {
        self.management.deployer().targets()
    }

    fn provider_name(&self) -> Option<&str> {
        self.sign_in.as_ref().map(|sign_in| sign_in.provider.name())
    }

    async fn begin_sign_in(&self) -> Result<SignInRequest, Failure> {
        self.provider()?.provider.begin().await.map_err(|error| provider_failed(&error))
    }

    async fn finish_sign_in(&self, code: &str, nonce: &str, verifier: &str) -> Result<Welcome, Failure> {
        let sign_in = self.provider()?;
        let person = sign_in.provider.finish(code, nonce, verifier).await.map_err(|error| provider_failed(&error))?;
        let grants = GroupGrant::of_groups(&sign_in.grants, &person.groups);
        if grants.is_empty() {
            tracing::info!(
                person = escaped(&person.name),
                groups = person.groups.len(),
                "refused a sign-in: no group of the person has a role"
            );
            return Ok(Welcome::NoRole { name: person.name });
        }
        let provider = sign_in.provider.host().to_owned();
        let person = Person { subject: person.subject, name: person.name, provider, groups: person.groups };
        self.management.begin_person_session(person).await.map(Welcome::Session).map_err(redacted)
    }

    async fn lend_session(&self, secret: &str, challenge: &RecordKey) -> Result<SessionSecret, Failure> {
        self.management.lend_session(secret, challenge).await.map_err(redacted)
    }

    async fn session(&self, secret: &str) -> Result<Access, Failure> {
        let principal = self.management.session(secret).await.map_err(redacted)?;
        let somewhere = |action| principal.grants().iter().any(|grant| grant.role.may(action));
        Ok(Access { permissions: Permissions::of(somewhere), principal })
    }

    async fn keep_session(&self, secret: &str) {
        if let Err(refusal) = self.management.keep_session(secret).await {
            tracing::warn!(%refusal, "keeping a session failed");
        }
    }

    async fn end_session(&self, secret: &str, which: Ended) -> Result<(), Failure> {
        let ended = match which {
            Ended::This => self.management.end_session(secret).await,
            Ended::All => self.management.end_sessions_like(secret).await,
        };
        Ok(ended?)
    }

    fn recognizes(&self, secret: &str) -> bool {
        self.management.recognizes_session(secret)
    }

    async fn permissions(&self, principal: &Principal, id: &AppId) -> Result<Permissions, Failure> {
        let role = self.management.role_on(principal, id).await?;
        Ok(Permissions::of(|action| role.may(action)))
    }

    fn operations(&self, principal: &Principal, key: Option<IdempotencyKey>) -> CallerOperations {
        let caller = Local::new(self.management.clone(), principal.clone(), self.base_url.clone());
        CallerOperations::new(caller.with_key(key))
    }

    async fn watch(&self, principal: &Principal, id: &AppId) -> Result<Box<dyn Watch>, Failure> {
        let authorized = self.management.open(principal, id).await?;
        let deployer = Arc::clone(self.management.deployer());
        let seen = deployer.state(&authorized).await?;
        Ok(Box::new(Watched { deployer, authorized, seen, progress: None }))
    }

    fn base_url(&self) -> &str {
        &self.base_url
    }

    fn now(&self) -> Timestamp {
        auth::wall_clock()
    }

    fn random(&self) -> Zeroizing<String> {
        // A token's random part; its prefix would let scanners of secrets take it for one.
        let token = self.management.deployer().new_token();
        Zeroizing::new(token.expose().trim_start_matches("rh_").to_owned())
    }
}

/// Returns the failure of a caller who is not authenticated yet: a store's message to its operator is left out.
fn redacted(refusal: Refusal) -> Failure {
    let (kind, problem) = ErrorReply::from(refusal).redacted().into_parts();
    Failure { kind, problem: Box::new(problem) }
}

/// A watched app, as it was last seen.
struct Watched {
    deployer: Arc<Deployer>,
    authorized: Authorized,
    seen: AppState,
    progress: Option<Progress>,
}

#[async_trait]
impl Watch for Watched {
    async fn changed(&mut self, limit: Duration) -> Result<bool, Failure> {
        let seen = (&self.seen, self.progress.as_ref());
        let (now, progress) = self.deployer.state_changed(&self.authorized, seen, limit).await?;
        let has_changed = now != self.seen || progress != self.progress;
        (self.seen, self.progress) = (now, progress);
        Ok(has_changed)
    }
}
