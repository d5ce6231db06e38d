//! Effects, performed only through ports: authorize → submit → drive (step ⇄ perform) → recover.

mod access;
mod bells;
mod builds;
mod detect;
mod drive;
mod inbox;
mod manage;
mod polls;
mod push;
mod rollback;
mod run;
mod submit;
mod watch;

use std::{sync::Arc, time::Duration};

pub use access::{Authorized, Operator};
pub use builds::LogPart;
pub use manage::Registered;
pub use polls::{PollOutcome, Polled};
pub use push::Pushed;
pub use submit::Accepted;
pub use watch::Waited;

use crate::{
    app::{AppUid, POLL_MIN},
    error::Error,
    ports::{Apps, BranchReader, BuildTrigger, Clock, History, Replica, Rng, RolloutDriver, TokenStore},
    request::Refusal,
};

/// How often a decision is made anew when somebody else wrote in between.
const ATTEMPTS: u32 = 20;

/// What a call to the service ends with.
pub type Outcome<T> = Result<T, Refusal>;

/// What the service acts through.
#[derive(Clone)]
pub struct Ports {
    /// Registrations.
    pub apps: Arc<dyn Apps>,
    /// Secrets.
    pub tokens: Arc<dyn TokenStore>,
    /// Deploys; of the same store as `apps`.
    pub history: Arc<dyn History>,
    /// The cluster.
    pub rollouts: Arc<dyn RolloutDriver>,
    /// What builds git apps; none: there are only image apps.
    pub builder: Option<Builder>,
    /// Passing time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Rng>,
}

/// A builder, and what it may read.
#[derive(Clone)]
pub struct Builder {
    /// It.
    pub builds: Arc<dyn BuildTrigger>,
    /// What reads the branches of the sources that it builds from.
    pub heads: Arc<dyn BranchReader>,
    /// Whether apps may be built from local sources ([`crate::source::GitUrl::is_local`]): the operator's to say.
    pub local_sources: bool,
}

/// The service: answers callers, and drives deploys while somebody polls [`Deployer::run`].
pub struct Deployer {
    ports: Ports,
    replica: Replica,
    bells: bells::Bells,
    inbox: inbox::Inbox,
    polls: polls::Polls,
    min_poll: Duration,
}

impl Deployer {
    /// A service of these ports.
    ///
    /// `replica` is a name that no other living process on the same store has, and that this one has again after a
    /// restart, so that it need not wait out its own claims.
    pub fn new(ports: Ports, replica: &str) -> Self {
        let mut incarnation = [0; 8];
        ports.entropy.fill(&mut incarnation);
        // SQL stores keep it in a signed column.
        let incarnation = u64::from_le_bytes(incarnation) >> 1;
        Self {
            ports,
            replica: Replica { name: replica.to_owned(), incarnation },
            bells: bells::Bells::default(),
            inbox: inbox::Inbox::default(),
            polls: polls::Polls::default(),
            min_poll: POLL_MIN,
        }
    }

    /// Something was written to the app here: whoever waits for it looks, and the engine has something to do.
    fn written(&self, app: AppUid) {
        self.bells.ring(app);
        self.inbox.put(app);
    }

    /// Whether the store answers; as cheap for it as a call that does not authenticate, which this is.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while it does not.
    pub async fn ready(&self) -> Outcome<()> {
        self.ports.tokens.operator_fitting(&|_| false).await.map(drop).map_err(|error| refused(&error))
    }
}

/// What a caller is told of a write's failure: one whose answer was lost may have happened.
fn unwritten(error: &Error) -> Refusal {
    let refusal = refused(error);
    if error.is_unavailable() { Refusal::StoreUnavailable { maybe_recorded: true } } else { refusal }
}

/// What a caller is told of a port's failure; the log is told the rest.
fn refused(error: &Error) -> Refusal {
    match error {
        Error::Unavailable { .. } => {
            tracing::warn!(error = %error.chain(), "a store does not answer");
            Refusal::StoreUnavailable { maybe_recorded: false }
        }
        Error::Conflict(_) => Refusal::Busy,
        Error::Denied { .. } | Error::Invalid { .. } => {
            tracing::error!(error = %error.chain(), "a store refuses");
            Refusal::StoreRefused(error.to_string())
        }
        Error::NotFound(_) | Error::Corrupt { .. } => {
            tracing::error!(error = %error.chain(), "a store cannot do its work");
            Refusal::Internal
        }
    }
}
