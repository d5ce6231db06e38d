//! The credentials of a webhook's caller: secrets that the deployer checks, an id_token that a trust is needed for, or both.

use futures_util::future::join;
use rollhook_core::{
    action::Action,
    app::{AppId, AppUid},
    follow::PushedImage,
    request::IdempotencyKey,
    service::{Authorized, Hinted},
    token::{Credentials, Fault, NotAToken},
};

use crate::{
    Management, Outcome, Refusal,
    keyless::{IdToken, trusts::IdTokenUse},
};

/// All credentials that a caller of a webhook presented; each one must be valid.
#[derive(Clone, Debug, Default)]
pub struct Presented {
    /// The secrets and signatures.
    pub secrets: Credentials,
    /// The id_token. A header that is present and cannot be read is `Err(NotAToken)`: it is invalid, which is not the same
    /// as absent.
    pub identity: Option<Result<IdToken, NotAToken>>,
}

impl From<Credentials> for Presented {
    fn from(secrets: Credentials) -> Self {
        Self { secrets, identity: None }
    }
}

impl Presented {
    /// Returns whether the body is needed to check what was presented: a signature is over it, and an id_token is bound to
    /// it.
    pub fn needs_body(&self) -> bool {
        self.identity.is_some() || self.secrets.are_signatures()
    }

    /// Returns the kind of each credential that was presented.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let identity = self.identity.as_ref().map(|identity| if identity.is_ok() { "identity" } else { "invalid" });
        self.secrets.kinds().chain(identity)
    }
}

/// The fault of an id_token that was refused, for those who may know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// The id_token opens nothing.
    Wrong,
    /// The id_token was used for another call.
    Reused,
}

impl IdentityFault {
    /// A word, and a sentence that says where to look.
    pub const fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::Wrong => (
                "wrong-id-token",
                "The id_token fits no pipeline that this app trusts, or its time or signature is not valid; the server's \
                 log says which.",
            ),
            Self::Reused => (
                "id-token-reused",
                "The id_token was used for another call: each call of another body or key needs its own.",
            ),
        }
    }
}

/// The proof that a caller of an app's webhook was authenticated. It is worth reading; for a deploy, [`Management::bind`]
/// binds the id_token, if the caller has proved itself by one, to the call.
#[derive(Clone, Debug)]
pub struct WebhookProof {
    pub(crate) access: Authorized,
    pub(crate) id_token: Option<IdTokenUse>,
}

/// A call of an app's webhook that may deploy.
#[derive(Clone, Debug)]
pub struct BoundCall {
    /// The proof.
    pub access: Authorized,
    /// The key under which the call is made.
    pub key: Option<IdempotencyKey>,
    /// Whether an id_token was bound to this call just now, which the store remembers; `None` without one.
    pub is_newly_bound: Option<bool>,
}

impl WebhookProof {
    /// Returns whether an id_token proves the caller.
    pub fn is_by_identity(&self) -> bool {
        self.id_token.is_some()
    }

    /// Returns the proof for reading the app.
    pub fn reading(&self) -> Authorized {
        self.access.reading()
    }
}

impl From<Authorized> for WebhookProof {
    fn from(access: Authorized) -> Self {
        Self { access, id_token: None }
    }
}

impl Management {
    /// Checks a webhook call's credentials over its raw body, by at most one read of the store; an id_token by one more,
    /// and by another once its signature was verified.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized), the same for every fault of the credentials; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while
    /// the store is away; [`Refusal::IssuerUnavailable`] while an id_token that fits cannot be verified.
    pub async fn authorize(&self, app: &AppId, presented: &Presented, body: &[u8]) -> Outcome<WebhookProof> {
        let Some(identity) = &presented.identity else {
            return Ok(self.deployer.authorize(app, &presented.secrets, body).await?.into());
        };
        let token = identity.as_ref().map_err(|_| Refusal::UNAUTHORIZED)?;
        let by_secrets = if presented.secrets.is_empty() {
            None
        } else {
            Some(self.deployer.authorize(app, &presented.secrets, body).await?)
        };
        let by_identity = self.by_identity(app, token, body).await?;
        let is_other = |proof: Authorized| proof.uid() != by_identity.access.uid();
        if by_secrets.is_some_and(is_other) { Err(Refusal::UNAUTHORIZED) } else { Ok(by_identity) }
    }

    /// Returns the proof for the call with this key, and the key under which it is made: its own, or that of the id_token
    /// that proves the caller, which is bound to this one call.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) if the id_token was used for another call; [`Refusal::TooManyIdTokens`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable).
    pub async fn bind(&self, proof: &WebhookProof, key: Option<IdempotencyKey>) -> Outcome<BoundCall> {
        let access = proof.access.clone();
        let Some(used) = &proof.id_token else { return Ok(BoundCall { access, key, is_newly_bound: None }) };
        let (key, is_new) = self.bind_id_token(&access, used, key).await?;
        Ok(BoundCall { access, key: Some(key), is_newly_bound: Some(is_new) })
    }

    /// Returns what [`Management::bind`] returned for an earlier call as this one, without binding an id_token; `None` if
    /// this call repeats none.
    ///
    /// # Errors
    /// As [`Management::bind`].
    pub async fn bound(
        &self,
        proof: &WebhookProof,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Option<(Authorized, IdempotencyKey)>> {
        let key = match &proof.id_token {
            Some(used) => self.bound_id_token(&proof.access, used, key).await?,
            None => key,
        };
        Ok(key.map(|key| (proof.access.clone(), key)))
    }

    /// Has the app's repository read soon, as [`Deployer::hint`](rollhook_core::service::Deployer::hint) does. A hint deploys
    /// nothing, and uses no id_token up.
    ///
    /// # Errors
    /// As [`Deployer::hint`](rollhook_core::service::Deployer::hint).
    pub async fn hint(&self, proof: &WebhookProof, pushed: &[PushedImage]) -> Outcome<Hinted> {
        Ok(self.deployer.hint(&proof.access, pushed).await?)
    }

    /// Returns whether these credentials fit the app's token, and the pipelines that it trusts, as this process last read
    /// them: then they are worth a read of the store. They prove nothing: see [`Management::authorize`].
    pub fn recognizes(&self, app: &AppId, presented: &Presented, body: &[u8]) -> bool {
        let fit = || self.deployer.recognizes(app, &presented.secrets, body);
        match &presented.identity {
            None => fit(),
            Some(Err(_)) => false,
            Some(Ok(token)) => (presented.secrets.is_empty() || fit()) && self.recognizes_identity(app, token),
        }
    }

    /// Reads the token and the trusts of each app once, fifty in a second, as [`Deployer::read_tokens`](rollhook_core::service::Deployer::read_tokens) does.
    pub async fn read_tokens(&self) {
        join(self.deployer.read_tokens(), self.read_all_trusts()).await;
    }

    /// Returns the app, if this process has read its token or trusts, and why credentials that were refused do not fit it.
    pub(crate) fn fault(&self, app: &AppId, presented: &Presented, body: &[u8]) -> (Option<AppUid>, Reason) {
        let (known, fault) = self.deployer.fault(app, &presented.secrets, body);
        let of_secrets = (fault.as_str(), fault.sentence());
        // The token before is recognised although its time may be over.
        let secrets_fit = presented.secrets.is_empty()
            || (fault != Fault::ReplacedToken && self.deployer.recognizes(app, &presented.secrets, body));
        let reason = match &presented.identity {
            Some(_) if !secrets_fit => of_secrets,
            Some(Ok(_)) => IdentityFault::Wrong.reason(),
            Some(Err(NotAToken)) => (Fault::Unreadable.as_str(), Fault::Unreadable.sentence()),
            None => of_secrets,
        };
        (known.or_else(|| self.trusts.uid(app)), reason)
    }
}

/// A word, and a sentence for people.
pub(crate) type Reason = (&'static str, &'static str);

/// The actions of a pipeline that an app trusts: those of its webhook's token.
pub(crate) const WEBHOOK_ACTIONS: [Action; 1] = [Action::Deploy];
