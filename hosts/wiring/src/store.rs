//! Opens the named store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rollhook_core::ports::{ConfigurationStore, HistoryStore, TokenStore};
use rollhook_management::ports::{RecordStore, Sealer};
use rollhook_memory::MemoryStore;

use crate::{Error, StoreUrl, keys::StoreKeys};

/// A store, opened.
pub(crate) struct Store {
    pub(crate) tokens: Arc<dyn TokenStore>,
    pub(crate) history: Arc<dyn HistoryStore>,
    pub(crate) configurations: Arc<dyn ConfigurationStore>,
    pub(crate) records: Arc<dyn RecordStore>,
    /// The store's keys, if it seals.
    pub(crate) sealed: Option<Arc<dyn StoreKeys>>,
    /// The sealer of secrets that the service keeps as records, if the build seals.
    pub(crate) sealer: Option<Arc<dyn Sealer>>,
}

impl Store {
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
    fn sealing<S>(store: S) -> Self
    where
        S: TokenStore + HistoryStore + ConfigurationStore + RecordStore + StoreKeys + 'static,
        StoreSealer<S>: Sealer,
    {
        let store = Arc::new(store);
        let sealer = Some(Arc::new(StoreSealer(store.clone())) as _);
        let sealed = Some(store.clone() as _);
        Self::of(store, sealed, sealer)
    }

    fn of<S: TokenStore + HistoryStore + ConfigurationStore + RecordStore + 'static>(
        store: Arc<S>,
        sealed: Option<Arc<dyn StoreKeys>>,
        sealer: Option<Arc<dyn Sealer>>,
    ) -> Self {
        Self {
            tokens: store.clone(),
            history: store.clone(),
            configurations: store.clone(),
            records: store,
            sealed,
            sealer,
        }
    }
}

/// The keys of a store, for secrets that the service keeps as records.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
pub(crate) struct StoreSealer<S>(pub(crate) Arc<S>);

/// Returns a sealer for what is in this process's memory alone.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
fn of_this_process() -> Option<Arc<dyn Sealer>> {
    use rollhook_core::ports::Rng;

    let mut key = [0; rollhook_sealing::KEY_BYTES];
    crate::SystemRng.fill(&mut key);
    Some(Arc::new(rollhook_sealing::KeyRing::of_key(key)))
}

/// Returns no sealer: this build seals nothing.
#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "kubernetes")))]
fn of_this_process() -> Option<Arc<dyn Sealer>> {
    None
}

/// A file or directory that was missing, and was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The purpose, in a word or two.
    pub what: &'static str,
    /// The path.
    pub path: PathBuf,
}

/// Opens a store that exists, for a command beside the servers: an empty one in its place would take what was meant for
/// another.
pub(crate) async fn open_existing(url: &StoreUrl, key_dir: Option<&Path>) -> Result<Store, Error> {
    if let StoreUrl::Sqlite(file) = url
        && !file.exists()
    {
        return Err(Error::NoStore(file.clone()));
    }
    open(url, key_dir, Duration::ZERO, &mut Vec::new()).await
}

/// Opens the store; missing files that are created are added to `created`. A cluster that does not answer is waited for
/// as long as `patience`.
pub(crate) async fn open(
    url: &StoreUrl,
    key_dir: Option<&Path>,
    patience: Duration,
    created: &mut Vec<Created>,
) -> Result<Store, Error> {
    match url {
        StoreUrl::Memory => Ok(Store::of(Arc::new(MemoryStore::on_system_time()), None, of_this_process())),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(file) => Ok(with_key_warnings(sqlite(file, key_dir, created).await?).await),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => {
            let ring = given_keys("postgres", key_dir)?;
            let store = rollhook_postgres::PostgresStore::connect(url.expose(), ring).await;
            let store = store.map_err(|error| Error::backend("postgres store")(error.into()))?;
            Ok(with_key_warnings(Store::sealing(store)).await)
        }
        #[cfg(feature = "kubernetes")]
        StoreUrl::Kubernetes => {
            let ring = given_keys("kubernetes", key_dir)?;
            let store = rollhook_kubernetes::KubernetesStore::connect(ring, patience).await;
            Ok(Store::sealing(store.map_err(|error| Error::backend("kubernetes store")(error.into()))?))
        }
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "kubernetes")))]
        _ => {
            let _ = (key_dir, patience, created);
            Err(Error::NotBuilt(url.kind()))
        }
    }
}

/// Warns of secrets that do not open. The process starts even so: webhooks can be enabled anew.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
async fn with_key_warnings(store: Store) -> Store {
    let usage = match &store.sealed {
        Some(sealed) => sealed.usage().await.unwrap_or_default(),
        None => Vec::new(),
    };
    for used in usage.into_iter().filter(|used| !used.held) {
        tracing::warn!(
            key = used.key,
            secrets = used.secrets,
            "secrets are sealed with a key that is not in the key directory: until it is there, configurations do not open, and \
             webhooks only if they are enabled anew. Is it the directory that the other processes on this store use?"
        );
    }
    store
}

#[cfg(feature = "sqlite")]
async fn sqlite(file: &Path, key_dir: Option<&Path>, created: &mut Vec<Created>) -> Result<Store, Error> {
    use rollhook_sealing::KeyRing;

    use crate::paths;

    let fail = Error::backend("sqlite store");
    let keys = match key_dir {
        Some(directory) => directory.to_owned(),
        None => paths::in_data_directory("keys", "--key-dir")?,
    };
    // Read before the keys: the process that made the database had made a key before.
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
        created.push(Created { what: "key directory", path: keys });
    }
    paths::make_parent(file)?;
    if !file.exists() {
        created.push(Created { what: "database", path: file.to_owned() });
    }
    Ok(Store::sealing(rollhook_sqlite::SqliteStore::open(file, ring).await.map_err(|error| fail(error.into()))?))
}

/// Returns the keys of a store that replicas share: a replica with keys of its own could not open the others' tokens.
#[cfg(any(feature = "postgres", feature = "kubernetes"))]
fn given_keys(store: &'static str, directory: Option<&Path>) -> Result<rollhook_sealing::KeyRing, Error> {
    let directory = directory.ok_or(Error::NoKeyDirectory(store))?;
    rollhook_sealing::KeyRing::load(directory).map_err(|error| Error::backend("key directory")(error.into()))
}
