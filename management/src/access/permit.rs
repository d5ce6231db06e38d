//! Permissions: the judgement of a principal, and the proof for the deployer that follows from it.

use std::sync::Arc;

use rollhook_core::{
    action::Action as AppAction,
    app::{App, AppId},
    ledger::AppState,
    lock::LockReason,
    request::Refusal as CoreRefusal,
    service::Authorized,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Principal, Realm, Role, Subject},
};

/// The thing that a permission is asked for: a realm, or one app in it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) realm: &'a Realm,
    pub(crate) app: Option<&'a AppId>,
}

impl<'a> Place<'a> {
    pub(crate) const fn app(app: &'a AppId, realm: &'a Realm) -> Self {
        Self { realm, app: Some(app) }
    }

    pub(crate) const fn realm(realm: &'a Realm) -> Self {
        Self { realm, app: None }
    }

    pub(crate) const fn everything() -> Self {
        Self::realm(&Realm::Everything)
    }
}

/// Whether a caller may do something, and by whose word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Yes,
    /// The caller's role, if it has one there, does not allow it.
    NotByRole(Option<Role>),
    /// The authority that knows the caller does not allow it.
    NotByReview,
}

impl Granted {
    pub(crate) const fn by_role(is_allowed: bool, role: Option<Role>) -> Self {
        if is_allowed { Self::Yes } else { Self::NotByRole(role) }
    }

    pub(crate) const fn by_review(is_allowed: bool) -> Self {
        if is_allowed { Self::Yes } else { Self::NotByReview }
    }

    pub(crate) fn is_yes(self) -> bool {
        self == Self::Yes
    }

    /// Returns `Ok` if the caller may do the action.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] or [`Refusal::NotGranted`].
    pub(crate) const fn of(self, action: Action) -> Outcome<()> {
        match self {
            Self::Yes => Ok(()),
            Self::NotByRole(role) => Err(Refusal::Forbidden(action, role)),
            Self::NotByReview => Err(Refusal::NotGranted(action)),
        }
    }
}

impl Management {
    /// Returns a principal's proof that it may read an app. An app on which it has no role is unknown to it.
    ///
    /// # Errors
    /// [`AppNotFound`](rollhook_core::request::Refusal::AppNotFound); [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away,
    /// [`Refusal::ReviewUnavailable`] while the authority is that knows the caller.
    pub async fn open(&self, principal: &Principal, id: &AppId) -> Outcome<Authorized> {
        Ok(Authorized::allow(&*self.readable_app(principal, id).await?, principal.cause(), &[]))
    }

    /// Returns a principal's proof that it may read an app and do this to it. The audit has the action before it is done.
    ///
    /// Calls that touch more than the app are the management plane's own, and take no proof: [`Management::delete`],
    /// [`Management::disable_webhook`] (trusts end too), [`Management::promote`] (the source must be readable),
    /// [`Management::lock`] and [`Management::break_glass`].
    ///
    /// # Errors
    /// As [`Management::open`]; [`Refusal::Forbidden`], [`Refusal::NotGranted`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) if an allowed action cannot be written down.
    pub async fn allow(&self, principal: &Principal, id: &AppId, action: AppAction) -> Outcome<Authorized> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, action.into(), None).await?;
        Ok(Authorized::allow(&app, principal.cause(), &[action]))
    }

    /// Returns a principal's proof that it may change an app. The audit has what is changed, such as `set policy.settle`.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn allow_change(&self, principal: &Principal, id: &AppId, what: &str) -> Outcome<Authorized> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::Change, Some(what)).await?;
        Ok(Authorized::allow(&app, principal.cause(), &[AppAction::Change]))
    }

    /// Returns the proof for deploys to an app in spite of its locks. The audit has the reason.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn break_glass(&self, principal: &Principal, id: &AppId, reason: &LockReason) -> Outcome<Authorized> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::BreakGlass, Some(reason.as_str())).await?;
        // Of a cluster's callers, some may pass locks and not deploy.
        let realm = Realm::of_app(&app);
        let may_deploy = self.may(principal, Action::Deploy, Place::app(id, &realm)).await?.is_yes();
        let actions: &[AppAction] =
            if may_deploy { &[AppAction::Deploy, AppAction::BreakGlass] } else { &[AppAction::BreakGlass] };
        Ok(Authorized::allow(&app, principal.cause(), actions).in_spite_of_locks()?)
    }

    /// Returns the principal's role on an app: what it may be offered there. Of a caller whom an authority knows, reading
    /// alone is known.
    ///
    /// # Errors
    /// As [`Management::open`].
    pub async fn role_on(&self, principal: &Principal, id: &AppId) -> Outcome<Role> {
        let app = self.readable_app(principal, id).await?;
        Ok(principal.role_on(&Realm::of_app(&app)).unwrap_or(Role::Viewer))
    }

    /// Returns whether the principal may change the app.
    pub(crate) async fn may_change(&self, principal: &Principal, app: &App) -> Outcome<bool> {
        let realm = Realm::of_app(app);
        Ok(self.may(principal, Action::Change, Place::app(&app.id, &realm)).await?.is_yes())
    }

    /// Returns an app that the principal may read.
    pub(crate) async fn readable_app(&self, principal: &Principal, id: &AppId) -> Outcome<Arc<App>> {
        Ok(self.readable_state(principal, id).await?.app)
    }

    /// Returns the state of an app that the principal may read.
    pub(crate) async fn readable_state(&self, principal: &Principal, id: &AppId) -> Outcome<AppState> {
        let unknown = || Refusal::Core(CoreRefusal::AppNotFound(id.clone()));
        // Asked by the name alone, before the store: an app that the caller may not read costs what an unknown one costs.
        if let Some(caller) = principal.caller()
            && !self.review_of_app(caller, Action::Read, id).await?
        {
            return Err(unknown());
        }
        let state = self.deployer.find_app(id).await?.ok_or_else(unknown)?;
        self.known_namespaces.read(&state.app);
        let may_read = principal.is_reviewed() || principal.role_on(&Realm::of_app(&state.app)).is_some();
        if may_read { Ok(state) } else { Err(unknown()) }
    }

    /// Returns `Ok` if the principal may do this to the app. The audit has it, with the reason, before it is done.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub(crate) async fn permit(
        &self,
        principal: &Principal,
        app: &App,
        action: Action,
        reason: Option<&str>,
    ) -> Outcome<()> {
        self.permit_all(principal, app, &[(action, reason)], || Ok(())).await
    }

    /// Returns `Ok` if the principal may do all of this to the app, and it can be done now: that is asked before the audit has
    /// it, so that calls beyond a rate leave nothing there. A call that is not allowed counts towards no rate.
    ///
    /// # Errors
    /// As [`Management::allow`]; those of `can_be_done`.
    pub(crate) async fn permit_all(
        &self,
        principal: &Principal,
        app: &App,
        actions: &[(Action, Option<&str>)],
        can_be_done: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<()> {
        let realm = Realm::of_app(app);
        let subject = |reason| Subject::app(&app.id, realm.clone()).because(reason);
        for (action, reason) in actions {
            let granted = self.may(principal, *action, Place::app(&app.id, &realm)).await?;
            if !granted.is_yes() {
                return self.audit(principal, *action, subject(*reason), granted).await;
            }
        }
        can_be_done()?;
        for (action, reason) in actions {
            self.audit(principal, *action, subject(*reason), Granted::Yes).await?;
        }
        Ok(())
    }
}
