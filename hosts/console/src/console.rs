//! One call, from its headers to its answer: origin, session, permission, page.

use std::sync::Arc;

use http::StatusCode;
use rollhook_api::Kind;
use rollhook_core::{
    app::AppId,
    request::{IdempotencyKey, KeyHeader},
};
use sha2::{Digest, Sha256};

use crate::{
    assets,
    host::{Access, CallerOperations, Failure, Host, Principal},
    pages::{self, errors, sign_in},
    reply::{self, Answer, Caller, Reply},
    request::{Request, session_id},
    route::{Page, Route},
    sessions::{SessionHash, Sessions},
    view::Frame,
};

/// The console of a host.
pub struct Console {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) sessions: Arc<dyn Sessions>,
}

/// A call of a person who is signed in.
pub(crate) struct Call<'a> {
    pub(crate) console: &'a Arc<Console>,
    pub(crate) request: &'a Request,
    pub(crate) session: SessionHash,
    pub(crate) principal: Principal,
    pub(crate) access: Access,
}

impl Call<'_> {
    /// Returns the operations of the caller.
    pub(crate) fn operations(&self) -> CallerOperations {
        self.console.host.operations(&self.access, None)
    }

    /// Returns the operations under the key of the submitted form, so that a form that is sent twice acts once.
    ///
    /// # Errors
    /// 422 if the key is malformed.
    pub(crate) fn keyed(&self, operation: &str) -> Result<CallerOperations, Failure> {
        let Some(text) = self.request.field("key") else { return Ok(self.operations()) };
        let request = Sha256::new()
            .chain_update(operation)
            .chain_update([0])
            .chain_update(&self.request.path)
            .chain_update([0])
            .chain_update(&self.request.body)
            .finalize();
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, &text, request.into())
            .map_err(|error| Failure::new(Kind::InvalidKey, format!("{error}.")))?;
        Ok(self.console.host.operations(&self.access, Some(key)))
    }

    /// Returns the frame of the caller's pages.
    pub(crate) fn frame(&self) -> Frame {
        Frame {
            paths: assets::paths(),
            name: Some(rollhook_core::text::escaped(&self.principal.name)),
            may: self.access.permissions,
            now: self.console.host.now(),
        }
    }

    /// Returns a new idempotency key for a form.
    pub(crate) fn new_key(&self) -> String {
        self.console.host.random().to_string()
    }
}

impl Console {
    /// Returns the console of a host.
    pub fn new(host: Arc<dyn Host>, sessions: Arc<dyn Sessions>) -> Self {
        Self { host, sessions }
    }

    /// Returns whether a call brings credentials that can be wrong.
    pub fn brings_credentials(&self, request: &Request) -> bool {
        match Route::of(&request.path) {
            Route::Asset => false,
            Route::SignIn => !request.reads(),
            Route::Page(_) | Route::Unknown => session_id(&request.headers).is_some(),
        }
    }

    /// Returns whether a call is let through although others have failed to authenticate from its address too often: it has a
    /// session that this process knows, of a token that it knows.
    pub fn recognizes(&self, headers: &http::HeaderMap) -> bool {
        let principal = session_id(headers).and_then(|id| self.sessions.recognized(id, self.host.now()));
        principal.is_some_and(|principal| self.host.recognizes(&principal))
    }

    /// Returns the page of a failure that the host found before the call got here.
    pub fn failure(&self, request: &Request, failure: &Failure) -> Answer {
        let reply = errors::failure(&Frame::signed_out(self.host.now()), request.is_partial(), failure);
        Answer { response: reply::compressed(reply, &request.headers), caller: Caller::Unknown }
    }

    /// Answers a call.
    pub async fn answer(self: &Arc<Self>, request: &Request) -> Answer {
        let (reply, caller) = Box::pin(self.respond(request)).await;
        Answer { response: reply::compressed(reply, &request.headers), caller }
    }

    async fn respond(self: &Arc<Self>, request: &Request) -> (Reply, Caller) {
        let route = Route::of(&request.path);
        let frame = || Frame::signed_out(self.host.now());
        if route == Route::Asset {
            let file = assets::find(&request.path, &request.headers).filter(|_| request.reads());
            return (file.unwrap_or_else(|| errors::not_found(&frame(), false)), Caller::Unknown);
        }
        if !request.reads() && !request.is_same_origin() {
            let failure = errors::Shown::foreign_origin();
            return (failure.reply(&frame(), request.is_partial()), Caller::Unknown);
        }
        if !route.methods().contains(&request.method.as_str()) {
            return (errors::Shown::method(&route).reply(&frame(), request.is_partial()), Caller::Unknown);
        }
        if route == Route::SignIn {
            return match request.reads() {
                true => (sign_in::page(self, request).await, Caller::Unknown),
                false => sign_in::submit(self, request).await,
            };
        }
        let (principal, session, access) = match self.signed_in(request).await {
            Ok(Some(signed_in)) => signed_in,
            Ok(None) => return (sign_in::wanted(request), Caller::Unknown),
            Err(failure) if failure.kind == Kind::Unauthorized => {
                let mut reply = sign_in::wanted(request);
                reply::set_cookie(&mut reply, None);
                return (reply, Caller::Refused);
            }
            Err(failure) => return (errors::failure(&frame(), request.is_partial(), &failure), Caller::Unknown),
        };
        let call = Call { console: self, request, session, principal, access };
        let Route::Page(page) = route else {
            return (errors::not_found(&call.frame(), request.is_partial()), Caller::Known);
        };
        let answered = match permitted(&call, &page) {
            true => pages::answer(&call, &page).await,
            false => return (errors::Shown::forbidden().reply(&call.frame(), request.is_partial()), Caller::Known),
        };
        let reply = answered.unwrap_or_else(|failure| errors::failure(&call.frame(), request.is_partial(), &failure));
        (reply, Caller::Known)
    }

    /// Returns the person of the call's session, confirmed by what the store says of the token; `None` if the call has no
    /// session.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] if the session is over, or its token was replaced, which ends it.
    async fn signed_in(&self, request: &Request) -> Result<Option<(Principal, SessionHash, Access)>, Failure> {
        let Some(id) = session_id(&request.headers) else { return Ok(None) };
        let route = Route::of(&request.path);
        let (principal, access) = self.confirm(id, route.app()).await?;
        // Reads that a page makes by itself do not prolong the session: an open tab would keep it for ever.
        if !route.is_automatic() {
            self.sessions.touch(id, self.host.now()).await?;
        }
        Ok(Some((principal, id, access)))
    }

    /// Returns a session's person, and what the store lets it do now, to this app.
    ///
    /// # Errors
    /// As [`Console::signed_in`].
    pub(crate) async fn confirm(&self, id: SessionHash, app: Option<&AppId>) -> Result<(Principal, Access), Failure> {
        let over = || Failure::new(Kind::Unauthorized, "The session is over. Sign in again.");
        let session = self.sessions.find(id, self.host.now()).await?.ok_or_else(over)?;
        match self.host.confirm(&session.principal, app).await {
            Ok(access) => Ok((session.principal, access)),
            Err(failure) => {
                if failure.kind == Kind::Unauthorized {
                    self.sessions.end(id).await?;
                }
                Err(failure)
            }
        }
    }
}

/// Returns whether the caller's permissions cover a page. The core checks again what the page then does.
fn permitted(call: &Call<'_>, page: &Page) -> bool {
    use crate::route::Need;
    let may = call.access.permissions;
    match page.need(call.request.reads()) {
        Need::Nothing => true,
        Need::Deploy => may.may_deploy,
        Need::Webhook => may.may_manage_webhooks,
        Need::Administer => may.may_administer,
    }
}

/// Returns the status of a problem.
pub(crate) fn status(failure: &Failure) -> StatusCode {
    StatusCode::from_u16(failure.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
