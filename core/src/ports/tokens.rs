//! The port that keeps secrets.

use async_trait::async_trait;
use zeroize::Zeroizing;

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
    /// The token before, which opens the webhook until its time is over.
    pub previous: Option<PreviousToken>,
    /// The time at which the token was stored, by the store's clock.
    pub created_at: Timestamp,
}

/// A token that a rotation replaced.
#[derive(Clone, Debug)]
pub struct PreviousToken {
    /// The token.
    pub token: Token,
    /// The time until which it opens the webhook.
    pub until: Timestamp,
}

impl WebhookSecret {
    /// Returns the secret of an app with one token.
    pub fn new(app: AppUid, token: Token, created_at: Timestamp) -> Self {
        Self { app, token, previous: None, created_at }
    }

    /// Returns the secret after a rotation: its token opens the webhook until then, beside the new one.
    #[must_use]
    pub fn rotated(self, token: Token, until: Timestamp, created_at: Timestamp) -> Self {
        Self { app: self.app, token, previous: Some(PreviousToken { token: self.token, until }), created_at }
    }

    /// Returns the tokens as one text, which a store seals.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(match &self.previous {
            None => self.token.expose().to_owned(),
            Some(PreviousToken { token, until }) => {
                format!("{} {} {}", self.token.expose(), token.expose(), until.as_millis())
            }
        })
    }

    /// Returns the secret of a text that [`WebhookSecret::to_text`] made; `None` for any other.
    pub fn from_text(app: AppUid, text: &str, created_at: Timestamp) -> Option<Self> {
        let mut parts = text.split(' ');
        let secret = Self::new(app, parts.next()?.parse().ok()?, created_at);
        let Some(previous) = parts.next() else { return Some(secret) };
        let until = Timestamp::from_millis(parts.next()?.parse().ok()?);
        let previous = Some(PreviousToken { token: previous.parse().ok()?, until });
        parts.next().is_none().then_some(Self { previous, ..secret })
    }

    /// Returns the previous token while it still opens the webhook.
    pub fn previous_at(&self, now: Timestamp) -> Option<&PreviousToken> {
        self.previous.as_ref().filter(|previous| now < previous.until)
    }
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

/// The knowledge of an app's token that costs no read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenMark {
    /// Reads are cheap, or the store sees no changes: each caller is worth a read.
    Unmarked,
    /// There is no token, as far as this replica has seen.
    NoToken,
    /// A text that changes with the token.
    Token(String),
}

/// Returns whether a caller's credentials fit a stored secret; takes the same time and returns `false` if there is
/// none.
pub type TokenMatcher<'a> = &'a (dyn Fn(Option<&WebhookSecret>) -> bool + Send + Sync);

/// Keeps the secrets of the apps of one [`HistoryStore`](super::HistoryStore): it knows which apps are registered, and
/// the removal of an app removes its token. Security: a token that is returned for one app must never open another.
///
/// - `put_then_find`: found under the app's id, with the uid it was put for and the time of the `put`.
/// - `put_replaces_at_once`: after `put` returned, only the new token is found, by every replica.
/// - `put_outlives_an_abrupt_end`: what `put`, `rotate` or `remove` has answered holds after a loss of power, as far as
///   the store outlives its process: a token that was replaced never opens a webhook again.
/// - `find_unknown_is_none`: no such app, no token, token removed.
/// - `find_reads_the_store`: a token that another handle on the same store put or removed is seen by the next `find`.
/// - `find_fitting_opens_by_what_is_stored`: as `find`, for a caller who is let in by what fits.
/// - `mark_changes_with_the_token`: after `put`, `rotate` or `remove` on any handle, the mark is another one within a
///   second, and `NoToken` while there is none; or it is always `Unmarked`.
/// - `remove_forgets`; removing a missing token is no error.
/// - `put_for_a_gone_app_is_not_found`: `NotFound(App)`.
/// - `rotate_keeps_the_token_before`: the new token and the one before are found from then on, and no older one; a
///   `put` or `remove` takes both away. Without a token, `NotFound(Object)`. Of rotations and puts at the same time,
///   each replaces what the one before it stored.
/// - `stored_token_is_sealed`: where [`Sealing::Sealed`], the stored bytes hold neither the token's text nor its
///   base64, and a sealed value moved to another app is `Corrupt`, never a token.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Stores the app's only token.
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret>;

    /// Stores a new token, and keeps the present one beside it until then.
    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret>;

    /// Returns the token of the app of this name.
    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>>;

    /// Returns the token of the app of this name, if it fits.
    ///
    /// Unauthenticated callers cause these calls. An implementation calls `fits(None)` if there is no token, so that
    /// both refusals take the same time.
    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        let found = self.find(app).await?;
        let fit = fits(found.as_ref());
        Ok(found.filter(|_| fit))
    }

    /// Returns the mark of the app's token, by what this replica has seen.
    ///
    /// A store whose reads are expensive marks its tokens: the service then remembers them, and refuses callers without
    /// a read while the mark stays the same.
    async fn mark(&self, app: &AppId) -> Result<TokenMark> {
        let _ = app;
        Ok(TokenMark::Unmarked)
    }

    /// Removes the app's token: its webhook is disabled.
    async fn remove(&self, app: AppUid) -> Result<()>;

    /// The protection of stored tokens.
    fn sealing(&self) -> Sealing;
}
