//! The stages of every call before it is answered:
//!
//! ```text
//!   head ──▶ form ──▶ limits ──▶ a large body's token ──▶ body ──▶ a signature's limits ──▶ caller ──▶ handler
//! ```
//!
//! Each stage may refuse. What was sent is then discarded, so that its sender gets to read the answer.

use std::{net::IpAddr, sync::Arc};

use http::{Method, Request, request::Parts};
use hyper::body::Incoming as IncomingBody;
use rollhook_api::{
    Kind, Local,
    endpoint::{Credentials, Subject, open},
};
use rollhook_core::app::AppId;
use rollhook_management::Refusal;

use crate::{
    auth,
    body::{self, Held, Whole},
    budget::Holder,
    call::Call,
    callers::Caller,
    connections::InCall,
    console,
    error_reply::ErrorReply,
    headers, limits,
    reply::Reply,
    route::{self, Found, Handler, Route},
    state::State,
    target::Target,
    webhook,
};

/// A call as it comes in.
pub(crate) struct Incoming {
    pub(crate) request: Request<IncomingBody>,
    pub(crate) source: IpAddr,
    pub(crate) audience: Audience,
    pub(crate) in_call: InCall,
}

/// For whom a listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// CI, git hosts and operators.
    Callers,
    /// The probes of a cluster, and Prometheus.
    Probes,
}

/// Answers a call.
pub(crate) async fn dispatch(state: Arc<State>, call: Incoming) -> Result<Reply, ErrorReply> {
    let Incoming { request, source, audience, in_call } = call;
    let (parts, incoming) = request.into_parts();
    let client = state.proxies.client_ip(source, &parts.headers);
    let found = route::find(parts.uri.path(), parts.method.as_str());
    if audience == Audience::Callers && matches!(found, Found::Nothing) && console::is_for(&parts) {
        return Ok(Box::pin(console::answer(&state, parts, incoming, client, in_call)).await);
    }
    let route = match route_for(&state, audience, &parts, found) {
        Ok(route) => route,
        Err(failure) => {
            body::discard(incoming, &parts.headers);
            return Err(failure);
        }
    };
    let target = target(route, &parts);
    let holder = Holder::Stranger(limits::network(client));
    let mut head = Head { state, parts, client, in_call, route, target, holder, over: None };
    let size = match head.admit(&incoming).await {
        Ok(size) => size,
        Err(failure) => {
            body::discard(incoming, &head.parts.headers);
            return Err(failure);
        }
    };
    let whole = body::read(incoming, &head.parts.headers, &head.state.bodies, head.holder, size).await?;
    head.admit_body(&whole).await?;
    let (call, target) = head.with_body(whole);
    let method = Method::from_bytes(call.endpoint.method.as_bytes()).unwrap_or_default();
    let answered = Box::pin(answer(route, &call)).await;
    let answered = answered.and_then(|reply| call.state.streams.held(reply, || token_holder(&call)));
    let holder = || match route.handler {
        Handler::Managed(_) => Holder::Known(token_holder(&call)),
        // The long one is for anyone: the metrics.
        Handler::Open(_) => Holder::Stranger(limits::network(client)),
    };
    let long_answers = call.in_call.long_answers();
    let answered = match answered {
        // All who read it share its bytes.
        Ok(reply) if route.endpoint.path == open::DESCRIPTION.path => Ok(reply),
        answered => answered.and_then(|reply| call.state.answers.held(reply, &method, long_answers, holder)),
    };
    if let Some(target) = target.filter(|_| matches!(&answered, Err(failure) if failure.kind() == Kind::Unauthorized)) {
        call.state.limits.failed(client, &target);
        call.in_call.refused();
    }
    answered
}

/// Returns the route of a call.
///
/// # Errors
/// What is wrong with the call's form, and what this listener has not.
fn route_for(state: &State, audience: Audience, parts: &Parts, found: Found) -> Result<&'static Route, ErrorReply> {
    let is_probe = route::is_probe(parts.uri.path());
    if audience == Audience::Probes && !is_probe {
        return Err(ErrorReply::new(Kind::NotFound, "Probes and metrics are at this address, and nothing else."));
    }
    headers::require_host(parts)?;
    body::require_identity(&parts.headers)?;
    match found {
        _ if audience == Audience::Callers && is_probe && state.has_probe_listener => Ok(&route::NOTHING),
        Found::Route(route) => Ok(route),
        Found::OtherMethods(methods) => Err(ErrorReply::method_not_allowed(&methods)),
        Found::Nothing => Ok(&route::NOTHING),
    }
}

/// Returns the secret that the call's credentials are for; `None` if the route needs none.
fn target(route: &Route, parts: &Parts) -> Option<Target> {
    let is_for_app = match route.endpoint.credentials {
        Credentials::Probe | Credentials::None => return None,
        Credentials::Webhook => true,
        Credentials::LoginCode => return Some(Target::Login),
        Credentials::ApiTokenOrServiceToken => auth::has_service_token(&parts.headers),
        Credentials::ApiToken => false,
    };
    let app = || route.endpoint.parameters(parts.uri.path()).and_then(|named| AppId::read(named).ok());
    Some(match is_for_app {
        true => app().map_or(Target::Nothing, Target::App),
        false => Target::Management,
    })
}

/// A call whose body is still to be read.
struct Head {
    state: Arc<State>,
    parts: Parts,
    client: IpAddr,
    in_call: InCall,
    route: &'static Route,
    /// The secret that the credentials are for.
    target: Option<Target>,
    /// For whom the body is read.
    holder: Holder,
    /// The refusal of a caller over the limit, which a signature over the body may still lift.
    over: Option<ErrorReply>,
}

impl Head {
    /// Checks the limits, and the token of a large body; returns how large the body may be.
    ///
    /// # Errors
    /// 429, or 401 for a large body.
    async fn admit(&mut self, incoming: &IncomingBody) -> Result<body::Size, ErrorReply> {
        if self.target.as_ref().is_some_and(|target| self.is_recognized(target, &[])) {
            self.is_known()?;
        }
        self.over = self.target.as_ref().and_then(|target| self.state.limits.admit(self.client, target).err());
        let is_webhook = self.route.endpoint.credentials == Credentials::Webhook;
        let size = if is_webhook { body::Size::of(&self.parts.headers) } else { body::Size::Usual };
        // A signature can be checked only once the body was read.
        if auth::needs_body(&self.parts.headers) {
            return Ok(size);
        }
        self.check_limit(&[]).await?;
        self.over = None;
        if size == body::Size::Push && body::is_large(incoming) {
            self.check_token().await?;
        }
        Ok(size)
    }

    /// Checks the limits of a caller who has signed the body.
    ///
    /// # Errors
    /// 429.
    async fn admit_body(&mut self, whole: &Whole) -> Result<(), ErrorReply> {
        self.check_limit(&whole.bytes).await
    }

    /// Refuses a caller over the limit, unless it is authenticated although others have failed too often from its
    /// address.
    async fn check_limit(&mut self, body: &[u8]) -> Result<(), ErrorReply> {
        if self.over.is_none() || self.is_let_through(body).await {
            return Ok(());
        }
        self.in_call.refused();
        self.over.take().map_or(Ok(()), Err)
    }

    async fn is_let_through(&self, body: &[u8]) -> bool {
        let Some(target) = &self.target else { return true };
        let costs_a_read = auth::costs_a_read(target, &self.parts.headers);
        if self.is_recognized(target, body) || (costs_a_read && self.state.limits.spare(target)) {
            return true;
        }
        // Who presents nothing waits for no store.
        if *target != Target::Management || !costs_a_read {
            return false;
        }
        self.state.read_new_tokens().await;
        self.is_recognized(target, body)
    }

    /// Checks a webhook's token before much is read for it.
    async fn check_token(&mut self) -> Result<(), ErrorReply> {
        let Some(Target::App(app)) = &self.target else { return Ok(()) };
        let (management, headers) = (&self.state.management, &self.parts.headers);
        if let Err(refusal) = management.authorize(app, &auth::presented_by_app(headers), &[]).await {
            // A store that is away says nothing about the caller.
            if refusal == Refusal::UNAUTHORIZED {
                self.state.limits.failed(self.client, &Target::App(app.clone()));
                webhook::note_refused(management, app, self.client, headers, &[]);
                self.in_call.refused();
            }
            return Err(refusal.into());
        }
        self.is_known()
    }

    fn is_recognized(&self, target: &Target, body: &[u8]) -> bool {
        auth::is_recognized(&self.state.management, target, &self.parts.headers, body)
    }

    /// Notes that the caller is no stranger.
    ///
    /// # Errors
    /// 429.
    fn is_known(&mut self) -> Result<(), ErrorReply> {
        let caller = match &self.target {
            Some(Target::App(app)) => self.state.webhook(app),
            _ => self.state.holder(auth::presented(&self.parts.headers)),
        };
        self.holder = Holder::Known(caller);
        self.state.known(&self.in_call, caller)
    }

    fn with_body(self, body: Whole) -> (Call, Option<Target>) {
        let Self { state, parts, client, in_call, route, target, .. } = self;
        let Parts { uri, headers, .. } = parts;
        let body = Held::new(body);
        (Call { state, endpoint: route.endpoint, uri, headers, body, client, in_call }, target)
    }
}

/// Authenticates the caller of a route that needs an API token, and answers.
async fn answer(route: &Route, call: &Call) -> Result<Reply, ErrorReply> {
    match (&route.handler, route.endpoint.credentials) {
        (Handler::Open(answer), _) => answer(call).await,
        (_, Credentials::ApiTokenOrServiceToken) if auth::has_service_token(&call.headers) => {
            webhook::entry(call).await
        }
        (Handler::Managed(answer), _) => answer(call, caller(call).await?).await,
    }
}

/// Returns the holder of the call's API token or session, or the callers of the app whose own token it has.
fn token_holder(call: &Call) -> Caller {
    let has_own = matches!(call.endpoint.credentials, Credentials::ApiTokenOrServiceToken)
        && auth::has_service_token(&call.headers);
    let app = || AppId::read(call.endpoint.parameters(call.uri.path())?).ok();
    let own = has_own.then(app).flatten();
    own.map_or_else(|| call.state.holder(auth::presented(&call.headers)), |app| call.state.webhook(&app))
}

/// Returns the management plane for the call's principal.
async fn caller(call: &Call) -> Result<Local, ErrorReply> {
    let principal = auth::principal(&call.state.management, limits::network(call.client), &call.headers).await?;
    call.state.known(&call.in_call, token_holder(call))?;
    Ok(Local::new(call.state.management.clone(), principal, call.state.base_url.clone()))
}
