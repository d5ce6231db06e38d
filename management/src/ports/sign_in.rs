//! The port by which people sign in at a provider of their organisation.

use async_trait::async_trait;
use zeroize::Zeroizing;

use rollhook_core::error::Result;

/// A sign-in that has begun: the secrets are kept by the browser that began it, and by nothing else.
#[derive(Clone)]
pub struct SignInRequest {
    /// The provider's URL that the browser is sent to.
    pub url: String,
    /// The text that the provider returns, which proves that the answer belongs to this request.
    pub state: Zeroizing<String>,
    /// The text that the provider signs, which proves that its answer was made for this request.
    pub nonce: Zeroizing<String>,
    /// The secret without which the provider's code is worth nothing (PKCE, RFC 7636).
    pub verifier: Zeroizing<String>,
}

/// A person, as the provider states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn {
    /// The provider's own key of the person, which it gives to nobody else.
    pub subject: String,
    /// The name that people know: an e-mail address that the provider has verified, or else a name.
    pub name: String,
    /// The groups that the person is in.
    pub groups: Vec<String>,
}

/// Signs people in by OpenID Connect: the code flow with PKCE.
///
/// Security: the person of [`finish`](Self::finish) is the one who authenticated for the very request that the nonce and
/// the verifier are of; the provider's statement was signed by its published key for this client.
#[async_trait]
pub trait SignInProvider: Send + Sync {
    /// The provider's name, which stands on the button.
    fn name(&self) -> &str;

    /// The provider's host, which stands behind the names of its people.
    fn host(&self) -> &str;

    /// Returns a new request.
    ///
    /// # Errors
    /// `Unavailable` while the provider is away.
    async fn begin(&self) -> Result<SignInRequest>;

    /// Returns the person whom the provider's code stands for.
    ///
    /// # Errors
    /// `Denied` if the code, or what the provider states, proves nothing; `Unavailable` while the provider is away.
    async fn finish(&self, code: &str, nonce: &str, verifier: &str) -> Result<SignedIn>;
}
