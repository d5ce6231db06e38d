//! The port that keeps secrets.

use async_trait::async_trait;

use crate::{
    app::{AppId, AppUid},
    error::Result,
    time::Timestamp,
    token::Token,
};

/// An app's webhook secret.
#[derive(Clone, Debug)]
pub struct WebhookSecret {
    /// The registration that it opens.
    pub app: AppUid,
    /// The secret.
    pub token: Token,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Who keeps a token from being read where it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// Sealed by this service, with a key that the store does not have.
    Sealed,
    /// Left to the cluster's encryption at rest, if it has any.
    Cluster,
    /// Not written anywhere.
    Memory,
}

/// Whether a caller's credentials fit the secret that is shown; there being none, it works as long and says no.
pub type TokenMatcher<'a, Secret> = &'a (dyn Fn(Option<&Secret>) -> bool + Send + Sync);

/// Keeps the secrets; security: a token it returned for one app must never open another.
///
/// - `put_then_find`: found under the app's id, with the uid it was put for.
/// - `put_replaces_at_once`: after `put` returned, only the new token is found, by every replica.
/// - `find_unknown_is_none`: no such app, no token, token removed.
/// - `find_reads_the_store`: what another handle on the same store put or removed is seen by the next `find`.
/// - `find_fitting_opens_by_what_is_stored`: what `fits` accepts, this very call has read; what it refuses may be
///   remembered, so that callers without a good token cost the store little. A token put elsewhere is accepted soon.
/// - `remove_forgets`; removing what is gone is no error.
/// - `put_for_a_gone_app_is_not_found`: `NotFound(App)`.
/// - `stored_token_is_sealed`: where [`Sealing::Sealed`], the stored bytes hold neither the token's text nor its
///   base64, and a sealed value moved to another app is `Corrupt`, never a token.
/// - `operator_hash_round_trip`: the management token's SHA-256 is kept as it was given last.
/// - `operator_fitting_opens_by_what_is_stored`: likewise, but a hash that was set elsewhere is accepted at once. A
///   refusal may take its time, a second or so, and comes after the store has answered.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Makes this the app's only token.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret>;

    /// The token of the app of this name.
    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>>;

    /// The token of the app of this name, where it fits.
    ///
    /// Everybody can have this called. A store whose reads are dear answers from memory whom it would refuse.
    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_, Token>) -> Result<Option<WebhookSecret>> {
        let found = self.find(app).await?;
        let fit = fits(found.as_ref().map(|secret| &secret.token));
        Ok(found.filter(|_| fit))
    }

    /// Closes the webhook.
    async fn remove(&self, app: AppUid) -> Result<()>;

    /// The SHA-256 of the management token.
    async fn operator_hash(&self) -> Result<Option<[u8; 32]>>;

    /// Whether the management token's SHA-256 fits; as [`TokenStore::find_fitting`], for everybody to have called.
    async fn operator_fitting(&self, fits: TokenMatcher<'_, [u8; 32]>) -> Result<bool> {
        Ok(fits(self.operator_hash().await?.as_ref()))
    }

    /// Makes this the management token's SHA-256.
    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()>;

    /// Who keeps stored tokens from being read.
    fn sealing(&self) -> Sealing;
}
