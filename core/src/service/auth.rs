//! Authentication and permissions: the only place that makes a proof of them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Deployer, Outcome, audit::Subject, identities::Presented, journal::Snapshot, refused};
use crate::{
    access::{Action, Grant, PrincipalKey, Realm, Role},
    app::{AppId, AppUid},
    deploy::{Actor, Trigger},
    lock::LockRule,
    ports::{AppRef, BearerToken, RecordKey, ReviewedCaller, WebhookSecret},
    request::{Cause, Refusal},
    token::{Credentials, Token},
    trace::TraceParent,
};

/// The proof that a caller may act on one app, and how far; only [`Deployer::authorize`] and [`Deployer::open`] make
/// one.
#[derive(Clone, Debug)]
pub struct Authorized {
    pub(super) id: AppId,
    pub(super) uid: AppUid,
    pub(super) cause: Cause,
    pub(super) reach: Reach,
    /// The id_token that proves the caller: bound to one call before the call has an effect.
    pub(super) presented: Option<Presented>,
    pub(super) locks: LockRule,
    /// The caller's place in a trace, which the deploys that it asks for are a part of.
    pub(super) trace: Option<TraceParent>,
}

/// The reach of an [`Authorized`]: the actions on its app that it proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The holder of the webhook's token: reads the app's deploys, and deploys.
    Webhook,
    /// A principal with this role on the app, which is in this realm.
    Role(Role, Realm),
    /// A caller who may read the app, which is in this realm: an authority outside of the service is asked for each
    /// further action.
    Reviewed(Arc<ReviewedCaller>, Realm),
}

/// The thing that a permission is asked for: a realm, or one app in it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) realm: &'a Realm,
    pub(super) app: Option<&'a AppId>,
}

impl<'a> Place<'a> {
    pub(super) const fn app(app: &'a AppId, realm: &'a Realm) -> Self {
        Self { realm, app: Some(app) }
    }

    pub(super) const fn realm(realm: &'a Realm) -> Self {
        Self { realm, app: None }
    }

    pub(super) const fn everything() -> Self {
        Self::realm(&Realm::Everything)
    }
}

/// Whether a caller may do something, and by whose word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    Yes,
    /// The caller's role, if it has one there, does not allow it.
    NotByRole(Option<Role>),
    /// The authority that knows the caller does not allow it.
    NotByReview,
}

impl Granted {
    pub(super) const fn by_role(is_allowed: bool, role: Option<Role>) -> Self {
        if is_allowed { Self::Yes } else { Self::NotByRole(role) }
    }

    pub(super) const fn by_review(is_allowed: bool) -> Self {
        if is_allowed { Self::Yes } else { Self::NotByReview }
    }

    pub(super) fn is_yes(self) -> bool {
        self == Self::Yes
    }

    /// Returns `Ok` if the caller may do the action.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] or [`Refusal::NotGranted`].
    pub(super) const fn of(self, action: Action) -> Outcome<()> {
        match self {
            Self::Yes => Ok(()),
            Self::NotByRole(role) => Err(Refusal::Forbidden(action, role)),
            Self::NotByReview => Err(Refusal::NotGranted(action)),
        }
    }
}

impl Authorized {
    /// The app that the proof is for.
    pub fn app(&self) -> &AppId {
        &self.id
    }

    /// Returns the proof for a call that is part of this trace.
    #[must_use]
    pub fn traced(self, trace: Option<TraceParent>) -> Self {
        Self { trace, ..self }
    }

    /// The registration that the proof is for.
    pub fn uid(&self) -> AppUid {
        self.uid
    }

    /// Returns whether the proof reaches as far as this action. A proof by an authority's word is of reading alone: for
    /// each further action the authority is asked when it is to be done.
    pub fn may(&self, action: Action) -> bool {
        match &self.reach {
            Reach::Webhook => matches!(action, Action::Read | Action::Deploy),
            Reach::Role(role, _) => role.may(action),
            Reach::Reviewed(..) => action == Action::Read,
        }
    }

    /// Returns the realm of the app, as far as the proof tells it.
    pub(super) fn realm(&self) -> Realm {
        match &self.reach {
            Reach::Webhook => Realm::Everything,
            Reach::Role(_, realm) | Reach::Reviewed(_, realm) => realm.clone(),
        }
    }
}

/// A caller of the management API who was authenticated, with its grants.
#[derive(Clone, Debug)]
pub struct Principal {
    actor: Actor,
    key: PrincipalKey,
    grants: Arc<[Grant]>,
    /// The caller in place of grants, where an authority outside of the service decides.
    caller: Option<Arc<ReviewedCaller>>,
    proof: Option<Proof>,
}

/// The record that proved a principal.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// An API token's, and the name that the caller gave itself.
    Token(RecordKey, Option<String>),
    /// The session of a person.
    Session(RecordKey),
    /// A token that an authority outside of the service is asked about.
    Reviewed(BearerToken),
}

impl Principal {
    /// Returns a principal that may do everything: for a platform that decides by itself, or a program that has the
    /// store anyway.
    pub fn trusted(name: &str) -> Self {
        Self::new(name, [Grant::ALL])
    }

    /// Returns a principal with these grants, whom the caller has authenticated.
    pub fn new(name: &str, grants: impl IntoIterator<Item = Grant>) -> Self {
        // The history shows the service itself as `auto`.
        let name = if name == Actor::Service.to_string() { "a person named auto" } else { name };
        let key = PrincipalKey::of("name", &[name]);
        Self { actor: Actor::person(name), key, grants: grants.into_iter().collect(), caller: None, proof: None }
    }

    /// Returns the principal under a key of its own: for callers whose names two of them may have.
    #[must_use]
    pub fn known_as(self, key: PrincipalKey) -> Self {
        Self { key, ..self }
    }

    /// Returns the principal of a caller whose rights an authority outside of the service is asked for.
    pub(super) fn reviewed(actor: Actor, caller: ReviewedCaller, token: BearerToken) -> Self {
        // An account of the same name that is made later is another one.
        let key = PrincipalKey::of("reviewed", &[&caller.name, caller.uid.as_deref().unwrap_or_default()]);
        let (caller, proof) = (Some(Arc::new(caller)), Some(Proof::Reviewed(token)));
        Self { actor, key, grants: Arc::default(), caller, proof }
    }

    pub(super) const fn caller(&self) -> Option<&Arc<ReviewedCaller>> {
        self.caller.as_ref()
    }

    /// Returns whether an authority outside of the service is asked for the principal's rights, call by call: it has no
    /// grants then.
    pub const fn is_reviewed(&self) -> bool {
        self.caller.is_some()
    }

    /// Returns the principal with the record that proves it.
    pub(super) fn proven_by(self, proof: Proof) -> Self {
        Self { proof: Some(proof), ..self }
    }

    pub(super) const fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// The actor that the history names.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The key that no other principal has.
    pub const fn key(&self) -> &PrincipalKey {
        &self.key
    }

    /// The roles, and what they are for.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns whether a grant allows the action on all of the realm; never for a principal that has none, because an
    /// authority outside of the service is asked for its rights.
    pub fn may(&self, action: Action, realm: &Realm) -> bool {
        self.grants.iter().any(|grant| grant.allows(action, realm))
    }

    /// Returns the greatest role on all of the realm.
    pub fn role_on(&self, realm: &Realm) -> Option<Role> {
        self.grants.iter().filter(|grant| grant.realm.contains(realm)).map(|grant| grant.role).max()
    }

    pub(super) fn cause(&self, trigger: Trigger) -> Cause {
        Cause { trigger, actor: self.actor.clone() }
    }
}

/// The secret that is compared if there is none, so that the work is the same.
pub(super) const NO_SECRET: [u8; Token::RANDOM_BYTES] = [0; Token::RANDOM_BYTES];

impl Deployer {
    /// Checks a webhook call's credentials over its raw body, by at most one read of the store; an id_token by one more,
    /// and by another once its signature was verified.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`], the same for every fault of the credentials; [`Refusal::StoreUnavailable`] while the
    /// store is away; [`Refusal::IssuerUnavailable`] while an id_token that fits cannot be verified.
    pub async fn authorize(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> Outcome<Authorized> {
        let Some(identity) = credentials.identity() else { return self.by_secrets(app, credentials, body).await };
        let token = identity.as_ref().map_err(|_| Refusal::Unauthorized)?;
        let by_secrets = match credentials.have_secrets() {
            true => Some(self.by_secrets(app, credentials, body).await?),
            false => None,
        };
        let by_identity = self.by_identity(app, token, body).await?;
        let is_other = |proof: &Authorized| proof.uid != by_identity.uid;
        if by_secrets.as_ref().is_some_and(is_other) { Err(Refusal::Unauthorized) } else { Ok(by_identity) }
    }

    async fn by_secrets(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> Outcome<Authorized> {
        let dummy = Token::from_random(&NO_SECRET);
        let now = self.journal.now();
        // Until the store's clock was read, it is unknown whether the previous token's time is over.
        let is_undecided = AtomicBool::new(false);
        let fits = |secret: Option<&WebhookSecret>| {
            self.recognition.read(app, secret);
            // Two tokens are compared, however many there are, so that the work is the same.
            let fits = |token: Option<&Token>| {
                token.or(dummy.as_ref()).is_some_and(|token| credentials.fit(token, body)) & token.is_some()
            };
            let is_current = fits(secret.map(|secret| &secret.token));
            let previous = secret.and_then(|secret| secret.previous.as_ref());
            let is_previous = fits(previous.map(|previous| &previous.token));
            is_undecided.store(is_previous && now.is_none(), Ordering::Relaxed);
            let lasts = secret.zip(now).is_some_and(|(secret, now)| secret.previous_at(now).is_some());
            is_current | (is_previous & lasts)
        };
        let secret = self.ports.tokens.find_fitting(app, &fits).await.map_err(refused)?;
        if secret.is_none() && is_undecided.into_inner() {
            return Err(Refusal::StoreUnavailable { maybe_recorded: false });
        }
        let uid = secret.ok_or(Refusal::Unauthorized)?.app;
        let cause = Cause { trigger: Trigger::Webhook, actor: Actor::Ci };
        let (reach, locks) = (Reach::Webhook, LockRule::Respected);
        Ok(Authorized { id: app.clone(), uid, cause, reach, presented: None, locks, trace: None })
    }

    /// Returns whether these credentials fit the app's token, and the pipelines that it trusts, as this process last read
    /// them: then they are worth a read of the store. They prove nothing: see [`Deployer::authorize`].
    pub fn recognizes(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> bool {
        let fit = || self.recognition.fits(app, credentials, body);
        match credentials.identity() {
            None => fit(),
            Some(Err(_)) => false,
            Some(Ok(token)) => (!credentials.have_secrets() || fit()) && self.recognizes_identity(app, token),
        }
    }

    /// Returns a principal's proof for one app. An app on which it has no role is unknown to it.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away, [`Refusal::ReviewUnavailable`]
    /// while the authority is that knows the caller.
    pub async fn open(&self, principal: &Principal, id: &AppId) -> Outcome<Authorized> {
        let unknown = || Refusal::AppNotFound(id.clone());
        // Asked by the name alone, before the store: an app that the caller may not read costs what an unknown one costs.
        if let Some(caller) = principal.caller()
            && !self.review_of_app(caller, Action::Read, id).await?
        {
            return Err(unknown());
        }
        let app = self.find(id).await?.state.app.clone();
        let realm = app.realm();
        let reach = match principal.caller() {
            None => Reach::Role(principal.role_on(&realm).ok_or_else(unknown)?, realm),
            Some(caller) => Reach::Reviewed(Arc::clone(caller), realm),
        };
        let (id, cause) = (app.id.clone(), principal.cause(Trigger::Manual));
        Ok(Authorized { id, uid: app.uid, cause, reach, presented: None, locks: LockRule::Respected, trace: None })
    }

    /// Returns a principal's proof for one app, if it may do this there. The audit has it before it is done.
    pub(super) async fn open_for(&self, action: Action, principal: &Principal, id: &AppId) -> Outcome<Authorized> {
        let access = self.open(principal, id).await?;
        self.permit(&access, action).await?;
        Ok(access)
    }

    /// Returns `Ok` if the proof reaches as far as this action. The audit has it before it is done.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], [`Refusal::NotGranted`]; [`Refusal::ReviewUnavailable`]; [`Refusal::StoreUnavailable`] if
    /// an allowed action cannot be written down.
    pub(super) async fn permit(&self, access: &Authorized, action: Action) -> Outcome<()> {
        self.permit_because(access, action, None).await
    }

    /// Returns `Ok` as [`Deployer::permit`] does; the audit has the reason too.
    pub(super) async fn permit_because(
        &self,
        access: &Authorized,
        action: Action,
        reason: Option<&str>,
    ) -> Outcome<()> {
        // The webhook's own calls are in the app's history.
        if access.reach == Reach::Webhook && access.may(action) {
            return Ok(());
        }
        let granted = self.reaches(access, action).await?;
        let subject = Subject::app(&access.id, access.realm()).because(reason);
        self.audit(&access.cause.actor, action, subject, granted).await
    }

    /// Returns whether the proof reaches as far as this action, or the authority lets it do so.
    pub(super) async fn reaches(&self, access: &Authorized, action: Action) -> Outcome<Granted> {
        match &access.reach {
            Reach::Webhook => Ok(Granted::by_role(access.may(action), None)),
            Reach::Role(role, _) => Ok(Granted::by_role(role.may(action), Some(*role))),
            Reach::Reviewed(caller, realm) => {
                Ok(Granted::by_review(self.review(caller, action, Place::app(&access.id, realm)).await?))
            }
        }
    }

    /// Returns the app of this name, as it is stored.
    pub(super) async fn find(&self, id: &AppId) -> Outcome<Snapshot> {
        let app = self.journal.load(AppRef::Name(id)).await.map_err(refused)?;
        app.ok_or_else(|| Refusal::AppNotFound(id.clone()))
    }

    /// Returns a new random token.
    pub fn new_token(&self) -> Token {
        loop {
            let mut bytes = zeroize::Zeroizing::new([0; Token::RANDOM_BYTES]);
            self.ports.rng.fill(bytes.as_mut_slice());
            if let Some(token) = Token::from_random(bytes.as_slice()) {
                return token;
            }
        }
    }
}
