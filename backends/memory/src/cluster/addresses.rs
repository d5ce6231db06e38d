//! Addresses of the simulated cluster's pods: none, unless a test says where they are.

use std::net::SocketAddr;

use async_trait::async_trait;
use rollhook_core::{
    Result,
    instance::InstanceName,
    ports::{InstanceAddress, InstanceAddresses, ReadyInstances, RolloutSpec},
};

use super::{SimulatedCluster, key};

/// The address of a pod's port, by the pod's name; `None`: it has none.
pub(super) type Addresses = Box<dyn Fn(&InstanceName, u16) -> Option<SocketAddr> + Send>;

impl SimulatedCluster {
    /// Gives pods addresses, by their name and the port that is asked for. Without this they have none.
    pub fn address_pods(&self, addresses: impl Fn(&InstanceName, u16) -> Option<SocketAddr> + Send + 'static) {
        self.lock().addresses = Some(Box::new(addresses));
    }
}

#[async_trait]
impl InstanceAddresses for SimulatedCluster {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        let key = key(&spec.app, &spec.target);
        let Some(running) = world.workloads.get(&key) else { return Ok(ReadyInstances::default()) };
        let ready = running.ready_pods(spec, &world.scripts, now, self.delay);
        Ok(ReadyInstances::of(ready.into_iter().map(|pod| {
            let instance = InstanceName::shortened(&format!("{}-{}", key.2, pod.id));
            let address = world.addresses.as_ref().and_then(|address| address(&instance, port));
            InstanceAddress { instance, address }
        })))
    }
}
