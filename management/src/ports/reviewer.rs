//! The port that asks an authority outside of the service, such as a cluster, for a caller and its rights.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use zeroize::Zeroizing;

use rollhook_core::{
    app::{AppName, Namespace},
    error::Result,
};

use crate::access::Permission;

/// A bearer token as a caller presented it.
///
/// `Debug` does not show it, nothing serializes it, and its memory is wiped when its last copy is dropped.
#[derive(Clone)]
pub struct BearerToken(Arc<Zeroizing<String>>);

impl BearerToken {
    /// Returns a token of this text.
    pub fn new(text: &str) -> Self {
        Self(Arc::new(Zeroizing::new(text.to_owned())))
    }

    /// The text, for the authority that it is presented to.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// A caller as the authority knows it; all of it belongs to the question for its rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedCaller {
    /// The name, such as `system:serviceaccount:ci:deployer`.
    pub name: String,
    /// The key of this very account: one of the same name that is made later has another.
    pub uid: Option<String>,
    /// The caller's groups.
    pub groups: Vec<String>,
    /// Further facts about the caller, which the authority has named itself.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The beginning of the names of service accounts, which only a cluster gives.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl ReviewedCaller {
    /// Returns the namespace of a service account: its admins make such accounts.
    pub(crate) fn account_namespace(&self) -> Option<&str> {
        self.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':').map(|(namespace, _)| namespace)
    }
}

/// Whether an authority's own published key made the signature of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureCheck {
    /// A key of the authority made it.
    Valid,
    /// The key that the token names did not make it.
    Invalid,
    /// No known key has the id that the token names, or the keys cannot be read now.
    Unknown,
}

/// The apps that a right is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewScope<'a> {
    /// All apps of all namespaces, and what belongs to none.
    Everything,
    /// All apps of a namespace.
    Namespace(&'a Namespace),
    /// The app of this name in a namespace.
    App(&'a Namespace, &'a AppName),
}

/// Asks an authority for callers and their rights. The service decides what is asked; the authority alone answers.
///
/// Security: each answer was given to this very call, and none is remembered, so that a right that was taken away counts
/// no longer at the next call. A caller is one whom the authority has authenticated for the [audience](Self::audience).
/// The service calls it at a bounded rate, whatever tokens come in.
#[async_trait]
pub trait AccessReviewer: Send + Sync {
    /// The authority's name, which stands in brackets behind the names of its callers, in the history and the audit.
    fn authority(&self) -> &str;

    /// The audience that a token must be made for, so that one that was made for another program proves nothing here.
    fn audience(&self) -> &str;

    /// Returns whether a published key of the authority made the token's signature, without a question to the authority: made-up
    /// tokens are told from those that it has issued. It proves no caller. An authority that publishes no keys keeps this
    /// method.
    async fn signature(&self, _token: &BearerToken) -> SignatureCheck {
        SignatureCheck::Unknown
    }

    /// Returns the caller that a token proves, or `None` if it proves none for the audience.
    ///
    /// # Errors
    /// `Unavailable` while the authority is away; `Denied` if it does not answer this process.
    async fn authenticate(&self, token: &BearerToken) -> Result<Option<ReviewedCaller>>;

    /// Returns whether the caller has the permission on all of the scope.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate).
    async fn allows(&self, caller: &ReviewedCaller, permission: Permission, scope: ReviewScope<'_>) -> Result<bool>;
}
