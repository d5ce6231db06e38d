//! Opens the named store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rollhook_core::ports::{HistoryStore, TokenStore};
use rollhook_memory::MemoryStore;

use crate::{Error, StoreSpec, keys::Resealed};

/// A store, opened.
pub(crate) struct Store {
    pub(crate) tokens: Arc<dyn TokenStore>,
    pub(crate) history: Arc<dyn HistoryStore>,
    /// What can be done with its keys, where it seals.
    pub(crate) sealed: Option<Arc<dyn Resealed>>,
}

impl Store {
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
    fn sealing<S: TokenStore + HistoryStore + Resealed + 'static>(store: S) -> Self {
        let store = Arc::new(store);
        Self { tokens: store.clone(), history: store.clone(), sealed: Some(store) }
    }
}

/// Something that was made because it was missing: a word for what it is, and where it is.
pub type Made = (&'static str, String);

/// Opens the store; what is made because it was missing is added to `made`.
pub(crate) async fn open(spec: &StoreSpec, key_dir: Option<&Path>, made: &mut Vec<Made>) -> Result<Store, Error> {
    match spec {
        StoreSpec::Memory => {
            let store = Arc::new(MemoryStore::on_system_time());
            Ok(Store { tokens: store.clone(), history: store, sealed: None })
        }
        StoreSpec::Sqlite(file) => Ok(with_its_keys(sqlite(file, key_dir, made).await?).await),
        StoreSpec::Postgres(url) => Ok(with_its_keys(postgres(url.expose(), key_dir).await?).await),
        StoreSpec::Kubernetes => kubernetes(key_dir).await,
    }
}

/// Says which tokens will not open. A lost key is no reason not to start: its webhooks can be enabled anew.
async fn with_its_keys(store: Store) -> Store {
    let usage = match &store.sealed {
        Some(sealed) => sealed.usage().await.unwrap_or_default(),
        None => Vec::new(),
    };
    for used in usage.into_iter().filter(|used| !used.held) {
        tracing::warn!(
            key = used.key,
            tokens = used.tokens,
            "tokens are sealed with a key that is not in the key directory: their webhooks do not open until it is, or \
             until they are enabled anew. Is it the directory that the other processes on this store use?"
        );
    }
    store
}

#[cfg(feature = "sqlite")]
async fn sqlite(file: &PathBuf, key_dir: Option<&Path>, made: &mut Vec<Made>) -> Result<Store, Error> {
    use rollhook_sealing::KeyRing;

    use crate::paths;

    let fail = Error::backend("sqlite store");
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
        made.push(("key directory", keys.display().to_string()));
    }
    paths::make_parent(file)?;
    if !file.exists() {
        made.push(("database", file.display().to_string()));
    }
    Ok(Store::sealing(rollhook_sqlite::SqliteStore::open(file, ring).await.map_err(|error| fail(error.into()))?))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &PathBuf, _: Option<&Path>, _: &mut Vec<Made>) -> Result<Store, Error> {
    Err(Error::NotBuilt("sqlite store"))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str, key_dir: Option<&Path>) -> Result<Store, Error> {
    let ring = given_keys("postgres", key_dir)?;
    let store = rollhook_postgres::PostgresStore::connect(url, ring).await;
    Ok(Store::sealing(store.map_err(|error| Error::backend("postgres store")(error.into()))?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str, _: Option<&Path>) -> Result<Store, Error> {
    Err(Error::NotBuilt("postgres store"))
}

#[cfg(feature = "kubernetes")]
async fn kubernetes(key_dir: Option<&Path>) -> Result<Store, Error> {
    let ring = given_keys("kubernetes", key_dir)?;
    let store = rollhook_kubernetes::KubernetesStore::connect(ring).await;
    Ok(Store::sealing(store.map_err(|error| Error::backend("kubernetes store")(error.into()))?))
}

#[cfg(not(feature = "kubernetes"))]
async fn kubernetes(_: Option<&Path>) -> Result<Store, Error> {
    Err(Error::NotBuilt("kubernetes store"))
}

/// The keys of a store that replicas share: a replica that made one up could not open what the others sealed.
#[cfg(any(feature = "postgres", feature = "kubernetes"))]
fn given_keys(store: &'static str, directory: Option<&Path>) -> Result<rollhook_sealing::KeyRing, Error> {
    let directory = directory.ok_or(Error::NoKeyDirectory(store))?;
    rollhook_sealing::KeyRing::load(directory).map_err(|error| Error::backend("key directory")(error.into()))
}
