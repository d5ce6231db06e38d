//! Opens the named backends and puts them together as ports.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use rollhook_checks::{AllowedAddresses, HttpVerifier};
use rollhook_core::{
    ports::{Binding, Clock, DriverIdentity, RolloutDriver},
    replica::ReplicaId,
    service::Ports,
};
use rollhook_management::NotificationPorts;
use rollhook_memory::SimulatedCluster;
use rollhook_notifications::{AllowedReceivers, HttpNotifier};
use rollhook_oidc::{Fetch, OidcVerifier};
use rollhook_registry::PlatformLogins;
use rollhook_workloads::Workloads;

use crate::{
    BuilderStop, Created, DriverUrl, Error, EventsStop, Settings, StoreLock, StoreUrl, SystemRng, TokioClock, builder,
    events, image_verifier, registry,
    store::{self, Store},
};

/// The backends, opened.
pub struct Opened {
    /// The opened ports of the deployer.
    pub ports: Ports,
    /// The opened ports of the management plane.
    pub management: rollhook_management::Ports,
    /// The store that was opened.
    pub store: StoreUrl,
    /// The files and directories that were missing, and were created.
    pub created: Vec<Created>,
    /// The time at which the file of the key that seals was written; `None`: the store seals nothing.
    pub key_written: Option<SystemTime>,
    /// Stops the builder; to be called after the engine has ended.
    pub builder: BuilderStop,
    /// Writes the last Kubernetes Events; to be called after the engine has ended.
    pub events: EventsStop,
}

/// The flag by which the operator lets issuers be on this machine.
pub(crate) const LOCAL_ISSUERS: &str = "--allow-local-issuers";

/// Opens the backends.
///
/// # Errors
/// [`Error`], which says what to do.
pub async fn open(settings: &Settings) -> Result<Opened, Error> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
    let url = settings.store.named()?;
    let driver = settings.driver.unwrap_or_default();
    let disk = settings.low_disk.unwrap_or_default();
    // Driver and builder go first: if they cannot be opened, nothing is created.
    let (rollouts, platform) = self::driver(driver, settings, clock.clone()).await?;
    let registry = registry(&settings.registries, &driver, platform);
    let image_verifier = image_verifier(&settings.registries, registry.clone())?;
    let (builder, stop) = builder::open(&settings.builder, disk, &driver, clock.clone()).await?;
    if let Some(missing) = settings.registries.missing() {
        // It may still appear, as the file of a mounted Secret does.
        tracing::warn!(path = %missing.display(), "missing a file or directory with logins of registries");
    }
    let mut created = Vec::new();
    let Store { tokens, history, configurations, records, sealed, sealer } =
        store::open(&url, settings.store.key_dir.as_deref(), settings.patience, &mut created).await?;
    let (observers, events) = events::open(driver, &url).await?;
    let rng = Arc::new(SystemRng);
    let identities = OidcVerifier::new(Fetch::new(settings.allow_local_issuers, LOCAL_ISSUERS), clock.clone());
    let allowed = AllowedReceivers {
        local: settings.receivers.allow_local_receivers,
        hosts: settings.receivers.receiver_host.clone(),
    };
    let addresses = AllowedAddresses { local: allowed.local, hosts: allowed.hosts.clone() };
    let notifier = Arc::new(HttpNotifier::new(allowed));
    let notifications = sealer.map(|sealer| NotificationPorts { notifier, sealer });
    let management = rollhook_management::Ports::new(records).with(|ports| {
        ports.identities = Some(Arc::new(identities));
        ports.notifications = notifications;
    });
    let ports = Ports::new(tokens, history, rollouts, clock, rng).with(|ports| {
        ports.observers = observers;
        ports.builder = builder;
        ports.configurations = Some(configurations);
        ports.verifier = Some(Arc::new(HttpVerifier::new(addresses)));
        ports.registry = Some(registry);
        ports.image_verifier = Some(Arc::new(image_verifier));
    });
    let key_written = sealed.and_then(|sealed| sealed.key_written());
    Ok(Opened { ports, management, store: url, created, key_written, builder: stop, events })
}

/// The versions of an app whose images stay on a machine.
const VERSIONS: u16 = 10;

/// A rollout driver, and the logins with which its platform pulls images, if it shows them.
type Driver = (Arc<dyn RolloutDriver>, Option<Arc<dyn PlatformLogins>>);

async fn driver(url: DriverUrl, settings: &Settings, clock: Arc<dyn Clock>) -> Result<Driver, Error> {
    let versions = settings.keep_images.unwrap_or(VERSIONS);
    #[cfg_attr(not(feature = "kubernetes"), expect(unused_mut, reason = "other platforms show none"))]
    let mut platform: Option<Arc<dyn PlatformLogins>> = None;
    let one: Arc<dyn RolloutDriver> = match url {
        DriverUrl::Simulated(delay) => Arc::new(SimulatedCluster::new(clock, delay)),
        #[cfg(feature = "kubernetes")]
        DriverUrl::Kubernetes => {
            let cluster = rollhook_kubernetes::KubernetesCluster::connect().await;
            let cluster = cluster.map_err(|error| Error::backend("kubernetes driver")(error.into()))?;
            platform = Some(Arc::new(cluster.pull_secrets()));
            Arc::new(cluster)
        }
        #[cfg(not(feature = "kubernetes"))]
        DriverUrl::Kubernetes => return Err(Error::NotBuilt("kubernetes driver")),
        #[cfg(feature = "docker")]
        DriverUrl::Docker => {
            let machine = rollhook_docker::DockerMachine::connect();
            let machine = machine.map_err(|error| Error::backend("docker driver")(error.into()))?;
            let machine = machine.with_disk_limits(settings.low_disk.unwrap_or_default());
            Arc::new(machine.storing(Some(usize::from(versions)).filter(|versions| *versions > 0)))
        }
        #[cfg(not(feature = "docker"))]
        DriverUrl::Docker => return Err(Error::NotBuilt("docker driver")),
    };
    Ok((Arc::new(Workloads::over(one)), platform))
}

/// A store's driver before and after [`rebind`].
pub struct Rebound {
    /// The identity that the store kept; of a store that kept none, the new one.
    pub from: DriverIdentity,
    /// The identity that it keeps from now on.
    pub to: DriverIdentity,
}

/// Binds a store to the named driver, whatever it was bound to.
///
/// # Errors
/// [`Error`], which says what to do.
pub async fn rebind(settings: &Settings) -> Result<Rebound, Error> {
    let Some(url) = settings.driver else {
        return Err(Error::Usage("--driver: name the driver that the store's apps are deployed by".to_owned()));
    };
    let (rollouts, _) = driver(url, settings, Arc::new(TokioClock::start())).await?;
    let ours = rollouts.identity().await;
    let ours = ours.map_err(|error| Error::backend("rollout driver")(error.into()))?;
    let named = settings.store.named()?;
    let _lock = StoreLock::take(&named)?;
    let Store { history, .. } = store::open_existing(&named, settings.store.key_dir.as_deref()).await?;
    let failed = |error: rollhook_core::Error| Error::backend("store")(error.into());
    // A heartbeat without duration only asks who lives.
    let asks = ReplicaId { name: "rebind".to_owned(), boot: 0 };
    let alive = history.heartbeat(&asks, Duration::ZERO).await.map_err(failed)?.alive;
    if let Some(server) = alive.first() {
        return Err(Error::ServersAlive(server.name.clone()));
    }
    let from = history.bind_driver(&ours, Binding::First).await.map_err(failed)?;
    let to = history.bind_driver(&ours, Binding::Replace).await.map_err(failed)?;
    Ok(Rebound { from, to })
}
