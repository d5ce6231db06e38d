//! Opens the named backends and puts them together as ports.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    ports::{Clock, RolloutDriver},
    service::Ports,
};
use rollhook_memory::SimulatedCluster;

use crate::{
    BuilderStop, DriverSpec, Error, Made, Settings, StoreSpec, SystemRng, TokioClock, builder,
    store::{self, Store},
};

/// The backends, opened.
pub struct Opened {
    /// Them, as the core wants them.
    pub ports: Ports,
    /// The store that was opened.
    pub store: StoreSpec,
    /// What was made because it was missing.
    pub made: Vec<Made>,
    /// What is to be called once the engine has ended.
    pub builder: BuilderStop,
}

/// Opens the backends.
///
/// # Errors
/// [`Error`], with what to do about it.
pub async fn open(settings: &Settings) -> Result<Opened, Error> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::start());
    let spec = settings.store.named()?;
    let driver = settings.driver.unwrap_or_default();
    // Driver and builder go first: where they cannot be opened, nothing is made.
    let rollouts = match driver {
        DriverSpec::Simulated(delay) => simulated(clock.clone(), delay),
        DriverSpec::Kubernetes => kubernetes().await?,
    };
    let (builder, stop) = builder::open(&settings.builder, &driver, clock.clone()).await?;
    let mut made = Vec::new();
    let Store { tokens, history, .. } = store::open(&spec, settings.store.key_dir.as_deref(), &mut made).await?;
    let rng = Arc::new(SystemRng);
    let ports = Ports { tokens, history, rollouts, builder, clock, rng };
    Ok(Opened { ports, store: spec, made, builder: stop })
}

fn simulated(clock: Arc<dyn Clock>, delay: Duration) -> Arc<dyn RolloutDriver> {
    Arc::new(SimulatedCluster::new(clock, delay))
}

#[cfg(feature = "kubernetes")]
async fn kubernetes() -> Result<Arc<dyn RolloutDriver>, Error> {
    let cluster = rollhook_kubernetes::KubernetesCluster::connect().await;
    Ok(Arc::new(cluster.map_err(|error| Error::backend("kubernetes driver")(error.into()))?))
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes() -> Result<Arc<dyn RolloutDriver>, Error> {
    Err(Error::NotBuilt("kubernetes driver"))
}
