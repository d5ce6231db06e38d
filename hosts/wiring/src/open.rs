//! Opens the named backends and puts them together as ports.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rollhook_core::{
    ports::{Apps, Clock, History, Rollouts, Tokens},
    service::Ports,
};
use rollhook_memory::{MemoryStore, SimulatedCluster};

use crate::{DriverSpec, Error, StoreSpec, SystemClock, SystemEntropy, paths};

/// Which backends a host wants.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store; none: SQLite in the data directory.
    pub store: Option<StoreSpec>,
    /// What rolls out.
    pub driver: DriverSpec,
    /// Where the keys are that tokens are sealed with; none: in the data directory.
    pub key_dir: Option<PathBuf>,
}

/// The backends, opened.
pub struct Opened {
    /// Them, as the core wants them.
    pub ports: Ports,
    /// The store that was opened.
    pub store: StoreSpec,
    /// What was made because it was missing: a word for what it is, and where it is.
    pub made: Vec<(&'static str, PathBuf)>,
}

/// Opens the backends.
///
/// # Errors
/// [`Error`], with what to do about it.
pub async fn open(settings: &Settings) -> Result<Opened, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let spec = match &settings.store {
        Some(spec) => spec.clone(),
        None => StoreSpec::Sqlite(paths::database().ok_or(Error::NoDataDirectory("--store"))?),
    };
    // The driver goes first: where it cannot be opened, nothing is made.
    let rollouts = match settings.driver {
        DriverSpec::Simulated(delay) => simulated(clock.clone(), delay),
        DriverSpec::Kubernetes => kubernetes().await?,
    };
    let mut made = Vec::new();
    let (apps, tokens, history) = match &spec {
        StoreSpec::Memory => split(Arc::new(MemoryStore::on_system_time())),
        StoreSpec::Sqlite(file) => sqlite(file, settings.key_dir.as_deref(), &mut made).await?,
    };
    let entropy = Arc::new(SystemEntropy);
    Ok(Opened { ports: Ports { apps, tokens, history, rollouts, clock, entropy }, store: spec, made })
}

type Store = (Arc<dyn Apps>, Arc<dyn Tokens>, Arc<dyn History>);

fn split<S: Apps + Tokens + History + 'static>(store: Arc<S>) -> Store {
    (store.clone(), store.clone(), store)
}

fn simulated(clock: Arc<dyn Clock>, delay: Duration) -> Arc<dyn Rollouts> {
    Arc::new(SimulatedCluster::new(clock, delay))
}

#[cfg(feature = "kubernetes")]
async fn kubernetes() -> Result<Arc<dyn Rollouts>, Error> {
    let cluster = rollhook_kubernetes::KubernetesCluster::connect().await;
    let cluster = cluster.map_err(|source| Error::Backend { what: "kubernetes driver", source: source.into() })?;
    Ok(Arc::new(cluster))
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes() -> Result<Arc<dyn Rollouts>, Error> {
    Err(Error::NotBuilt("kubernetes driver"))
}

#[cfg(feature = "sqlite")]
async fn sqlite(file: &Path, key_dir: Option<&Path>, made: &mut Vec<(&'static str, PathBuf)>) -> Result<Store, Error> {
    use rollhook_sealing::KeyRing;

    let fail = |source: Box<dyn std::error::Error + Send + Sync>| Error::Backend { what: "sqlite store", source };
    let keys = match key_dir {
        Some(directory) => directory.to_owned(),
        None => paths::keys().ok_or(Error::NoDataDirectory("--key-dir"))?,
    };
    // Looked at before the keys: whoever made the database had made a key before.
    let known = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let first_key = matches!(KeyRing::load(&keys), Err(rollhook_sealing::Error::NoKey { .. }));
    if first_key && known {
        let (file, keys) = (file.display(), keys.display());
        return Err(fail(
            format!(
                "{file} is there, and the keys that its tokens are sealed with are not in {keys}: name their directory \
                 with --key-dir; if they are lost, make one (rollhook-server keys new {keys}) and enable each webhook anew"
            )
            .into(),
        ));
    }
    let ring = KeyRing::load_or_create(&keys).map_err(|error| fail(error.into()))?;
    if first_key {
        made.push(("key directory", keys));
    }
    paths::make_parent(file)?;
    if !file.exists() {
        made.push(("database", file.to_owned()));
    }
    let store = rollhook_sqlite::SqliteStore::open(file, ring).await.map_err(|error| fail(error.into()))?;
    Ok(split(Arc::new(store)))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &Path, _: Option<&Path>, _: &mut Vec<(&'static str, PathBuf)>) -> Result<Store, Error> {
    Err(Error::NotBuilt("sqlite store"))
}

/// Adds a key to a key directory, making the directory where there is none; returns the key's name.
///
/// # Errors
/// Where the directory cannot be used, or the build does not seal.
#[cfg(feature = "sqlite")]
pub fn new_key(directory: &Path) -> Result<String, Error> {
    match rollhook_sealing::KeyRing::create_key(directory) {
        Ok(id) => Ok(id.to_string()),
        Err(error) => Err(Error::Backend { what: "key directory", source: error.into() }),
    }
}

/// Adds a key to a key directory, making the directory where there is none; returns the key's name.
///
/// # Errors
/// Where the directory cannot be used, or the build does not seal.
#[cfg(not(feature = "sqlite"))]
pub fn new_key(_directory: &Path) -> Result<String, Error> {
    Err(Error::NotBuilt("sealing"))
}
