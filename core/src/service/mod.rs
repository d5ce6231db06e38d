//! Effects, performed only through ports.
//!
//! - `accept`: authorizes callers, decides by the ledger, and has the decision committed
//! - `journal`: loads and commits the states of apps
//! - `drive`: leases apps, and performs the engine's steps until a deploy has ended
//! - `read`: apps, histories, progress, logs, images at their registries, and waiting for a change

mod accept;
mod drive;
mod in_time;
mod journal;
mod read;
mod tags;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use accept::{
    Accepted, AcceptedRun, Authorized, Changed, Configured, Hinted, NewLock, Pushed, Registered, check_run,
    check_settings,
};
pub use drive::{Condition, PollOutcome, Polled, StartError};
pub use read::{Following, ListedTag, LogPart, LookedUpImage, Place, Progress, ShownConfiguration, Waited};

use futures_util::lock;

use crate::{
    app::{AppId, AppUid, Namespace, POLL_MIN},
    error::Error,
    ports::{
        AppPage, BranchReader, BuildTrigger, Clock, ConfigurationStore, DeployObserver, DriverIdentity, HistoryStore,
        Rng, RolloutDriver, TargetDescription, TokenStore,
    },
    replica::ReplicaId,
    request::Refusal,
    slots::Slots,
    source::AllowedSources,
    text::with_fields,
    time::Timestamp,
};

/// The number of attempts of a decision whose basis has changed.
const ATTEMPTS: u32 = 20;

/// The most calls to the rollout driver that have an app's variables at once, and those for apps of one environment.
const VARIABLES_HELD: usize = 8;
const VARIABLES_HELD_EACH: usize = 2;

/// Why no command is run.
const NO_RUNNER: &str = "The platform that this server deploys to runs no commands.";

/// The result of a call to the service.
pub type Outcome<T> = Result<T, Refusal>;

/// The ports that the service acts through.
#[derive(Clone)]
#[non_exhaustive]
pub struct Ports {
    /// Secrets; of the same store as `history`.
    pub tokens: Arc<dyn TokenStore>,
    /// Apps and their deploys.
    pub history: Arc<dyn HistoryStore>,
    /// The driver of rollouts.
    pub rollouts: Arc<dyn RolloutDriver>,
    /// The observers of this process's commits, such as metrics.
    pub observers: Vec<Arc<dyn DeployObserver>>,
    /// The builder of git apps; `None`: there are only image apps.
    pub builder: Option<BuildPorts>,
    /// The monotonic clock.
    pub clock: Arc<dyn Clock>,
    /// The values of configurations; of the same store as `history`. `None`: no configuration can be set.
    pub configurations: Option<Arc<dyn ConfigurationStore>>,
    /// What measures the checks of apps; `None`: no app can have any.
    pub verifier: Option<Arc<dyn crate::ports::Verifier>>,
    /// The reader of registries; `None`: no image is looked up at one.
    pub registry: Option<Arc<dyn crate::ports::Registry>>,
    /// The verifier of the signatures of images; `None`: no app can require any.
    pub image_verifier: Option<Arc<dyn crate::ports::ImageVerifier>>,
    /// The source of randomness.
    pub rng: Arc<dyn Rng>,
}

/// The ports by which git apps are built, and the sources that they may read.
#[derive(Clone)]
#[non_exhaustive]
pub struct BuildPorts {
    /// The build backend.
    pub builds: Arc<dyn BuildTrigger>,
    /// The reader of the branches that apps are built from.
    pub branches: Arc<dyn BranchReader>,
    /// The sources that the operator lets apps be built from.
    pub sources: AllowedSources,
}

with_fields!(Ports, BuildPorts);

impl Ports {
    /// Returns the ports of a service without observers and without builds.
    pub fn new(
        tokens: Arc<dyn TokenStore>,
        history: Arc<dyn HistoryStore>,
        rollouts: Arc<dyn RolloutDriver>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self {
            tokens,
            history,
            rollouts,
            observers: Vec::new(),
            builder: None,
            configurations: None,
            verifier: None,
            registry: None,
            image_verifier: None,
            clock,
            rng,
        }
    }
}

impl BuildPorts {
    /// Returns the ports of builds from the sources that are allowed by default.
    pub fn new(builds: Arc<dyn BuildTrigger>, branches: Arc<dyn BranchReader>) -> Self {
        Self { builds, branches, sources: AllowedSources::default() }
    }
}

/// The apps that a process drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All apps of the store that no other living process drives.
    Store,
    /// Only those that this process's own calls changed: a command line drives the deploy that it was asked for.
    OwnCalls,
}

/// The service: answers callers, and drives deploys while [`Deployer::run`] is polled.
///
/// # Cancellation
///
/// A future of a call may be dropped at any await. A call that only reads or waits has no effect. One that changes an app
/// may have been recorded or not, as after [`Refusal::StoreUnavailable`] with `maybe_recorded`: repeat it with the same
/// idempotency key. If [`Deployer::run`] is dropped in place of being shut down, its leases expire after 15 s, and the
/// next process goes on.
pub struct Deployer {
    ports: Ports,
    journal: Arc<journal::Journal>,
    replica: ReplicaId,
    recognized: accept::RecognizedWebhooks,
    token_reads: accept::TokenReads,
    /// Wakes callers that wait for an app.
    waiters: read::AppEvents,
    shared_reads: read::SharedReads,
    build_states: read::BuildStates,
    observations: read::Observations,
    history_lists: read::HistoryLists,
    group_reads: drive::GroupReads,
    instance_reads: read::InstanceReads,
    /// Wakes the driver of an app.
    drivers: read::AppEvents,
    work_queue: drive::WorkQueue,
    poll_results: drive::PollResults,
    conditions: drive::KnownConditions,
    due_discards: drive::DueDiscards,
    /// Held by the calls to the rollout driver that have an app's variables.
    variables_held: Slots,
    /// Held by the change that stores a configuration of an environment.
    configuration_turns: read::SharedValues<Namespace, lock::Mutex<()>>,
    /// Held by the measurements of checks.
    measuring: Slots,
    /// The calls of registries for images that are to be deployed.
    resolving: Slots,
    /// The calls that verify the signatures of such images.
    verifying: Slots,
    /// Held by the commands of checks.
    check_commands: Slots,
    waiting_commands: drive::WaitingCommands,
    /// The runs of checks' commands that are no longer waited for.
    ending_runs: drive::EndingRuns,
    round_rate: drive::RoundRate,
    /// Held by the one that reads an app's whole archive to forget what is surplus.
    retention_turn: lock::Mutex<()>,
    min_poll: Duration,
    scope: Scope,
    /// This process's driver, once the store's apps are known to be deployed by it.
    bound_to: OnceLock<DriverIdentity>,
}

impl Deployer {
    /// Returns a service of these ports.
    ///
    /// `replica` is a name that no other living process on the same store has, and that this one has again after a
    /// restart, so that it need not wait out its own leases.
    pub fn new(ports: Ports, replica: &str) -> Self {
        let mut boot = [0; 8];
        ports.rng.fill(&mut boot);
        // SQL stores keep it in a signed column.
        let boot = u64::from_le_bytes(boot) >> 1;
        Self {
            journal: journal::Journal::new(ports.history.clone(), ports.clock.clone(), ports.observers.clone()),
            recognized: accept::RecognizedWebhooks::new(&*ports.rng),
            token_reads: accept::TokenReads::default(),
            work_queue: drive::WorkQueue::new(ports.clock.elapsed()),
            ports,
            replica: ReplicaId { name: replica.to_owned(), boot },
            waiters: read::AppEvents::default(),
            shared_reads: read::SharedReads::default(),
            build_states: read::BuildStates::default(),
            observations: read::Observations::default(),
            history_lists: read::HistoryLists::default(),
            group_reads: drive::GroupReads::default(),
            instance_reads: read::InstanceReads::default(),
            drivers: read::AppEvents::default(),
            poll_results: drive::PollResults::default(),
            conditions: drive::KnownConditions::default(),
            due_discards: drive::DueDiscards::default(),
            variables_held: Slots::with_share(VARIABLES_HELD, VARIABLES_HELD_EACH),
            configuration_turns: read::SharedValues::default(),
            measuring: Slots::with_share(drive::MEASUREMENTS.0, drive::MEASUREMENTS.1),
            resolving: Slots::with_share(drive::RESOLVING.0, drive::RESOLVING.1),
            verifying: Slots::with_share(drive::RESOLVING.0, drive::RESOLVING.1),
            check_commands: Slots::with_share(drive::COMMANDS.0, drive::COMMANDS.1),
            waiting_commands: drive::WaitingCommands::default(),
            ending_runs: drive::EndingRuns::default(),
            round_rate: drive::RoundRate::default(),
            retention_turn: lock::Mutex::default(),
            min_poll: POLL_MIN,
            scope: Scope::Store,
            bound_to: OnceLock::new(),
        }
    }

    /// Limits the apps that are driven.
    #[must_use]
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// The apps that are driven.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The ports that the service acts through.
    pub const fn ports(&self) -> &Ports {
        &self.ports
    }

    /// This process, as its leases name it.
    pub const fn replica(&self) -> &ReplicaId {
        &self.replica
    }

    /// Wakes the waiting callers and the driver of an app that a caller of this process changed.
    fn changed_here(&self, app: AppUid) {
        self.waiters.notify(app);
        self.drivers.notify(app);
        self.work_queue.put(app);
    }

    /// The store's clock as this process knows it; 0 before its first answer.
    pub fn time(&self) -> Timestamp {
        self.journal.now().unwrap_or_default()
    }

    /// Returns the words and settings of the targets that the rollout driver deploys to.
    pub fn targets(&self) -> TargetDescription {
        self.ports.rollouts.describe()
    }

    /// Returns `Ok` if the store answers.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while it does not.
    pub async fn ready(&self) -> Outcome<()> {
        let page = AppPage::first(1);
        self.ports.history.list(page).await.map(drop).map_err(Refusal::of_store)
    }
}

impl Refusal {
    /// Returns the refusal for an error of the store; details are logged.
    pub fn of_store(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => {
                tracing::warn!(error = %error.chain(), "calling the store failed");
                Self::StoreUnavailable { maybe_recorded: false }
            }
            Error::Conflict(_) => Self::Busy,
            Error::Denied { .. } | Error::Invalid { .. } => {
                tracing::error!(error = %error.chain(), "the store refused a call");
                Self::StoreRefused(error.to_string())
            }
            Error::NotFound(_) | Error::Corrupt { .. } => {
                tracing::error!(error = %error.chain(), "reading the store failed");
                Self::Internal
            }
        }
    }
}

/// Returns the refusal of a failed write to an app, which may have happened if its answer was lost.
fn unwritten(id: &AppId, error: Error) -> Refusal {
    if matches!(error, Error::NotFound(_)) {
        return Refusal::AppNotFound(id.clone());
    }
    let unavailable = error.is_unavailable();
    let refusal = Refusal::of_store(error);
    if unavailable { Refusal::StoreUnavailable { maybe_recorded: true } } else { refusal }
}
