//! The keys that tokens are sealed with: made, replaced, and told.

use std::path::Path;

use async_trait::async_trait;
use rollhook_core::Result as PortResult;

use crate::{Error, StoreSettings, store};

/// A key that tokens are sealed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Its name.
    pub key: String,
    /// How many are.
    pub tokens: u64,
    /// Whether it is in the key directory; tokens do not open without.
    pub held: bool,
}

/// A store that seals.
#[async_trait]
pub(crate) trait Resealed: Send + Sync {
    /// Seals with the newest key what is not sealed with it, and says how many.
    async fn reseal(&self) -> PortResult<u64>;

    /// The keys in use.
    async fn usage(&self) -> PortResult<Vec<KeyUse>>;
}

macro_rules! resealed {
    ($feature:literal, $store:ty) => {
        #[cfg(feature = $feature)]
        #[async_trait]
        impl Resealed for $store {
            async fn reseal(&self) -> PortResult<u64> {
                <$store>::reseal(self).await
            }

            async fn usage(&self) -> PortResult<Vec<KeyUse>> {
                let held = |id: &_| self.ring().has(id);
                let used = self.keys_in_use().await?.into_iter();
                Ok(used.map(|(id, tokens)| KeyUse { held: held(&id), key: id.to_string(), tokens }).collect())
            }
        }
    };
}

resealed!("sqlite", rollhook_sqlite::SqliteStore);
resealed!("postgres", rollhook_postgres::PostgresStore);
resealed!("kubernetes", rollhook_kubernetes::KubernetesStore);

/// What became of a store's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// The tokens that were sealed anew.
    pub resealed: u64,
    /// The keys in use now; one that is not named here is needed no more.
    pub usage: Vec<KeyUse>,
}

/// Tells which keys a store's tokens are sealed with; with `reseal`, after sealing all of them with the newest.
///
/// # Errors
/// Where store or keys cannot be opened, or the store does not seal.
pub async fn report(settings: &StoreSettings, reseal: bool) -> Result<KeyReport, Error> {
    let fail = Error::backend("store's keys");
    let spec = settings.named()?;
    let opened = store::open(&spec, settings.key_dir.as_deref(), &mut Vec::new()).await?;
    let sealed = opened.sealed.ok_or_else(|| fail(format!("the {spec} store seals nothing").into()))?;
    let resealed = if reseal { sealed.reseal().await.map_err(|error| fail(error.into()))? } else { 0 };
    let usage = sealed.usage().await.map_err(|error| fail(error.into()))?;
    Ok(KeyReport { resealed, usage })
}

/// Adds a key to a key directory, making the directory where there is none; returns the key's name.
///
/// # Errors
/// Where the directory cannot be used, or the build does not seal.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "kubernetes"))]
pub fn create(directory: &Path) -> Result<String, Error> {
    let made = rollhook_sealing::KeyRing::create_key(directory);
    Ok(made.map_err(|error| Error::backend("key directory")(error.into()))?.to_string())
}

/// Adds a key to a key directory, making the directory where there is none; returns the key's name.
///
/// # Errors
/// Where the directory cannot be used, or the build does not seal.
#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "kubernetes")))]
pub fn create(_directory: &Path) -> Result<String, Error> {
    Err(Error::NotBuilt("sealing"))
}
