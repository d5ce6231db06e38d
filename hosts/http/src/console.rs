//! The console's calls: the same limits as for every other call, then `rollhook_console`.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Response, header::ACCEPT, request::Parts};
use hyper::body::Incoming;
use rollhook_console::{Answer, Body, Caller, Console, Failure, Host, Request};
use rollhook_management::{
    Management,
    access::{Action, Realm},
};
use rollhook_wiring::SignIn;

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
    let host = Host::new(management, base_url, auth::wall_clock).with_notice(move |principal| {
        let for_all = notice.map(str::to_owned).into_iter().chain(disks.notice());
        let is_operator = principal.may(Action::ManageTokens, &Realm::Everything);
        let for_operators = proxies.notice().filter(|_| is_operator);
        let notices: Vec<String> = for_all.chain(for_operators).collect();
        (!notices.is_empty()).then(|| notices.join(" "))
    });
    Arc::new(Console::new(match sign_in {
        Some(SignIn { provider, grants }) => host.with_sign_in(provider, grants),
        None => host,
    }))
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
    let target = target_of(&request.path);
    // A sign-in is a call of the token that it brings, whatever session the browser has beside it.
    let is_sign_in = target == Target::SignIn && state.console.brings_credentials(&request);
    let has_known_session = !is_sign_in && state.console.recognizes(&request.headers);
    let known = has_known_session.then(|| state.holder(&request.session().unwrap_or_default()));
    let holder = known.map_or(Holder::Stranger(limits::network(client)), Holder::Known);
    if let Some(Err(failure)) = known.map(|caller| state.known(&in_call, caller)) {
        body::discard(incoming, &request.headers);
        return refused(state, &request, failure);
    }
    // A call without credentials is only led to the sign-in, and costs no read of the store.
    let is_counted = known.is_none() && state.console.brings_credentials(&request);
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
    let secret = if is_sign_in { request.sign_in_token() } else { request.session() }.unwrap_or_default();
    let caller = || state.holder(&secret);
    if is_sign_in
        && state.management.recognizes_api_token(secret.as_bytes())
        && let Err(failure) = state.known(&in_call, caller())
    {
        return refused(state, &request, failure);
    }
    let answer = state.console.answer(&request).await;
    match answer.caller {
        Caller::Known => {
            // The first call with a secret that this process had not read: it is counted, and done already.
            let _ = state.known(&in_call, caller());
        }
        Caller::Unknown => {}
        Caller::Refused => {
            state.limits.failed(client, &target);
            in_call.refused();
        }
    }
    let is_counted = matches!(answer.caller, Caller::Known);
    let long_answers = in_call.long_answers().clone();
    let held = state.streams.held(sent(answer, state, in_call), caller);
    let held = match held {
        Ok(reply) if is_counted => {
            state.answers.held(reply, &request.method, &long_answers, || Holder::Known(caller()))
        }
        held => held,
    };
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
