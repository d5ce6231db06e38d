//! Signing in and out.

use std::sync::Arc;

use askama::Template;
use http::{HeaderValue, StatusCode};
use rollhook_api::Kind;
use rollhook_core::text::escaped;
use rollhook_management::access::SessionSecret;

use crate::{
    console::{Call, Console, status},
    host::{Ended, Failure},
    reply::{self, Caller, Reply},
    request::{Request, local_path, session_secret},
    view::Frame,
};

/// The longest name of a person.
const NAME_MAX: usize = 64;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    frame: &'a Frame,
    next: &'a str,
    name: &'a str,
    error: Option<&'a str>,
    is_secure: bool,
    provider: Option<String>,
    start: String,
    has_signed_out: bool,
}

/// Returns the answer to a person who has to sign in first.
pub(crate) fn wanted(request: &Request) -> Reply {
    let next = if request.reads() { request.target() } else { "/".to_owned() };
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    let path = if next == "%2F" { "/sign-in".to_owned() } else { format!("/sign-in?next={next}") };
    if !request.is_partial() {
        return reply::redirect(&path);
    }
    // A redirect would put the sign-in into a part of the page.
    let mut reply = reply::empty(StatusCode::UNAUTHORIZED);
    reply.headers_mut().insert("hx-redirect", HeaderValue::from_static("/sign-in"));
    reply
}

/// Returns the sign-in, or the start page for a person who is signed in.
pub(crate) async fn page(console: &Console, request: &Request) -> Reply {
    let next = request.query("next");
    let next = local_path(next.as_deref());
    // Only a session that this process knows is worth a read of the store: anybody may ask for this page.
    if let Some(secret) = session_secret(&request.headers).filter(|secret| console.host.recognizes(secret))
        && console.host.session(&secret).await.is_ok()
    {
        return reply::redirect(next);
    }
    form(console, request, next, "", None)
}

fn form(console: &Console, request: &Request, next: &str, name: &str, failure: Option<&Failure>) -> Reply {
    let error = failure.map(|failure| match failure.kind == Kind::Unauthorized {
        true => "This token is not valid. Check that it is whole, and that it was not replaced.".to_owned(),
        false => escaped(&failure.problem.detail),
    });
    told(console, request, next, name, failure.map_or(StatusCode::OK, status), error)
}

/// Returns the sign-in with this status and error.
pub(super) fn told(
    console: &Console,
    request: &Request,
    next: &str,
    name: &str,
    status: StatusCode,
    error: Option<String>,
) -> Reply {
    let encoded: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    let page = SignIn {
        frame: &Frame::signed_out(console.host.now()),
        next,
        name,
        error: error.as_deref(),
        is_secure: request.is_secure(),
        provider: console.host.provider_name().map(escaped),
        start: format!("/sign-in/start?next={encoded}"),
        has_signed_out: request.reads() && request.query("signed-out").is_some(),
    };
    reply::html(status, &page)
}

/// Begins a session for a valid token.
pub(crate) async fn submit(console: &Arc<Console>, request: &Request) -> (Reply, Caller) {
    let token = request.sign_in_token().unwrap_or_default();
    let name: String = request.field("name").unwrap_or_default().chars().take(NAME_MAX).collect();
    let next = request.field("next");
    let next = local_path(next.as_deref());
    let claimed = Some(name.as_str()).filter(|name| !name.is_empty());
    match begin(console, request, &token, claimed).await {
        Ok(secret) => {
            let mut reply = reply::redirect(next);
            reply::set_cookie(&mut reply, Some(&secret));
            (reply, Caller::Known)
        }
        Err(failure) => {
            let caller = if failure.kind == Kind::Unauthorized { Caller::Refused } else { Caller::Unknown };
            (form(console, request, next, &name, Some(&failure)), caller)
        }
    }
}

async fn begin(
    console: &Console,
    request: &Request,
    token: &str,
    name: Option<&str>,
) -> Result<SessionSecret, Failure> {
    if token.is_empty() {
        return Err(Failure::new(Kind::Unauthorized, "No token was given."));
    }
    let secret = console.host.begin_session(token, name).await?;
    // The session that this browser had before would otherwise live on unseen.
    if let Some(earlier) = session_secret(&request.headers) {
        console.host.end_session(&earlier, Ended::This).await?;
    }
    Ok(secret)
}

/// Ends this session.
pub(crate) async fn sign_out(call: &Call<'_>) -> Result<Reply, Failure> {
    call.console.host.end_session(&call.session, Ended::This).await?;
    Ok(signed_out())
}

/// Ends all sessions of this person.
pub(crate) async fn sign_out_everywhere(call: &Call<'_>) -> Result<Reply, Failure> {
    call.console.host.end_session(&call.session, Ended::All).await?;
    Ok(signed_out())
}

fn signed_out() -> Reply {
    let mut reply = reply::redirect("/sign-in?signed-out=1");
    reply::set_cookie(&mut reply, None);
    reply
}
