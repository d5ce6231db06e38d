//! What all calls share.

use std::sync::Arc;

use rollhook_core::service::Deployer;
use tokio::sync::{Semaphore, watch};

use crate::{limits::Limits, measured::Writable, metrics::Metrics, source::Proxies};

/// The core, and what stands around it.
pub(crate) struct Host {
    pub(crate) deployer: Arc<Deployer>,
    pub(crate) base_url: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) proxies: Proxies,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) writable: Writable,
    pub(crate) drain: Drain,
    pub(crate) large_bodies: Arc<Semaphore>,
}

/// Whether the server is stopping.
#[derive(Clone)]
pub(crate) struct Drain(watch::Receiver<bool>);

impl Drain {
    /// A drain that has not begun, and what begins it.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (begin, begun) = watch::channel(false);
        (begin, Self(begun))
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it has begun; also when the server is gone altogether.
    pub(crate) async fn begun(&self) {
        let _ = self.0.clone().wait_for(|begun| *begun).await;
    }
}
