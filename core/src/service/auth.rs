//! Authentication and permissions: the only place that makes a proof of them.

use subtle::ConstantTimeEq;

use super::{Deployer, Outcome, journal::Snapshot, refused};
use crate::{
    app::{AppId, AppUid},
    deploy::{Actor, Trigger},
    ports::AppRef,
    request::{Cause, Refusal},
    token::{Credentials, Token},
};

/// The proof that a caller may read and deploy one app; only [`Deployer::authorize`] and [`Deployer::open`] make one.
#[derive(Clone, Debug)]
pub struct Authorized {
    pub(super) id: AppId,
    pub(super) uid: AppUid,
    pub(super) cause: Cause,
}

impl Authorized {
    /// The app that the proof is for.
    pub fn app(&self) -> &AppId {
        &self.id
    }

    /// The registration that the proof is for.
    pub fn uid(&self) -> AppUid {
        self.uid
    }
}

/// The proof that a caller may manage every app.
#[derive(Clone, Debug)]
pub struct Operator {
    actor: Actor,
}

impl Operator {
    /// Returns the proof for a platform that has authenticated the person itself, or a program that has the store
    /// anyway.
    pub fn trusted(name: &str) -> Self {
        // The history shows the service itself as `auto`.
        let name = if name == Actor::Service.to_string() { "a person named auto" } else { name };
        Self { actor: Actor::person(name) }
    }

    /// The actor that the history names.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    pub(super) fn cause(&self, trigger: Trigger) -> Cause {
        Cause { trigger, actor: self.actor.clone() }
    }
}

/// The secret that is compared if there is none, so that the work is the same.
pub(super) const NO_SECRET: [u8; Token::RANDOM_BYTES] = [0; Token::RANDOM_BYTES];

impl Deployer {
    /// Checks a webhook call's credentials over its raw body, by at most one read of the store.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`], the same for every fault of the credentials; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn authorize(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> Outcome<Authorized> {
        let dummy = Token::from_random(&NO_SECRET);
        let fits = |secret: Option<&Token>| {
            self.recognition.read(app, secret);
            let fit = secret.or(dummy.as_ref()).is_some_and(|token| credentials.fit(token, body));
            fit & secret.is_some()
        };
        let secret = self.ports.tokens.find_fitting(app, &fits).await.map_err(refused)?;
        let uid = secret.ok_or(Refusal::Unauthorized)?.app;
        Ok(Authorized { id: app.clone(), uid, cause: Cause { trigger: Trigger::Webhook, actor: Actor::Ci } })
    }

    /// Checks a management token.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn authorize_operator(&self, presented: &[u8], name: &str) -> Outcome<Operator> {
        use sha2::Digest as _;
        self.confirm_operator(&sha2::Sha256::digest(presented).into(), name).await
    }

    /// Checks the management token of this hash: a host that has authenticated a person keeps the hash, and confirms each of
    /// the person's calls by it, so that a token that was replaced ends the person's session.
    ///
    /// # Errors
    /// As [`Deployer::authorize_operator`].
    pub async fn confirm_operator(&self, hash: &[u8; 32], name: &str) -> Outcome<Operator> {
        let fits = |stored: Option<&[u8; 32]>| {
            self.recognition.read_operator(stored.copied());
            stored.is_some_and(|stored| bool::from(stored.ct_eq(hash)))
        };
        match self.ports.tokens.operator_fitting(&fits).await.map_err(refused)? {
            true => Ok(Operator::trusted(name)),
            false => Err(Refusal::Unauthorized),
        }
    }

    /// Returns whether these credentials fit the app's token as this process last read it: then they are worth a read
    /// of the store. They prove nothing: see [`Deployer::authorize`].
    pub fn recognizes(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> bool {
        self.recognition.fits(app, credentials, body)
    }

    /// Returns whether this is the management token as this process last read it, which proves nothing: see
    /// [`Deployer::authorize_operator`].
    pub fn recognizes_operator(&self, presented: &[u8]) -> bool {
        self.recognition.is_operator(presented)
    }

    /// Returns whether this is the store's management token; a store that knows none keeps the hash of this one.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn adopt_operator_token(&self, token: &Token) -> Outcome<bool> {
        let hash = token.hash();
        match self.ports.tokens.operator_hash().await.map_err(refused)? {
            Some(known) => Ok(known.ct_eq(&hash).into()),
            None => self.ports.tokens.set_operator_hash(hash).await.map(|()| true).map_err(refused),
        }
    }

    /// Returns whether this is the hash of the management token as this process last read it, which proves nothing: see
    /// [`Deployer::confirm_operator`].
    pub fn recognizes_operator_hash(&self, hash: &[u8; 32]) -> bool {
        self.recognition.is_operator_hash(hash)
    }

    /// Returns whether a management token was ever set.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn has_operator_token(&self) -> Outcome<bool> {
        Ok(self.ports.tokens.operator_hash().await.map_err(refused)?.is_some())
    }

    /// Returns an operator's proof for one app.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn open(&self, operator: &Operator, id: &AppId) -> Outcome<Authorized> {
        let app = self.find(id).await?.state.app.clone();
        Ok(Authorized { id: app.id.clone(), uid: app.uid, cause: operator.cause(Trigger::Manual) })
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
