//! Addresses of instances that break a promise, and the case that notices.

use async_trait::async_trait;
use rollhook_conformance::addresses::{
    addresses_are_of_ready_instances_of_the_deploy, addresses_have_no_old_instance,
    addresses_of_a_restore_are_of_what_it_keeps,
};
use rollhook_core::{
    Result,
    instance::InstanceName,
    ports::{InstanceAddress, InstanceAddresses, ReadyInstances, RolloutSpec},
};

use crate::{
    driver::{Broken, Promise},
    notices,
};

#[async_trait]
impl InstanceAddresses for Broken {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let running = self.cluster.running(&spec.app, &spec.target);
        let named = |id: &str| InstanceAddress {
            instance: InstanceName::shortened(&format!("{}-{id}", spec.app.name)),
            address: None,
        };
        Ok(match self.promise {
            // Whatever serves now, old instances among them.
            Promise::AddressesAreOwn => ReadyInstances::of(running.iter().map(|pod| named(&pod.id))),
            Promise::KeptHaveAddresses => {
                let own = running.iter().filter(|pod| spec.adopted || pod.deploy == Some(spec.id));
                ReadyInstances::of(own.map(|pod| named(&pod.id)))
            }
            Promise::AddressesAreAll => {
                let mut found = self.cluster.addresses(spec, port).await?;
                found.instances.truncate(1);
                found
            }
            _ => self.cluster.addresses(spec, port).await?,
        })
    }
}

#[test]
fn broken_addresses_of_instances_are_noticed() {
    notices(Promise::AddressesAreOwn, addresses_have_no_old_instance, "or an old one, is named for 2");
    notices(Promise::AddressesAreAll, addresses_are_of_ready_instances_of_the_deploy, "instances within a minute");
    notices(Promise::KeptHaveAddresses, addresses_of_a_restore_are_of_what_it_keeps, "instances within a minute");
}
