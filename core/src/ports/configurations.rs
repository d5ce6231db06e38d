//! The port that keeps the values of configurations.

use async_trait::async_trait;

use crate::{
    app::{AppUid, Namespace},
    configuration::{ConfigurationId, Variables},
    error::Result,
    time::Timestamp,
};

/// A stored configuration, without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredConfiguration {
    /// The id under which it was put.
    pub id: ConfigurationId,
    /// The size of its stored form, in bytes.
    pub bytes: u64,
    /// The time at which it was put, by the store's clock.
    pub created_at: Timestamp,
}

/// Keeps the configurations of the apps of one [`HistoryStore`](super::HistoryStore): the states and entries there name them by
/// their ids, and the removal of an app removes them. Security: their values are secrets, and never open for another app.
///
/// - `put_then_get`: the variables come back as they were put, with any characters in their values, through every handle.
/// - `put_outlives_an_abrupt_end`: what `put` or `remove` has answered holds after a loss of power, as far as the store
///   outlives its process.
/// - `put_again_is_the_same`: a repeated `put` of the same id and variables changes nothing.
/// - `get_unknown_is_none`: an id that was never put or is removed, also if another app has it.
/// - `list_has_each_once`: those of the app, in any order, and none of another one.
/// - `bytes_of_an_environment`: the sum of what `list` has of its apps; 0 of an unknown one. A change that is being made may count
///   or not, and one that another process has just made.
/// - `remove_forgets`; removing a missing one is no error.
/// - `put_for_a_gone_app_is_not_found`: `NotFound(App)`.
/// - `configurations_go_with_their_app`: an app that is registered anew under the same name has none.
/// - `stored_configuration_is_sealed`: where the store's [`Sealing`](super::Sealing) is `Sealed`, the stored bytes hold no
///   value's text or base64, and a sealed form that was moved to another app or id is `Corrupt`.
#[async_trait]
pub trait ConfigurationStore: Send + Sync {
    /// Stores a configuration.
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()>;

    /// Returns a configuration's variables.
    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>>;

    /// Returns the app's configurations; none for an unknown app.
    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>>;

    /// Returns the bytes of all configurations of an environment's apps.
    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64>;

    /// Removes configurations.
    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()>;
}
