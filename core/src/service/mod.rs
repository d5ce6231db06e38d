//! Effects, performed only through ports: authorize → submit → drive (step ⇄ perform) → recover.

mod apps;
mod auth;
mod builds;
mod drive;
mod journal;
mod lease;
mod notifier;
mod poll_results;
mod polling;
mod promote;
mod push;
mod queries;
mod register;
mod retention;
mod rollback;
mod run;
mod submit;
mod work_queue;

use std::{sync::Arc, time::Duration};

pub use auth::{Authorized, Operator};
pub use builds::LogPart;
pub use poll_results::{PollOutcome, Polled};
pub use push::Pushed;
pub use queries::Waited;
pub use register::Registered;
pub use submit::Accepted;

use crate::{
    app::{AppUid, POLL_MIN},
    error::Error,
    ports::{BranchReader, BuildTrigger, Clock, HistoryStore, Rng, RolloutDriver, TokenStore},
    replica::ReplicaId,
    request::Refusal,
};

/// How often a decision is made again that was made on what has changed since.
const ATTEMPTS: u32 = 20;

/// The result of a call to the service.
pub type Outcome<T> = Result<T, Refusal>;

/// The ports that the service acts through.
#[derive(Clone)]
pub struct Ports {
    /// Secrets; of the same store as `history`.
    pub tokens: Arc<dyn TokenStore>,
    /// Apps and their deploys.
    pub history: Arc<dyn HistoryStore>,
    /// The cluster.
    pub rollouts: Arc<dyn RolloutDriver>,
    /// The builder of git apps; none: there are only image apps.
    pub builder: Option<Builder>,
    /// Passing time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
}

/// A builder, and what it may read.
#[derive(Clone)]
pub struct Builder {
    /// The build backend.
    pub builds: Arc<dyn BuildTrigger>,
    /// The reader of the branches that apps are built from.
    pub branches: Arc<dyn BranchReader>,
    /// Whether apps may be built from local sources ([`crate::source::GitUrl::is_local`]): the operator's to say.
    pub local_sources: bool,
}

/// The service: answers callers, and drives deploys while [`Deployer::run`] is polled.
pub struct Deployer {
    ports: Ports,
    journal: journal::Journal,
    replica: ReplicaId,
    /// Wakes callers that wait for an app.
    waiters: notifier::Notifier,
    /// Wakes the driver of an app.
    drivers: notifier::Notifier,
    work_queue: work_queue::WorkQueue,
    poll_results: poll_results::PollResults,
    min_poll: Duration,
}

impl Deployer {
    /// A service of these ports.
    ///
    /// `replica` is a name that no other living process on the same store has, and that this one has again after a
    /// restart, so that it need not wait out its own leases.
    pub fn new(ports: Ports, replica: &str) -> Self {
        let mut boot = [0; 8];
        ports.rng.fill(&mut boot);
        // SQL stores keep it in a signed column.
        let boot = u64::from_le_bytes(boot) >> 1;
        Self {
            journal: journal::Journal::new(ports.history.clone(), ports.clock.clone()),
            ports,
            replica: ReplicaId { name: replica.to_owned(), boot },
            waiters: notifier::Notifier::default(),
            drivers: notifier::Notifier::default(),
            work_queue: work_queue::WorkQueue::default(),
            poll_results: poll_results::PollResults::default(),
            min_poll: POLL_MIN,
        }
    }

    /// The app was changed by a caller of this process: those who wait look at it, and the engine has something to do.
    fn changed_here(&self, app: AppUid) {
        self.waiters.notify(app);
        self.drivers.notify(app);
        self.work_queue.put(app);
    }

    /// Whether the store answers; as cheap for it as a call that does not authenticate, which this is.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while it does not.
    pub async fn ready(&self) -> Outcome<()> {
        self.ports.tokens.operator_fitting(&|_| false).await.map(drop).map_err(|error| refused(&error))
    }
}

/// The refusal of a write that failed: one whose answer was lost may have happened.
fn unwritten(error: &Error) -> Refusal {
    let refusal = refused(error);
    if error.is_unavailable() { Refusal::StoreUnavailable { maybe_recorded: true } } else { refusal }
}

/// The refusal that a port's error comes to for a caller; the rest is logged.
fn refused(error: &Error) -> Refusal {
    match error {
        Error::Unavailable { .. } => {
            tracing::warn!(error = %error.chain(), "calling the store failed");
            Refusal::StoreUnavailable { maybe_recorded: false }
        }
        Error::Conflict(_) => Refusal::Busy,
        Error::Denied { .. } | Error::Invalid { .. } => {
            tracing::error!(error = %error.chain(), "the store refused a call");
            Refusal::StoreRefused(error.to_string())
        }
        Error::NotFound(_) | Error::Corrupt { .. } => {
            tracing::error!(error = %error.chain(), "reading the store failed");
            Refusal::Internal
        }
    }
}
