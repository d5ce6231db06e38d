//! Known callers, by who they are: their calls, connections, bodies and streams are counted by it, whatever number of
//! secrets one has.
//!
//! Admins of an environment make tokens and webhooks as they like, so those of one environment, and those of one project,
//! share a part of what all known callers may hold.

use std::hash::{BuildHasher, RandomState};

use rollhook_management::access::KnownCaller;

/// A known caller, and those that it shares a part with. The keys are small, and no caller can choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    /// A person, an API token, an account of the cluster, or all who call an app's webhook.
    pub(crate) party: u64,
    /// The tokens, webhooks and accounts that admins of one environment make.
    pub(crate) environment: Option<u64>,
    /// Those that admins of one project make.
    pub(crate) project: Option<u64>,
}

/// Makes callers of parties and secrets.
#[derive(Default)]
pub(crate) struct Callers(RandomState);

impl Callers {
    /// Returns this party, whichever of its secrets was presented.
    pub(crate) fn of(&self, known: &KnownCaller) -> Caller {
        Caller {
            party: self.0.hash_one(&known.party),
            environment: known.environment.as_ref().map(|key| self.0.hash_one(key)),
            project: known.project.as_ref().map(|key| self.0.hash_one(key)),
        }
    }

    /// Returns the holder of a token or session whose party is not known.
    pub(crate) fn holder(&self, secret: &str) -> Caller {
        Caller { party: self.0.hash_one(("holder", secret)), environment: None, project: None }
    }
}
