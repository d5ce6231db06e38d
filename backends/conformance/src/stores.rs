//! The harness of the store suites.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    app::AppUid,
    configuration::ConfigurationId,
    deploy::Revision,
    ports::{ConfigurationStore, HistoryStore, TokenStore},
};
use rollhook_management::ports::RecordStore;

use crate::report::{Can, Lack};

/// One handle on a store: what one replica holds.
#[derive(Clone)]
pub struct Handles {
    /// The store of apps and their history.
    pub history: Arc<dyn HistoryStore>,
    /// The store of tokens.
    pub tokens: Arc<dyn TokenStore>,
    /// The store of configurations; `None` for a store that keeps none.
    pub configurations: Option<Arc<dyn ConfigurationStore>>,
    /// The store of the service's own records; `None` for a store that keeps none.
    pub records: Option<Arc<dyn RecordStore>>,
}

/// A fresh store, and the means of a test to disturb it.
///
/// The apps of all cases are in [`samples::NAMESPACES`](crate::samples::NAMESPACES).
#[async_trait]
pub trait Stores: Send + Sync {
    /// Opens another handle on the store, as a further replica would: nothing is shared with earlier ones but what is
    /// stored. An engine that one process alone may open is opened once: handles share it, and nothing beside it, such as
    /// what a handle remembers.
    async fn open(&self) -> Handles;

    /// Ends all that serves the store without a farewell, as a loss of power does, and opens a handle on what is left:
    /// nothing is flushed or closed before. Handles that were opened earlier are not used any more.
    async fn reopen(&self) -> Can<Handles>;

    /// Lets time pass for the caller; at once where the store's clock is moved by hand.
    async fn pause(&self, time: Duration);

    /// Moves the store's clock ahead.
    async fn advance(&self, time: Duration) -> Can;

    /// Sets the store's clock back.
    async fn set_back(&self, time: Duration) -> Can;

    /// Makes an app's state unreadable where it is stored.
    async fn corrupt_state(&self, app: AppUid) -> Can;

    /// Makes an archived deploy unreadable where it is stored.
    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can;

    /// Returns the bytes of all that is stored.
    async fn raw_bytes(&self) -> Can<Vec<u8>>;

    /// Moves the sealed token of one app to another where it is stored.
    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can;

    /// Moves the sealed form of a configuration of one app to another app's configuration, where it is stored.
    async fn move_configuration(&self, from: (AppUid, ConfigurationId), to: (AppUid, ConfigurationId)) -> Can {
        let _ = (from, to);
        Err(Lack::NotApplicable("the harness moves no configurations"))
    }
}
