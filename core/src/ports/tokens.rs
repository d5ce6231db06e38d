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

/// Keeps the secrets; security: a token it returned for one app must never open another.
///
/// - `put_then_find`: found under the app's id, with the uid it was put for.
/// - `put_replaces_at_once`: after `put` returned, only the new token is found, by every replica.
/// - `find_unknown_is_none`: no such app, no token, token removed.
/// - `find_reads_the_store`: what another handle on the same store put or removed is seen by the next `find`.
/// - `remove_forgets`; removing what is gone is no error.
/// - `put_for_a_gone_app_is_not_found`: `NotFound("app")`.
/// - `stored_token_is_sealed`: where [`Sealing::Sealed`], the stored bytes hold neither the token's text nor its
///   base64, and a sealed value moved to another app is `Corrupt`, never a token.
/// - `operator_hash_round_trip`: the management token's SHA-256 is kept as it was given last.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// Makes this the app's only token.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret>;

    /// The token of the app of this name.
    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>>;

    /// Closes the webhook.
    async fn remove(&self, app: AppUid) -> Result<()>;

    /// The SHA-256 of the management token.
    async fn operator_hash(&self) -> Result<Option<[u8; 32]>>;

    /// Makes this the management token's SHA-256.
    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()>;

    /// Who keeps stored tokens from being read.
    fn sealing(&self) -> Sealing;
}
