//! Known callers, by what they call with: their calls, connections, bodies and streams are counted by it.

use std::hash::{BuildHasher, RandomState};

use rollhook_core::app::AppId;

/// A known caller: the holder of a token or session, or whoever calls an app's webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(u64);

/// Makes tokens, sessions and apps small keys that no caller can choose.
#[derive(Default)]
pub(crate) struct Callers(RandomState);

impl Callers {
    /// Returns the holder of this API token or session.
    pub(crate) fn holder(&self, secret: &str) -> Caller {
        Caller(self.0.hash_one(("holder", secret)))
    }

    /// Returns the callers of an app's webhook, who are counted together: each of them may deploy the app.
    pub(crate) fn webhook(&self, app: &AppId) -> Caller {
        Caller(self.0.hash_one(("webhook", app)))
    }
}
