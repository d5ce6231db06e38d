//! The routes, and the steps of every call before it is answered.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header::ACCEPT, request::Parts};
use rollhook_api::{Kind, Local, openapi};
use rollhook_core::{
    app::{AppId, Environment, Project},
    deploy::Revision,
    request::{IdempotencyKey, KeyHeader},
};
use rollhook_management::{Refusal, access::TokenName, keyless::TrustId, notifications::ReceiverName};
use serde::de::DeserializeOwned;

use crate::{
    access, auth,
    body::{self, Whole},
    budget::Holder,
    build_log,
    connections::InCall,
    console, deploys,
    error_reply::ErrorReply,
    events, headers, limits, locks, manage, receivers,
    reply::{self, Reply},
    state::State,
    target::Target,
    trusts, webhook,
};

/// The description of the API, which takes long to make, and anyone may ask for.
static DESCRIPTION: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());

/// The script by which a job of any CI system deploys; it is the one that all our CI components run.
const SCRIPT: &str = include_str!("deploy.sh");

/// The routes of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Ready,
    Metrics,
    OpenApi,
    Script,
    Webhook,
    Apps,
    App,
    AppWebhook,
    RotateWebhook,
    WebhookCalls,
    Trusts,
    Trust,
    Deploys,
    Deploy,
    Events,
    Log,
    Cancel,
    Rollback,
    Hold,
    Lock,
    Locks,
    EnvironmentLock,
    Promote,
    Rebuild,
    Tokens,
    Token,
    Audit,
    Receivers,
    Receiver,
    TestReceiver,
    RotateReceiver,
    Whoami,
    Login,
}

/// Each route with its path and methods.
pub(crate) const ROUTES: &[(Route, &str, &str)] = &[
    (Route::Health, "/healthz", "GET, HEAD"),
    (Route::Ready, "/readyz", "GET, HEAD"),
    (Route::Metrics, "/metrics", "GET, HEAD"),
    (Route::OpenApi, "/api/v1/openapi.json", "GET, HEAD"),
    (Route::Script, "/api/v1/deploy.sh", "GET, HEAD"),
    (Route::Webhook, "/api/v1/webhook/{namespace}/{app}", "POST"),
    (Route::Apps, "/api/v1/apps", "GET, HEAD, POST"),
    (Route::App, "/api/v1/apps/{namespace}/{app}", "GET, HEAD, PATCH, DELETE"),
    (Route::AppWebhook, "/api/v1/apps/{namespace}/{app}/webhook", "GET, HEAD, POST, DELETE"),
    (Route::RotateWebhook, "/api/v1/apps/{namespace}/{app}/webhook/rotate", "POST"),
    (Route::WebhookCalls, "/api/v1/apps/{namespace}/{app}/webhook/calls", "GET, HEAD"),
    (Route::Trusts, "/api/v1/apps/{namespace}/{app}/webhook/trusts", "GET, HEAD, POST"),
    (Route::Trust, "/api/v1/apps/{namespace}/{app}/webhook/trusts/{trust}", "DELETE"),
    (Route::Deploys, "/api/v1/apps/{namespace}/{app}/deploys", "GET, HEAD, POST"),
    (Route::Deploy, "/api/v1/apps/{namespace}/{app}/deploys/{revision}", "GET, HEAD"),
    (Route::Events, "/api/v1/apps/{namespace}/{app}/deploys/{revision}/events", "GET, HEAD"),
    (Route::Log, "/api/v1/apps/{namespace}/{app}/deploys/{revision}/log", "GET, HEAD"),
    (Route::Cancel, "/api/v1/apps/{namespace}/{app}/deploys/{revision}/cancel", "POST"),
    (Route::Rollback, "/api/v1/apps/{namespace}/{app}/rollback", "POST"),
    (Route::Hold, "/api/v1/apps/{namespace}/{app}/hold", "DELETE"),
    (Route::Lock, "/api/v1/apps/{namespace}/{app}/lock", "PUT, DELETE"),
    (Route::Locks, "/api/v1/locks", "GET, HEAD"),
    (Route::EnvironmentLock, "/api/v1/locks/{project}/{environment}", "PUT, DELETE"),
    (Route::Promote, "/api/v1/apps/{namespace}/{app}/promote", "POST"),
    (Route::Rebuild, "/api/v1/apps/{namespace}/{app}/rebuild", "POST"),
    (Route::Tokens, "/api/v1/tokens", "GET, HEAD, POST"),
    (Route::Token, "/api/v1/tokens/{name}", "DELETE"),
    (Route::Audit, "/api/v1/audit", "GET, HEAD"),
    (Route::Receivers, "/api/v1/receivers", "GET, HEAD, POST"),
    (Route::Receiver, "/api/v1/receivers/{receiver}", "DELETE"),
    (Route::TestReceiver, "/api/v1/receivers/{receiver}/test", "POST"),
    (Route::RotateReceiver, "/api/v1/receivers/{receiver}/rotate", "POST"),
    (Route::Whoami, "/api/v1/whoami", "GET, HEAD"),
    (Route::Login, "/api/v1/login", "POST"),
];

/// A call as it comes in.
pub(crate) struct Incoming {
    pub(crate) request: Request<hyper::body::Incoming>,
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

/// A path's route, and the values of its parameters, such as namespace, app and revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matched<'a> {
    route: Route,
    parameters: [&'a str; 3],
}

fn find(path: &str) -> Option<Matched<'_>> {
    ROUTES.iter().find_map(|(route, template, _)| {
        let (mut parts, mut parameters) = (path.split('/'), [""; 3]);
        let mut free = parameters.iter_mut();
        for wanted in template.split('/') {
            let part = parts.next()?;
            match wanted.starts_with('{') {
                true => *free.next()? = part,
                false if wanted == part => {}
                false => return None,
            }
        }
        parts.next().is_none().then_some(Matched { route: *route, parameters })
    })
}

fn entry(route: Route) -> (&'static str, &'static str) {
    ROUTES.iter().find(|(known, ..)| *known == route).map_or(("", ""), |(_, path, methods)| (*path, *methods))
}

/// Returns the path's route as a label, from a fixed set.
pub(crate) fn template(path: &str) -> &'static str {
    find(path).map_or_else(|| rollhook_console::template(path), |found| entry(found.route).0)
}

/// Returns whether a label is that of the webhook's route.
pub(crate) fn is_webhook(template: &str) -> bool {
    template == entry(Route::Webhook).0
}

/// A call with its whole body.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Whole,
    /// The caller's address.
    pub(crate) client: IpAddr,
    /// Held by answers that are streamed.
    pub(crate) in_call: InCall,
}

/// Returns the app that a path names, if it is an app's name.
fn app(path: &str) -> Option<AppId> {
    let [namespace, name, _] = find(path)?.parameters;
    Some(AppId { namespace: namespace.parse().ok()?, name: name.parse().ok()? })
}

impl Call {
    /// Returns the app that the path names.
    ///
    /// # Errors
    /// 404 if it is not an app's name.
    pub(crate) fn app(&self) -> Result<AppId, ErrorReply> {
        app(self.uri.path()).ok_or_else(|| ErrorReply::new(Kind::AppNotFound, "There is no app of this name."))
    }

    /// Returns the API token that the path names.
    ///
    /// # Errors
    /// 404 if it is not a token's name.
    pub(crate) fn token(&self) -> Result<TokenName, ErrorReply> {
        let name = find(self.uri.path()).and_then(|matched| matched.parameters[0].parse().ok());
        name.ok_or_else(|| ErrorReply::new(Kind::TokenNotFound, "There is no API token of this name."))
    }

    /// Returns the trust that the path names.
    ///
    /// # Errors
    /// 404 if it is not a trust's id.
    pub(crate) fn trust(&self) -> Result<TrustId, ErrorReply> {
        let id = find(self.uri.path()).and_then(|matched| matched.parameters[2].parse().ok());
        id.ok_or_else(|| ErrorReply::new(Kind::TrustNotFound, "The app has no trust of this id."))
    }

    /// Returns the receiver that the path names.
    ///
    /// # Errors
    /// 404 if it is not a receiver's name.
    pub(crate) fn receiver(&self) -> Result<ReceiverName, ErrorReply> {
        let name = find(self.uri.path()).and_then(|matched| matched.parameters[0].parse().ok());
        name.ok_or_else(|| ErrorReply::new(Kind::ReceiverNotFound, "There is no receiver of this name."))
    }

    /// Returns the environment that the path names.
    ///
    /// # Errors
    /// 404 if it is not one's name.
    pub(crate) fn environment(&self) -> Result<(Project, Environment), ErrorReply> {
        let named = find(self.uri.path()).and_then(|matched| {
            let [project, environment, _] = matched.parameters;
            Some((project.parse().ok()?, environment.parse().ok()?))
        });
        named.ok_or_else(|| ErrorReply::new(Kind::NotFound, "There is no environment of this name."))
    }

    /// Returns the revision that the path names.
    ///
    /// # Errors
    /// 404 if it is not a revision.
    pub(crate) fn revision(&self) -> Result<Revision, ErrorReply> {
        let revision = find(self.uri.path()).and_then(|matched| matched.parameters[2].parse().ok());
        revision.ok_or_else(|| ErrorReply::new(Kind::RevisionNotFound, "There is no such revision of this app."))
    }

    /// Returns the body, which must be JSON of this type.
    ///
    /// # Errors
    /// 415 or 400.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ErrorReply> {
        body::require_json(&self.headers)?;
        body::object(&self.body.bytes)
    }

    /// Returns the body, or the default if it is empty.
    ///
    /// # Errors
    /// 415 or 400.
    pub(crate) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ErrorReply> {
        if self.body.bytes.trim_ascii().is_empty() { Ok(T::default()) } else { self.json() }
    }

    /// Returns the idempotency key of an operator's call of this operation.
    ///
    /// # Errors
    /// 422.
    pub(crate) fn key(&self, operation: &str) -> Result<Option<IdempotencyKey>, ErrorReply> {
        headers::key(&self.headers, &[KeyHeader::IdempotencyKey], operation, &self.body.bytes)
    }

    /// Returns whether the method only reads.
    pub(crate) fn reads(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }
}

/// Answers a call: checks method and limits, reads the body, authenticates, and performs the call, in this order.
pub(crate) async fn dispatch(state: Arc<State>, call: Incoming) -> Result<Reply, ErrorReply> {
    let Incoming { request, source, audience, in_call } = call;
    let (parts, incoming) = request.into_parts();
    let route = find(parts.uri.path()).map(|found| found.route);
    let client = state.proxies.client_ip(source, &parts.headers);
    if audience == Audience::Callers && route.is_none() && console::is_for(&parts) {
        return Ok(Box::pin(console::answer(&state, parts, incoming, client, in_call)).await);
    }
    let is_probe = matches!(route, Some(Route::Health | Route::Ready | Route::Metrics));
    let route = match audience {
        Audience::Probes if !is_probe => {
            body::discard(incoming, &parts.headers);
            return Err(ErrorReply::new(Kind::NotFound, "Probes and metrics are at this address, and nothing else."));
        }
        Audience::Callers if is_probe && state.has_probe_listener => None,
        Audience::Callers | Audience::Probes => route,
    };
    let early = headers::require_host(&parts).and_then(|()| body::require_identity(&parts.headers));
    let early = early.and_then(|()| route.map_or(Ok(()), |route| allowed(route, &parts.method)));
    if let Err(failure) = early {
        body::discard(incoming, &parts.headers);
        return Err(failure);
    }
    let target = target(route, &parts);
    let is_known = |target: &Target| auth::is_recognized(&state.management, target, &parts.headers, &[]);
    let mut holder = Holder::Stranger(limits::network(client));
    if target.as_ref().is_some_and(is_known) {
        in_call.known();
        holder = Holder::Known;
    }
    let mut over = target.as_ref().and_then(|target| state.limits.admit(client, target).err());
    // A signature can be checked only once the body was read.
    let is_signed = auth::needs_body(&parts.headers);
    if let (Some(target), false) = (&target, is_signed) {
        if over.is_some() && is_let_through(&state, target, &parts.headers, &[]).await {
            over = None;
        }
        if let Some(failure) = over {
            in_call.refused();
            body::discard(incoming, &parts.headers);
            return Err(failure);
        }
    }
    let size = match route {
        Some(Route::Webhook) => body::Size::of(&parts.headers),
        _ => body::Size::Usual,
    };
    // A token is checked before much is read for it; a signature only shows at the end.
    if let Some(Target::App(app)) = &target
        && size == body::Size::Push
        && body::is_large(&incoming)
        && !is_signed
    {
        if let Err(refusal) = state.management.authorize(app, &auth::presented_by_app(&parts.headers), &[]).await {
            // A store that is away says nothing about the caller.
            if refusal == Refusal::UNAUTHORIZED {
                state.limits.failed(client, &Target::App(app.clone()));
                webhook::note_refused(&state.management, app, client, &parts.headers, &[]);
                in_call.refused();
            }
            body::discard(incoming, &parts.headers);
            return Err(refusal.into());
        }
        in_call.known();
        holder = Holder::Known;
    }
    let body = body::read(incoming, &parts.headers, &state.bodies, holder, size).await?;
    if let (Some(target), Some(failure)) = (&target, over)
        && !is_let_through(&state, target, &parts.headers, &body.bytes).await
    {
        in_call.refused();
        return Err(failure);
    }
    let call = Call { state, method: parts.method, uri: parts.uri, headers: parts.headers, body, client, in_call };
    let answered = Box::pin(answer(route, &call)).await;
    if let Some(target) = target.filter(|_| matches!(&answered, Err(failure) if failure.kind() == Kind::Unauthorized)) {
        call.state.limits.failed(client, &target);
        call.in_call.refused();
    }
    answered
}

/// Returns the secret that the call's credentials are for; `None` if the route needs none.
fn target(route: Option<Route>, parts: &Parts) -> Option<Target> {
    if is_open(route) {
        return None;
    }
    if route == Some(Route::Login) {
        return Some(Target::Login);
    }
    let for_app = match route {
        Some(Route::Webhook) => true,
        Some(Route::Deploy) => auth::has_service_token(&parts.headers),
        _ => false,
    };
    Some(match app(parts.uri.path()) {
        _ if !for_app => Target::Management,
        Some(app) => Target::App(app),
        None => Target::Nothing,
    })
}

/// Returns whether a caller is authenticated although others have failed too often from its address.
async fn is_let_through(state: &State, target: &Target, headers: &HeaderMap, body: &[u8]) -> bool {
    let is_recognized = || auth::is_recognized(&state.management, target, headers, body);
    if is_recognized() || (auth::costs_a_read(target, headers) && state.limits.spare(target)) {
        return true;
    }
    if *target != Target::Management {
        return false;
    }
    state.read_new_tokens().await;
    is_recognized()
}

fn allowed(route: Route, method: &Method) -> Result<(), ErrorReply> {
    let (_, methods) = entry(route);
    if methods.split(", ").any(|known| known == method.as_str()) {
        return Ok(());
    }
    Err(ErrorReply::method_not_allowed(methods))
}

/// Returns whether the route needs no authentication.
fn is_open(route: Option<Route>) -> bool {
    matches!(route, Some(Route::Health | Route::Ready | Route::Metrics | Route::OpenApi | Route::Script))
}

async fn answer(route: Option<Route>, call: &Call) -> Result<Reply, ErrorReply> {
    match route {
        Some(Route::Health) => Ok(health(call.state.deployer.is_driving())),
        Some(Route::Ready) => ready(&call.state).await,
        Some(Route::Metrics) => {
            call.state.metrics.look(&call.state.deployer);
            let accept = call.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            let (media_type, text) = call.state.metrics.text(accept);
            Ok(reply::whole(StatusCode::OK, media_type, text.into()))
        }
        Some(Route::OpenApi) => Ok(reply::whole(StatusCode::OK, "application/json", DESCRIPTION.clone())),
        Some(Route::Script) => {
            Ok(reply::whole(StatusCode::OK, "text/x-shellscript; charset=utf-8", Bytes::from_static(SCRIPT.as_bytes())))
        }
        Some(Route::Webhook) => webhook::post(call).await,
        Some(Route::Login) => access::login(call).await,
        Some(Route::Deploy) if auth::has_service_token(&call.headers) => webhook::entry(call).await,
        other => managed(other, call).await,
    }
}

/// Answers a call that needs an API token.
async fn managed(route: Option<Route>, call: &Call) -> Result<Reply, ErrorReply> {
    let principal = auth::principal(&call.state.management, &call.headers).await?;
    call.in_call.known();
    let operations = Local::new(call.state.management.clone(), principal, call.state.base_url.clone());
    // Unknown paths need the token too, so that only operators learn which paths exist.
    let Some(route) = route else { return Err(ErrorReply::new(Kind::NotFound, "There is nothing at this path.")) };
    match route {
        Route::Apps if call.reads() => manage::list(call, operations).await,
        Route::Apps => manage::register(call, operations).await,
        Route::App if call.reads() => manage::show(call, operations).await,
        Route::App if call.method == Method::PATCH => manage::change(call, operations).await,
        Route::App => manage::delete(call, operations).await,
        Route::AppWebhook if call.reads() => manage::webhook(call, operations).await,
        Route::AppWebhook if call.method == Method::POST => manage::enable(call, operations).await,
        Route::AppWebhook => manage::disable(call, operations).await,
        Route::RotateWebhook => manage::rotate(call, operations).await,
        Route::WebhookCalls => manage::webhook_calls(call, operations).await,
        Route::Trusts if call.reads() => trusts::list(call, operations).await,
        Route::Trusts => trusts::add(call, operations).await,
        Route::Trust => trusts::remove(call, operations).await,
        Route::Hold => manage::release(call, operations).await,
        Route::Lock => locks::of_app(call, operations).await,
        Route::Locks => locks::list(call, operations).await,
        Route::EnvironmentLock => locks::of_environment(call, operations).await,
        Route::Deploys if call.reads() => deploys::list(call, operations).await,
        Route::Deploys => deploys::post(call, operations).await,
        Route::Deploy => deploys::show(call, operations).await,
        Route::Events => events::stream(call, operations).await,
        Route::Cancel => deploys::cancel(call, operations).await,
        Route::Rollback => deploys::rollback(call, operations).await,
        Route::Promote => deploys::promote(call, operations).await,
        Route::Log => build_log::read(call, operations).await,
        Route::Rebuild => deploys::rebuild(call, operations).await,
        Route::Tokens if call.reads() => access::tokens(call, operations).await,
        Route::Tokens => access::create(call, operations).await,
        Route::Token => access::revoke(call, operations).await,
        Route::Audit => access::audit(call, operations).await,
        Route::Receivers if call.reads() => receivers::list(call, operations).await,
        Route::Receivers => receivers::add(call, operations).await,
        Route::Receiver => receivers::remove(call, operations).await,
        Route::TestReceiver => receivers::test(call, operations).await,
        Route::RotateReceiver => receivers::rotate(call, operations).await,
        Route::Whoami => access::whoami(call, operations).await,
        Route::Health
        | Route::Ready
        | Route::Metrics
        | Route::OpenApi
        | Route::Script
        | Route::Webhook
        | Route::Login => Err(Refusal::UNAUTHORIZED.into()),
    }
}

/// Returns the answer for a supervisor, which is to restart a server whose engine is stuck.
fn health(is_driving: bool) -> Reply {
    let (status, text) = match is_driving {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "The engine has stood still for 30 s: nothing is deployed.\n"),
    };
    reply::whole(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

async fn ready(state: &State) -> Result<Reply, ErrorReply> {
    if state.drain.has_begun() {
        return Err(ErrorReply::new(Kind::ShuttingDown, "The server is stopping."));
    }
    let ready = state.readiness.get(async || state.management.ready().await).await;
    ready.map_err(|refusal| ErrorReply::from(refusal).redacted())?;
    if !state.writable.now() {
        return Err(ErrorReply::new(
            Kind::StoreUnavailable,
            "The store can be read, but not written; the log says why.",
        ));
    }
    Ok(reply::whole(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ready\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for (route, path, _) in ROUTES {
            let path = path
                .replace("{namespace}", "shop-test")
                .replace("{app}", "api")
                .replace("{revision}", "7")
                .replace("{name}", "ci")
                .replace("{receiver}", "ops");
            assert_eq!(find(&path).map(|found| found.route), Some(*route), "{path}");
            assert_eq!(template(&path), entry(*route).0);
        }
    }

    #[test]
    fn health_is_red_while_the_engine_stands_still() {
        assert_eq!(health(true).status(), StatusCode::OK);
        assert_eq!(health(false).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in ["", "*", "/healthz/", "/api/v1/apps/", "/api/v1/webhook/a", "/api/v1/webhook/a/b/", "/api/v2/apps"]
        {
            assert_eq!(template(path), "unknown", "{path}");
        }
        assert_eq!(template(&"/a".repeat(1000)), "unknown");
    }

    #[test]
    fn every_route_and_method_is_in_the_description() {
        let document = openapi::document();
        let paths = document["paths"].as_object().unwrap();
        for (_, path, methods) in ROUTES {
            let described = paths.get(*path).unwrap_or_else(|| panic!("{path} is not described"));
            for method in methods.split(", ").filter(|method| *method != "HEAD") {
                assert!(described.get(method.to_lowercase()).is_some(), "{method} {path} is not described");
            }
        }
        assert_eq!(paths.len(), ROUTES.len());
    }
}
