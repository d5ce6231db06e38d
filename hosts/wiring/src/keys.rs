//! The keys that secrets are sealed with: new ones, their replacement and their use.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
use std::collections::BTreeMap;
use std::{path::Path, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use rollhook_core::Result as PortResult;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
use rollhook_management::{
    notifications::{reseal_receivers, sealed_receiver_secrets},
    ports::Sealer,
};
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
use rollhook_sealing::text;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
use zeroize::Zeroizing;

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
use crate::store::StoreSealer;
use crate::{Error, StoreSettings, store};

/// A key that secrets are sealed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The key's name.
    pub key: String,
    /// The number of tokens, configurations and receivers' secrets that it seals.
    pub secrets: u64,
    /// Whether it is in the key directory; without it, its secrets do not open.
    pub held: bool,
}

/// The keys of an opened store that seals.
#[async_trait]
pub trait StoreKeys: Send + Sync {
    /// Seals every token, configuration and receiver's secret with the newest key, and returns how many had another.
    async fn reseal(&self) -> PortResult<u64>;

    /// Returns the keys in use; other keys may be deleted.
    async fn usage(&self) -> PortResult<Vec<KeyUse>>;

    /// Returns the time at which the file of the newest key was written, if it is known.
    fn key_written(&self) -> Option<SystemTime>;
}

macro_rules! store_keys {
    ($feature:literal, $store:ty) => {
        #[cfg(feature = $feature)]
        #[async_trait]
        impl StoreKeys for $store {
            async fn reseal(&self) -> PortResult<u64> {
                let primary = self.ring().primary();
                let is_old = |sealed: &str| text::key_of(sealed).is_ok_and(|key| key != primary);
                let receivers = reseal_receivers(self, self.ring(), is_old).await?;
                Ok(<$store>::reseal(self).await? + receivers)
            }

            async fn usage(&self) -> PortResult<Vec<KeyUse>> {
                let held = |id: &_| self.ring().has(id);
                let mut used: BTreeMap<_, _> = self.keys_in_use().await?.into_iter().collect();
                for sealed in sealed_receiver_secrets(self).await? {
                    *used.entry(text::key_of(&sealed)?).or_default() += 1;
                }
                let used = used.into_iter();
                Ok(used.map(|(id, secrets)| KeyUse { held: held(&id), key: id.to_string(), secrets }).collect())
            }

            fn key_written(&self) -> Option<SystemTime> {
                self.ring().primary_written()
            }
        }

        #[cfg(feature = $feature)]
        impl Sealer for StoreSealer<$store> {
            fn seal(&self, text: &str, purpose: &str) -> PortResult<String> {
                Sealer::seal(self.0.ring(), text, purpose)
            }

            fn open(&self, sealed: &str, purpose: &str) -> PortResult<Zeroizing<String>> {
                Sealer::open(self.0.ring(), sealed, purpose)
            }
        }
    };
}

store_keys!("sqlite", rollhook_sqlite::SqliteStore);
store_keys!("postgres", rollhook_postgres::PostgresStore);
store_keys!("kubernetes", rollhook_kubernetes::KubernetesStore);

/// Opens a store for its keys.
///
/// # Errors
/// If store or keys cannot be opened, or the store does not seal.
pub async fn open(settings: &StoreSettings) -> Result<Arc<dyn StoreKeys>, Error> {
    let url = settings.named()?;
    let opened = store::open_existing(&url, settings.key_dir.as_deref()).await?;
    let none = || Error::backend("store's keys")(format!("the {url} store seals nothing").into());
    opened.sealed.ok_or_else(none)
}

/// Adds a key to a key directory, which is created if it is missing, and returns the key's name.
///
/// # Errors
/// If the directory cannot be used, or the build does not seal.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
pub fn create(directory: &Path) -> Result<String, Error> {
    let made = rollhook_sealing::KeyRing::create_key(directory);
    Ok(made.map_err(|error| Error::backend("key directory")(error.into()))?.to_string())
}

/// Adds a key to a key directory, which is created if it is missing, and returns the key's name.
///
/// # Errors
/// If the directory cannot be used, or the build does not seal.
#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "kubernetes")))]
pub fn create(_directory: &Path) -> Result<String, Error> {
    Err(Error::NotBuilt("sealing"))
}
