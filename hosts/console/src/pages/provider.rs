//! Signing in at the provider of an organisation (OpenID Connect).
//!
//! The secrets of a request are in a cookie of the browser that began it, for ten minutes, and nowhere else: nothing is
//! stored for a stranger, and every replica can finish what another has begun. The cookie is not sealed: its reader is
//! the person who signs in, and its name lets no other site or host set it.

use std::sync::Arc;

use http::StatusCode;
use rollhook_api::Kind;
use rollhook_core::text::escaped;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{errors::Shown, sign_in};
use crate::{
    console::{Console, status},
    host::{Ended, Welcome},
    reply::{self, Caller, Reply},
    request::{Request, cookie, local_path, session_secret},
    view::Frame,
};

/// The cookie of a request to the provider.
const COOKIE_NAME: &str = "__Host-rollhook-sign-in";
/// The time in which a person signs in at the provider, in seconds.
const LASTS_S: u32 = 600;

/// The secrets of a request, and the place to go to afterwards.
struct Pending {
    state: Zeroizing<String>,
    nonce: Zeroizing<String>,
    verifier: Zeroizing<String>,
    next: String,
}

impl Pending {
    /// Returns the request that the browser began.
    fn of(request: &Request) -> Option<Self> {
        let value = cookie(&request.headers, COOKIE_NAME)?;
        let mut pairs = form_urlencoded::parse(value.as_bytes());
        let mut next =
            |name: &str| pairs.next().filter(|(known, _)| known == name).map(|(_, value)| value.into_owned());
        let mut secret = |name| next(name).map(Zeroizing::new);
        let (state, nonce, verifier) = (secret("state")?, secret("nonce")?, secret("verifier")?);
        Some(Self { state, nonce, verifier, next: next("next")? })
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.append_pair("state", &self.state).append_pair("nonce", &self.nonce);
        Zeroizing::new(text.append_pair("verifier", &self.verifier).append_pair("next", &self.next).finish())
    }

    /// Returns whether the provider's answer is to this request. Hashes are compared, so that the time tells nothing.
    fn is_answered_by(&self, state: &str) -> bool {
        Sha256::digest(self.state.as_bytes()) == Sha256::digest(state)
    }
}

/// Answers `GET /sign-in/start`: leads to the provider.
pub(crate) async fn start(console: &Console, request: &Request) -> Reply {
    let next = request.query("next");
    let next = local_path(next.as_deref());
    let begun = match console.host.begin_sign_in().await {
        Ok(begun) => begun,
        Err(failure) => {
            let error = escaped(&failure.problem.detail);
            return sign_in::told(console, request, next, "", status(&failure), Some(error));
        }
    };
    let pending = Pending { state: begun.state, nonce: begun.nonce, verifier: begun.verifier, next: next.to_owned() };
    let mut reply = reply::redirect(&begun.url);
    reply::set_cookie_for(&mut reply, COOKIE_NAME, Some((&pending.text(), LASTS_S)));
    reply
}

/// Answers `GET /sign-in/callback`: begins a session for the person whom the provider names.
pub(crate) async fn finish(console: &Arc<Console>, request: &Request) -> (Reply, Caller) {
    let (mut reply, caller) = finished(console, request).await;
    // A request is answered once.
    reply::set_cookie_for(&mut reply, COOKIE_NAME, None);
    (reply, caller)
}

async fn finished(console: &Arc<Console>, request: &Request) -> (Reply, Caller) {
    let told = |next: &str, status, error: &str, caller| {
        (sign_in::told(console, request, next, "", status, Some(error.to_owned())), caller)
    };
    let state = request.query("state").unwrap_or_default();
    let Some(pending) = Pending::of(request).filter(|pending| pending.is_answered_by(&state)) else {
        let error = "The sign-in took longer than ten minutes, or was begun in another browser. Try again.";
        // It costs nothing, and other sites can have a browser call it: no failure of this address.
        return told("/", StatusCode::BAD_REQUEST, error, Caller::Unknown);
    };
    let next = local_path(Some(&pending.next));
    let Some(code) = request.query("code").map(Zeroizing::new) else {
        let reason: String = request.query("error").unwrap_or_default().chars().take(64).collect();
        let error = format!("The provider did not sign you in ({}). Try again.", escaped(&reason));
        return told(next, StatusCode::FORBIDDEN, &error, Caller::Unknown);
    };
    match console.host.finish_sign_in(&code, &pending.nonce, &pending.verifier).await {
        Ok(Welcome::Session(secret)) => {
            // The session that this browser had before would otherwise live on unseen.
            if let Some(earlier) = session_secret(&request.headers)
                && let Err(failure) = console.host.end_session(&earlier, Ended::This).await
            {
                return told(next, status(&failure), &escaped(&failure.problem.detail), Caller::Unknown);
            }
            let mut reply = reply::redirect(next);
            reply::set_cookie(&mut reply, Some(&secret));
            (reply, Caller::Known)
        }
        Ok(Welcome::NoRole { name }) => {
            let provider = console.host.provider_name().map(escaped).unwrap_or_default();
            let shown = Shown::no_role(&escaped(&name), &provider);
            (shown.reply(&Frame::signed_out(console.host.now()), false), Caller::Unknown)
        }
        Err(failure) => {
            let caller = if failure.kind == Kind::Unauthorized { Caller::Refused } else { Caller::Unknown };
            told(next, status(&failure), &escaped(&failure.problem.detail), caller)
        }
    }
}
