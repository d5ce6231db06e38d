//! One call, from its headers to its answer: origin, session, permission, page.

use std::sync::Arc;

use http::StatusCode;
use rollhook_api::{App, Kind};
use rollhook_core::request::{IdempotencyKey, KeyHeader};
use rollhook_management::access::{Action, Realm, SessionSecret};
use sha2::{Digest, Sha256};

use crate::{
    assets,
    host::{Access, CallerOperations, Failure, Host},
    pages::{self, errors, provider, sign_in},
    reply::{self, Answer, Caller, Reply},
    request::{Request, session_secret},
    route::{Page, Route},
    view::Frame,
};

/// The console of a host.
pub struct Console {
    pub(crate) host: Host,
}

/// A call of a person who is signed in.
pub(crate) struct Call<'a> {
    pub(crate) console: &'a Arc<Console>,
    pub(crate) request: &'a Request,
    pub(crate) session: SessionSecret,
    pub(crate) access: Access,
}

impl Call<'_> {
    /// Returns the operations of the caller.
    pub(crate) fn operations(&self) -> CallerOperations {
        self.console.host.operations(&self.access.principal, None)
    }

    /// Returns whether the caller may promote to the environment of this app.
    pub(crate) fn may_promote_to(&self, app: &App) -> bool {
        self.may(Action::Promote, app)
    }

    /// Returns whether the caller may list the variables of this app.
    pub(crate) fn may_read_configuration(&self, app: &App) -> bool {
        self.may(Action::ReadConfiguration, app)
    }

    /// Returns whether the caller may do this in the environment of an app: nothing is called or written down for it.
    fn may(&self, action: Action, app: &App) -> bool {
        let realm = Realm::of(app.project.parse().ok(), app.environment.parse().ok());
        realm.is_ok_and(|realm| self.access.principal.may(action, &realm))
    }

    /// Returns the operations under the key of the submitted form, so that a form that is sent twice acts once; each
    /// operation of a form has a key of its own.
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
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, &format!("{operation}-{text}"), request.into())
            .map_err(|error| Failure::new(Kind::InvalidKey, format!("{error}.")))?;
        Ok(self.console.host.operations(&self.access.principal, Some(key)))
    }

    /// Returns the frame of the caller's pages.
    pub(crate) fn frame(&self) -> Frame {
        Frame {
            paths: assets::paths(),
            name: Some(rollhook_core::text::escaped(&self.access.principal.actor().to_string())),
            may: self.access.permissions,
            now: self.console.host.now(),
            targets: self.console.host.targets(),
            notice: self.console.host.notice(&self.access.principal).as_deref().map(rollhook_core::text::escaped),
        }
    }

    /// Returns a new idempotency key for a form.
    pub(crate) fn new_key(&self) -> String {
        self.console.host.random().to_string()
    }
}

impl Console {
    /// Returns the console of a host.
    pub fn new(host: Host) -> Self {
        Self { host }
    }

    /// Returns whether a call brings credentials that can be wrong.
    pub fn brings_credentials(&self, request: &Request) -> bool {
        match Route::of(&request.path) {
            Route::Asset | Route::ProviderStart => false,
            // A code costs a call to the provider.
            Route::ProviderCallback => true,
            Route::SignIn => !request.reads(),
            Route::Page(_) | Route::Unknown => session_secret(&request.headers).is_some(),
        }
    }

    /// Returns whether a call is let through although others have failed to authenticate from its address too often: it
    /// has a session that this process knows.
    pub fn recognizes(&self, headers: &http::HeaderMap) -> bool {
        session_secret(headers).is_some_and(|secret| self.host.recognizes(&secret))
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
        if let Err(failure) = request.check_form() {
            return (errors::failure(&frame(), request.is_partial(), &failure), Caller::Unknown);
        }
        match route {
            Route::ProviderStart => return (provider::start(self, request).await, Caller::Unknown),
            Route::ProviderCallback => return provider::finish(self, request).await,
            Route::SignIn | Route::Asset | Route::Page(_) | Route::Unknown => {}
        }
        if route == Route::SignIn {
            return match request.reads() {
                true => (sign_in::page(self, request).await, Caller::Unknown),
                false => sign_in::submit(self, request).await,
            };
        }
        let (session, access) = match self.signed_in(request).await {
            Ok(Some(signed_in)) => signed_in,
            Ok(None) => return (sign_in::wanted(request), Caller::Unknown),
            Err(failure) if failure.kind == Kind::Unauthorized => {
                // The cookie stays: another replica may know a session that was just begun a moment before this one
                // does.
                return (sign_in::wanted(request), Caller::Refused);
            }
            Err(failure) => return (errors::failure(&frame(), request.is_partial(), &failure), Caller::Unknown),
        };
        let mut call = Call { console: self, request, session, access };
        let Route::Page(page) = route else {
            return (errors::not_found(&call.frame(), request.is_partial()), Caller::Known);
        };
        if let Some(id) = page.app() {
            match self.host.permissions(&call.access.principal, id).await {
                Ok(permissions) => call.access.permissions = call.access.permissions.on_app(permissions),
                Err(failure) => {
                    return (errors::failure(&call.frame(), request.is_partial(), &failure), Caller::Known);
                }
            }
        }
        // A page that only asks is refused here; what is refused when it is done, the core refuses, and the audit has
        // it.
        if request.reads() && !permitted(&call, &page) {
            let shown = errors::Shown::forbidden(call.access.permissions, page.need(true));
            return (shown.reply(&call.frame(), request.is_partial()), Caller::Known);
        }
        let reply = Box::pin(pages::answer(&call, &page)).await;
        let reply = reply.unwrap_or_else(|failure| errors::failure(&call.frame(), request.is_partial(), &failure));
        (reply, Caller::Known)
    }

    /// Returns the call's session and its person, confirmed by what the store says of session and token; `None` if the
    /// call has no session.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] if the session is over, or its token has ended.
    async fn signed_in(&self, request: &Request) -> Result<Option<(SessionSecret, Access)>, Failure> {
        let Some(secret) = session_secret(&request.headers) else { return Ok(None) };
        let access = self.host.session(&secret).await?;
        // A page's own reads are no use of the session: an open tab would keep it for ever.
        if !Route::of(&request.path).is_automatic() {
            self.host.keep_session(&secret).await;
        }
        Ok(Some((secret, access)))
    }
}

/// Returns whether the caller's permissions cover a page. The core checks again what the page then does.
fn permitted(call: &Call<'_>, page: &Page) -> bool {
    use crate::route::Need;
    let may = call.access.permissions;
    match page.need(call.request.reads()) {
        Need::Nothing => true,
        Need::Deploy => may.may_deploy,
        Need::Token => may.may_read_tokens,
        Need::Administer => may.may_administer,
        Need::Access => may.may_see_access,
    }
}

/// Returns the status of a problem.
pub(crate) fn status(failure: &Failure) -> StatusCode {
    StatusCode::from_u16(failure.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
