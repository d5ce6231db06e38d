//! Opens the named backends and puts them together as ports.

use std::sync::Arc;

use rollhook_core::{
    ports::{Clock, RolloutDriver},
    service::Ports,
};
use rollhook_memory::SimulatedCluster;

use crate::{
    BuilderStop, Created, DriverUrl, Error, Settings, StoreUrl, SystemRng, TokioClock, builder,
    store::{self, Store},
};

/// The backends, opened.
pub struct Opened {
    /// The opened ports.
    pub ports: Ports,
    /// The store that was opened.
    pub store: StoreUrl,
    /// The files and directories that were missing, and were created.
    pub created: Vec<Created>,
    /// Stops the builder; to be called after the engine has ended.
    pub builder: BuilderStop,
}

/// Opens the backends.
///
/// # Errors
/// [`Error`], which says what to do.
pub async fn open(settings: &Settings) -> Result<Opened, Error> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
    let url = settings.store.named()?;
    let driver = settings.driver.unwrap_or_default();
    // Driver and builder go first: if they cannot be opened, nothing is created.
    let rollouts: Arc<dyn RolloutDriver> = match driver {
        DriverUrl::Simulated(delay) => Arc::new(SimulatedCluster::new(clock.clone(), delay)),
        #[cfg(feature = "kubernetes")]
        DriverUrl::Kubernetes => {
            let cluster = rollhook_kubernetes::KubernetesCluster::connect().await;
            Arc::new(cluster.map_err(|error| Error::backend("kubernetes driver")(error.into()))?)
        }
        #[cfg(not(feature = "kubernetes"))]
        DriverUrl::Kubernetes => return Err(Error::NotBuilt("kubernetes driver")),
    };
    let (builder, stop) = builder::open(&settings.builder, &driver, clock.clone()).await?;
    let mut created = Vec::new();
    let Store { tokens, history, .. } = store::open(&url, settings.store.key_dir.as_deref(), &mut created).await?;
    let rng = Arc::new(SystemRng);
    let ports = Ports { tokens, history, rollouts, builder, clock, rng };
    Ok(Opened { ports, store: url, created, builder: stop })
}
