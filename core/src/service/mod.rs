//! Effects, performed only through ports: authorize → submit → drive (step ⇄ perform) → recover.

mod api_tokens;
mod app_events;
mod apps;
mod audit;
mod auth;
mod builds;
mod documents;
mod drift;
mod drive;
mod identities;
mod journal;
mod lease;
mod locks;
mod logins;
mod looks;
mod notifications;
mod poll_results;
mod polling;
mod progress;
mod promote;
mod push;
mod queries;
mod receivers;
mod recognition;
mod register;
mod retention;
mod reviews;
mod rollback;
mod run;
mod sessions;
mod start;
mod submit;
mod webhook_calls;
mod work_queue;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use api_tokens::{Adopted, ApiToken, NewApiToken, replace_admin_token};
pub use audit::{AuditEntry, Audited};
pub use auth::{Authorized, Principal};
pub use builds::LogPart;
pub use locks::{EnvironmentLock, NewLock};
pub use logins::LOGIN_MAX;
pub use poll_results::{PollOutcome, Polled};
pub use progress::Progress;
pub use push::Pushed;
pub use queries::Waited;
pub use receivers::{NewReceiver, ReceiverStatus, reseal_receivers, sealed_receiver_secrets};
pub use register::Registered;
pub use sessions::{PERSON_SESSION_MAX, Person, SESSION_IDLE, SESSION_MAX, SessionSecret, SignInGrants};
pub use start::StartError;
pub use submit::Accepted;
pub use webhook_calls::{CallAnswer, Caller, WebhookCall};

use crate::{
    app::{AppId, AppUid, POLL_MIN},
    error::Error,
    ports::{
        AccessReviewer, AppPage, BranchReader, BuildTrigger, Clock, DriverIdentity, HistoryStore, IdentityVerifier,
        Notifier, RecordStore, Rng, RolloutDriver, Sealer, TargetDescription, TokenStore,
    },
    replica::ReplicaId,
    request::Refusal,
    source::AllowedSources,
    time::Timestamp,
};

/// The number of attempts of a decision whose basis has changed.
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
    /// API tokens, sessions and the audit, of the same store; `None`: callers are authenticated by the platform, and
    /// the audit is in the log alone.
    pub records: Option<Arc<dyn RecordStore>>,
    /// The verifier of pipelines' id_tokens; `None`: no pipeline is trusted. It needs `records`.
    pub identities: Option<Arc<dyn IdentityVerifier>>,
    /// The ports by which receivers are told of deploys; `None`: there are no receivers. They need `records`.
    pub notifications: Option<Notifications>,
    /// The authority, such as a cluster, that knows further callers and what they may do; `None`: there is none.
    pub reviewer: Option<Arc<dyn AccessReviewer>>,
    /// The driver of rollouts.
    pub rollouts: Arc<dyn RolloutDriver>,
    /// The builder of git apps; `None`: there are only image apps.
    pub builder: Option<Builder>,
    /// The monotonic clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub rng: Arc<dyn Rng>,
}

/// A builder, and the sources that it may read.
#[derive(Clone)]
pub struct Builder {
    /// The build backend.
    pub builds: Arc<dyn BuildTrigger>,
    /// The reader of the branches that apps are built from.
    pub branches: Arc<dyn BranchReader>,
    /// The sources that the operator lets apps be built from.
    pub sources: AllowedSources,
}

/// The ports by which receivers are told of deploys.
#[derive(Clone)]
pub struct Notifications {
    /// The notifier.
    pub notifier: Arc<dyn Notifier>,
    /// The sealer of receivers' secrets.
    pub sealer: Arc<dyn Sealer>,
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
pub struct Deployer {
    ports: Ports,
    journal: Arc<journal::Journal>,
    replica: ReplicaId,
    /// Wakes callers that wait for an app.
    waiters: app_events::AppEvents,
    looks: looks::Looks,
    /// Wakes the driver of an app.
    drivers: app_events::AppEvents,
    work_queue: work_queue::WorkQueue,
    poll_results: poll_results::PollResults,
    observations: progress::Observations,
    drifts: drift::Drifts,
    recognition: recognition::Recognition,
    refusals: audit::Refusals,
    trusts: identities::KnownTrusts,
    news: notifications::News,
    /// The URL at which the service is reached, for notifications; empty if it is unknown.
    base_url: Arc<str>,
    unknown_tokens: reviews::UnknownTokens,
    calls: webhook_calls::WebhookCalls,
    min_poll: Duration,
    scope: Scope,
    /// The provider of sign-ins, if there is one.
    sign_in: OnceLock<sessions::SignInGrants>,
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
            journal: journal::Journal::new(ports.history.clone(), ports.clock.clone()),
            work_queue: work_queue::WorkQueue::new(ports.clock.elapsed()),
            recognition: recognition::Recognition::new(&*ports.rng),
            refusals: audit::Refusals::default(),
            trusts: identities::KnownTrusts::default(),
            news: notifications::News::default(),
            base_url: Arc::default(),
            unknown_tokens: reviews::UnknownTokens::default(),
            calls: webhook_calls::WebhookCalls::default(),
            ports,
            replica: ReplicaId { name: replica.to_owned(), boot },
            waiters: app_events::AppEvents::default(),
            looks: looks::Looks::default(),
            drivers: app_events::AppEvents::default(),
            poll_results: poll_results::PollResults::default(),
            observations: progress::Observations::default(),
            drifts: drift::Drifts::default(),
            min_poll: POLL_MIN,
            scope: Scope::Store,
            sign_in: OnceLock::new(),
            bound_to: OnceLock::new(),
        }
    }

    /// Limits the apps that are driven.
    #[must_use]
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Sets the URL at which the service is reached, which notifications lead to.
    #[must_use]
    pub fn with_base_url(self, base_url: &str) -> Self {
        Self { base_url: base_url.trim_end_matches('/').into(), ..self }
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
        if self.ports.records.is_some() {
            return self.recognize_api_tokens().await;
        }
        let page = AppPage { namespace: None, after: None, limit: 1 };
        self.ports.history.list(page).await.map(drop).map_err(refused)
    }
}

/// Returns the refusal of a failed write to an app, which may have happened if its answer was lost.
fn unwritten(id: &AppId, error: Error) -> Refusal {
    if matches!(error, Error::NotFound(_)) {
        return Refusal::AppNotFound(id.clone());
    }
    let unavailable = error.is_unavailable();
    let refusal = refused(error);
    if unavailable { Refusal::StoreUnavailable { maybe_recorded: true } } else { refusal }
}

/// Returns the refusal for a port's error; details are logged.
fn refused(error: Error) -> Refusal {
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
