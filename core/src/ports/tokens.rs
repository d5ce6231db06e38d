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
    /// The registration that the secret belongs to.
    pub app: AppUid,
    /// The token.
    pub token: Token,
    /// The time at which the token was stored, by the store's clock.
    pub created_at: Timestamp,
}

/// The protection of stored tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// Encrypted by this service, with a key that the store does not have.
    Sealed,
    /// Encrypted at rest by the cluster, if it does so.
    Cluster,
    /// Kept in memory only.
    Memory,
}

/// Returns whether a caller's credentials fit a stored token; takes the same time and returns `false` if there is
/// none.
pub type TokenMatcher<'a> = &'a (dyn Fn(Option<&Token>) -> bool + Send + Sync);

/// Keeps the secrets of the apps of one [`HistoryStore`](super::HistoryStore): it knows which apps are registered, and
/// the removal of an app removes its token. Security: a token that is returned for one app must never open another.
///
/// - `put_then_find`: found under the app's id, with the uid it was put for and the time of the `put`.
/// - `put_replaces_at_once`: after `put` returned, only the new token is found, by every replica.
/// - `find_unknown_is_none`: no such app, no token, token removed.
/// - `find_reads_the_store`: a token that another handle on the same store put or removed is seen by the next `find`.
/// - `find_fitting_opens_by_what_is_stored`: an accepted secret was read by this very call; a refusal may be answered
///   from memory, so that callers without a good token cost the store little. A token put elsewhere is accepted soon.
/// - `remove_forgets`; removing a missing token is no error.
/// - `put_for_a_gone_app_is_not_found`: `NotFound(App)`.
/// - `stored_token_is_sealed`: where [`Sealing::Sealed`], the stored bytes hold neither the token's text nor its
///   base64, and a sealed value moved to another app is `Corrupt`, never a token.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Stores the app's only token.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret>;

    /// Returns the token of the app of this name.
    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>>;

    /// Returns the token of the app of this name, if it fits.
    ///
    /// Unauthenticated callers cause these calls. A store with expensive reads answers refusals from memory. An
    /// implementation calls `fits(None)` if there is no token, so that both refusals take the same time.
    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        let found = self.find(app).await?;
        let fit = fits(found.as_ref().map(|secret| &secret.token));
        Ok(found.filter(|_| fit))
    }

    /// Removes the app's token: its webhook is disabled.
    async fn remove(&self, app: AppUid) -> Result<()>;

    /// The protection of stored tokens.
    fn sealing(&self) -> Sealing;
}
