//! Opens the named backends and puts them together as ports.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rollhook_core::{
    ports::{Clock, RolloutDriver},
    service::Ports,
};
use rollhook_memory::SimulatedCluster;

use crate::{
    BuilderSettings, BuilderStop, DriverSpec, Error, Made, StoreSpec, SystemClock, SystemEntropy, builder, paths,
    store::{self, Store},
};

/// Which backends a host wants.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store; none: SQLite in the data directory.
    pub store: Option<StoreSpec>,
    /// What rolls out.
    pub driver: DriverSpec,
    /// Where the keys are that tokens are sealed with; none: in the data directory, unless replicas share the store.
    pub key_dir: Option<PathBuf>,
    /// What builds git apps.
    pub builder: BuilderSettings,
}

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

/// The store that is meant where none is named.
///
/// # Errors
/// Where there is no data directory.
pub fn named_or_default(store: Option<StoreSpec>) -> Result<StoreSpec, Error> {
    match store {
        Some(spec) => Ok(spec),
        None => Ok(StoreSpec::Sqlite(paths::database().ok_or(Error::NoDataDirectory("--store"))?)),
    }
}

/// Opens the backends.
///
/// # Errors
/// [`Error`], with what to do about it.
pub async fn open(settings: &Settings) -> Result<Opened, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let spec = named_or_default(settings.store.clone())?;
    // Driver and builder go first: where they cannot be opened, nothing is made.
    let rollouts = match settings.driver {
        DriverSpec::Simulated(delay) => simulated(clock.clone(), delay),
        DriverSpec::Kubernetes => kubernetes().await?,
    };
    let (builder, stop) = builder::open(&settings.builder, &settings.driver, clock.clone()).await?;
    let mut made = Vec::new();
    let Store { apps, tokens, history, .. } = store::open(&spec, settings.key_dir.as_deref(), &mut made).await?;
    let entropy = Arc::new(SystemEntropy);
    let ports = Ports { apps, tokens, history, rollouts, builder, clock, entropy };
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
