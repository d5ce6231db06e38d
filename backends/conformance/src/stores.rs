//! What the store suites need of a backend.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    app::AppUid,
    deploy::Revision,
    ports::{HistoryStore, TokenStore},
};

use crate::report::Can;

/// One handle on a store: what one replica holds.
#[derive(Clone)]
pub struct Handles {
    /// Apps and their history.
    pub history: Arc<dyn HistoryStore>,
    /// The secrets.
    pub tokens: Arc<dyn TokenStore>,
}

/// One fresh store, and what a test must be able to do to it.
///
/// The apps of all cases are in [`samples::NAMESPACES`](crate::samples::NAMESPACES).
#[async_trait]
pub trait Stores: Send + Sync {
    /// Opens another handle on the store, as a further replica would: nothing is shared with earlier ones but what is
    /// stored.
    async fn open(&self) -> Handles;

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

    /// All that is stored, as it is stored.
    async fn raw_bytes(&self) -> Can<Vec<u8>>;

    /// Moves the sealed token of one app to another where it is stored.
    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can;
}
