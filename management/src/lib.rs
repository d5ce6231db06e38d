//! The management plane of rollhook: who may do what, pipelines without a stored token, locks of environments, and
//! notifications. It stands above the [`Deployer`], which knows nothing of it; a platform that authenticates its callers
//! itself leaves this crate out.
//!
//! ```text
//!   hosts (HTTP, CLI, console)
//!        │  authenticate → allow
//!        ▼
//!   Management ── access · keyless · locks · notifications · report
//!        │  Authorized                      │ records, sealed secrets, calls of others
//!        ▼                                  ▼
//!   Deployer (rollhook-core)           RecordStore · AccessReviewer · IdentityVerifier · SignInProvider · Notifier · Sealer
//! ```
//!
//! One call of a person: [`Management::authenticate`] returns the [`access::Principal`] that an API token or a session
//! proves. [`Management::allow`] finds the app, judges the principal by its roles (or asks the authority that knows it),
//! writes the audit, and returns the [`rollhook_core::service::Authorized`] with which the deployer is called.

pub mod access;
mod bounds;
mod checks;
mod configuring;
mod copies;
mod documents;
mod images;
pub mod keyless;
mod lists;
pub mod locks;
pub mod notifications;
pub mod ports;
mod rate;
mod recent;
mod refusal;
mod registering;
pub mod report;
pub mod requirements;
mod returning;
mod runs;
mod webhook_calls;

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, OnceLock},
};

use futures_util::{
    FutureExt,
    future::{join, join3},
    select_biased,
};
use rollhook_core::{
    service::{Deployer, Scope, StartError},
    text::with_fields,
};

pub use bounds::{AUDIT_MAX, STORED_SESSIONS_MAX};
pub use lists::ListTurn;
pub use rate::{Rate, RefusalLines};
pub use recent::Recent;
pub use refusal::{Outcome, Refusal};
pub use registering::{ENVIRONMENT_APPS_MAX, PROJECT_APPS_MAX};
pub use webhook_calls::{CallAnswer, Caller, WebhookCall};

use ports::{AccessReviewer, IdentityVerifier, Notifier, RecordStore, Sealer};
use rollhook_core::error::Error;

/// The number of attempts of a decision whose basis has changed.
const ATTEMPTS: u32 = 20;

/// The ports of the management plane.
#[derive(Clone)]
#[non_exhaustive]
pub struct Ports {
    /// API tokens, sessions, the audit and other records, of the store that has the apps.
    pub records: Arc<dyn RecordStore>,
    /// The verifier of pipelines' id_tokens; `None`: no pipeline is trusted.
    pub identities: Option<Arc<dyn IdentityVerifier>>,
    /// The ports by which receivers are notified of deploys; `None`: there are no receivers.
    pub notifications: Option<NotificationPorts>,
    /// The authority, such as a cluster, that knows further callers and what they may do; `None`: there is none.
    pub reviewer: Option<Arc<dyn AccessReviewer>>,
}

impl Ports {
    /// Returns the ports of a plane with records alone.
    pub fn new(records: Arc<dyn RecordStore>) -> Self {
        Self { records, identities: None, notifications: None, reviewer: None }
    }
}

with_fields!(Ports);

/// The ports by which receivers are notified of deploys.
#[derive(Clone)]
pub struct NotificationPorts {
    /// The notifier.
    pub notifier: Arc<dyn Notifier>,
    /// The sealer of receivers' secrets.
    pub sealer: Arc<dyn Sealer>,
}

/// The management plane over a deployer and its store's records.
pub struct Management {
    deployer: Arc<Deployer>,
    records: Arc<dyn RecordStore>,
    identities: Option<Arc<dyn IdentityVerifier>>,
    notifications: Option<NotificationPorts>,
    reviewer: Option<Arc<dyn AccessReviewer>>,
    known_callers: access::KnownCallers,
    known_namespaces: access::KnownNamespaces,
    acts: access::Acts,
    /// The lines of the audit that have no entry of their own.
    audit_lines: RefusalLines,
    act_lines: RefusalLines,
    /// The lines of refused id_tokens.
    identity_lines: RefusalLines,
    /// Held from the count of bounded records to the write of one more: calls at the same time do not pass the bound.
    counting: lists::Lists,
    registrations: registering::Registrations,
    app_lists: lists::Lists,
    all_apps: lists::Lists,
    record_lists: lists::Lists,
    report_lists: lists::Lists,
    reports: rate::Rates<rollhook_core::lock::PrincipalKey>,
    /// The reads of all sessions by those who sign out everywhere.
    session_scans: lists::Lists,
    receiver_tests: rate::OfRealms,
    check_tests: rate::OfRealms,
    image_looks: rate::OfRealms,
    environment_changes: rate::OfRealms,
    requirement_changes: rate::OfRealms,
    configuration_changes: rate::OfRealms,
    unknown_tokens: access::UnknownTokens,
    /// The provider of sign-ins, if there is one.
    sign_in: OnceLock<access::SignInGrants>,
    trusts: keyless::KnownTrusts,
    used_tokens: keyless::UsedTokens,
    hints: notifications::Hints,
    calls: webhook_calls::WebhookCalls,
    written: bounds::Written,
    /// The URL at which the service is reached, for notifications; empty if it is unknown.
    base_url: Arc<str>,
}

impl Management {
    /// Returns the management plane of a deployer.
    pub fn new(deployer: Arc<Deployer>, ports: Ports) -> Self {
        let Ports { records, identities, notifications, reviewer } = ports;
        Self {
            deployer,
            records,
            identities,
            notifications,
            reviewer,
            known_callers: access::KnownCallers::default(),
            known_namespaces: access::KnownNamespaces::default(),
            acts: access::Acts::default(),
            audit_lines: RefusalLines::default(),
            act_lines: RefusalLines::default(),
            identity_lines: RefusalLines::default(),
            counting: lists::Lists::one_at_a_time(),
            registrations: registering::Registrations::default(),
            app_lists: lists::Lists::default(),
            all_apps: lists::Lists::default(),
            record_lists: lists::Lists::default(),
            report_lists: lists::Lists::of_reports(),
            reports: rate::Rates::default(),
            session_scans: lists::Lists::default(),
            receiver_tests: rate::OfRealms::default(),
            check_tests: rate::OfRealms::default(),
            image_looks: rate::OfRealms::default(),
            environment_changes: rate::OfRealms::default(),
            requirement_changes: rate::OfRealms::default(),
            configuration_changes: rate::OfRealms::default(),
            unknown_tokens: access::UnknownTokens::default(),
            sign_in: OnceLock::new(),
            trusts: keyless::KnownTrusts::default(),
            used_tokens: keyless::UsedTokens::default(),
            hints: notifications::Hints::default(),
            calls: webhook_calls::WebhookCalls::default(),
            written: bounds::Written::default(),
            base_url: Arc::default(),
        }
    }

    /// Sets the URL at which the service is reached, which notifications lead to.
    #[must_use]
    pub fn with_base_url(self, base_url: &str) -> Self {
        Self { base_url: base_url.trim_end_matches('/').into(), ..self }
    }

    /// The deployer below.
    pub const fn deployer(&self) -> &Arc<Deployer> {
        &self.deployer
    }

    /// Drives deploys as [`Deployer::run`] does; meanwhile copies the locks and requirements of environments, and notifies
    /// receivers.
    ///
    /// # Errors
    /// As [`Deployer::run`].
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        let driven = {
            let mut driving = pin!(self.deployer.run(shutdown).fuse());
            let mut beside = pin!(self.run_beside().fuse());
            // Whatever is under way beside is dropped here, before the lease is free for others.
            select_biased! {
                driven = driving => driven,
                () = beside => driving.await,
            }
        };
        self.stop_notifying().await;
        driven
    }

    /// Copies locks and requirements, notifies receivers and removes records that are too many, once the store is known to be
    /// this process's driver's.
    async fn run_beside(&self) {
        if self.deployer.scope() == Scope::Store && self.deployer.bound().await.is_ok() {
            let copies =
                join(self.watch_copies::<locks::StoredLock>(), self.watch_copies::<requirements::StoredRequirement>());
            join3(copies, self.notify_receivers(), self.keep_bounds()).await;
        }
    }

    /// Returns `Ok` if the store answers. The callers of the newest API tokens are recognised from then on.
    ///
    /// # Errors
    /// [`rollhook_core::request::Refusal::StoreUnavailable`] while it does not.
    pub async fn ready(&self) -> Outcome<()> {
        self.recognize_api_tokens().await
    }
}

/// Returns the refusal for an error of the store; details are logged.
fn refused(error: Error) -> Refusal {
    rollhook_core::request::Refusal::of_store(error).into()
}
