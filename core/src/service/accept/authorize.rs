//! Authorization: the only place that makes a proof of it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    action::Action,
    app::{App, AppId, AppUid},
    deploy::{Actor, Trigger},
    lock::LockRule,
    ports::{AppRef, WebhookSecret},
    request::{Cause, Refusal},
    service::{Deployer, Outcome, journal::Snapshot},
    token::{Credentials, Token},
    trace::TraceParent,
};

/// The proof that a caller may read one app, and do some actions on it.
///
/// [`Deployer::authorize`] makes one for the holder of the webhook's token. For every other caller, the program that
/// judged it makes one: [`Deployer::allow`], or [`Authorized::allow`] for an app that was read already.
#[derive(Clone, Debug)]
pub struct Authorized {
    pub(crate) id: AppId,
    pub(crate) uid: AppUid,
    pub(crate) cause: Cause,
    actions: Arc<[Action]>,
    pub(crate) locks: LockRule,
    /// The caller's place in a trace, which the deploys that it asks for are a part of.
    pub(crate) trace: Option<TraceParent>,
}

impl Authorized {
    /// Returns the proof that the actor may read the app, and do these actions on it: the caller has judged that. Deploys have the
    /// trigger of the cause.
    pub fn allow(app: &App, cause: impl Into<Cause>, actions: &[Action]) -> Self {
        Self::new(app.id.clone(), app.uid, cause.into(), actions)
    }

    fn new(id: AppId, uid: AppUid, cause: Cause, actions: &[Action]) -> Self {
        Self { id, uid, cause, actions: actions.into(), locks: LockRule::Respected, trace: None }
    }

    /// The app that the proof is for.
    pub fn app(&self) -> &AppId {
        &self.id
    }

    /// Returns the proof for a call that is part of this trace.
    #[must_use]
    pub fn traced(self, trace: Option<TraceParent>) -> Self {
        Self { trace, ..self }
    }

    /// Returns the proof for deploys in spite of the app's locks.
    ///
    /// # Errors
    /// [`Refusal::NotAllowed`] unless it is of [`Action::BreakGlass`].
    pub fn in_spite_of_locks(self) -> Outcome<Self> {
        self.check(Action::BreakGlass)?;
        Ok(Self { locks: LockRule::Overridden, ..self })
    }

    /// The registration that the proof is for.
    pub fn uid(&self) -> AppUid {
        self.uid
    }

    /// The actor that the history names.
    pub fn actor(&self) -> &Actor {
        &self.cause.actor
    }

    /// Returns whether the proof is of this action. Every proof is of [`Action::Read`].
    pub fn allows(&self, action: Action) -> bool {
        action == Action::Read || self.actions.contains(&action)
    }

    /// Returns the part of the proof that is of reading alone.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self { actions: Arc::default(), ..self.clone() }
    }

    /// Returns `Ok` if the proof is of this action.
    pub(crate) fn check(&self, action: Action) -> Outcome<()> {
        if self.allows(action) { Ok(()) } else { Err(Refusal::NotAllowed(action)) }
    }

    /// Returns the cause of a deploy with this trigger.
    pub(crate) fn cause_of(&self, trigger: Trigger) -> Cause {
        Cause { trigger, actor: self.cause.actor.clone() }
    }
}

/// The secret that is compared if there is none, so that the work is the same.
pub(crate) const NO_SECRET: [u8; Token::RANDOM_BYTES] = [0; Token::RANDOM_BYTES];

impl Deployer {
    /// Checks a webhook call's credentials over its raw body, by one read of the store, or none. The proof is of
    /// [`Action::Read`] and [`Action::Deploy`].
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`], the same for every fault of the credentials; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn authorize(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> Outcome<Authorized> {
        let dummy = Token::from_random(&NO_SECRET);
        let now = self.journal.now();
        // Until the store's clock was read, it is unknown whether the previous token's time is over.
        let is_undecided = AtomicBool::new(false);
        let fits = |secret: Option<&WebhookSecret>| {
            self.recognized.read(app, secret);
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
        let is_recognized = || self.recognized.fits(app, credentials, body, now);
        let secret = self.find_fitting(app, &is_recognized, &fits).await.map_err(Refusal::of_store)?;
        if secret.is_none() && is_undecided.into_inner() {
            return Err(Refusal::StoreUnavailable { maybe_recorded: false });
        }
        let uid = secret.ok_or(Refusal::Unauthorized)?.app;
        let cause = Cause { trigger: Trigger::Webhook, actor: Actor::Ci };
        Ok(Authorized::new(app.clone(), uid, cause, &[Action::Deploy]))
    }

    /// Returns whether these credentials fit the app's token as this process last read it: then they are worth a read of
    /// the store. They prove nothing: see [`Deployer::authorize`].
    pub fn recognizes(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> bool {
        self.recognized.fits(app, credentials, body, self.journal.now())
    }

    /// Returns the proof that an actor may read an app, and do these actions on it, as the caller of this function has judged.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn allow(&self, actor: Actor, app: &AppId, actions: &[Action]) -> Outcome<Authorized> {
        Ok(Authorized::allow(&self.find(app).await?.state.app, actor, actions))
    }

    /// Returns the app of this name, as it is stored.
    pub(in crate::service) async fn find(&self, id: &AppId) -> Outcome<Snapshot> {
        let app = self.journal.load(AppRef::Name(id)).await.map_err(Refusal::of_store)?;
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
