//! Kubernetes Events about deploys, where the cluster is the driver or the store.

#[cfg(feature = "kubernetes")]
use std::sync::Arc;

use rollhook_core::ports::DeployObserver;
#[cfg(feature = "kubernetes")]
use rollhook_kubernetes::{EventObjects, KubernetesEvents};

#[cfg(feature = "kubernetes")]
use crate::machine;
use crate::{DriverUrl, Error, StoreUrl};

/// The handle that writes the last Events of a process.
#[derive(Default)]
pub struct EventsStop(#[cfg(feature = "kubernetes")] Option<Arc<KubernetesEvents>>);

impl EventsStop {
    /// Writes the Events that wait; to be called after the engine has ended. Takes 2 s at most.
    pub async fn stop(self) {
        #[cfg(feature = "kubernetes")]
        if let Some(events) = self.0 {
            events.stop().await;
        }
    }
}

/// The observers that write Events, and the handle that stops them.
type Observers = (Vec<std::sync::Arc<dyn DeployObserver>>, EventsStop);

#[cfg(feature = "kubernetes")]
pub(crate) async fn open(driver: DriverUrl, store: &StoreUrl) -> Result<Observers, Error> {
    let objects = EventObjects {
        workloads: matches!(driver, DriverUrl::Kubernetes),
        apps: matches!(store, StoreUrl::Kubernetes),
    };
    if !objects.workloads && !objects.apps {
        return Ok(Observers::default());
    }
    let events = KubernetesEvents::connect(objects, &machine()).await;
    let events = Arc::new(events.map_err(|error| Error::backend("Kubernetes events")(error.into()))?);
    Ok((vec![events.clone()], EventsStop(Some(events))))
}

#[cfg(not(feature = "kubernetes"))]
pub(crate) async fn open(_: DriverUrl, _: &StoreUrl) -> Result<Observers, Error> {
    Ok(Observers::default())
}
