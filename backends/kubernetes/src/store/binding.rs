//! The rollout driver that the store's apps are deployed by: the holder of a Lease in our own namespace.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::ObjectMeta;
use rollhook_core::{
    Result,
    ports::{Binding, DriverIdentity},
};

use super::{
    KubernetesStore,
    api::{Written, create, get, replace},
    heartbeat::LEASE_LABEL,
};
use crate::error::contended;

const NAME: &str = "rollhook-driver";
/// The number of attempts to write the Lease while others write it as well.
const ATTEMPTS: usize = 24;

impl KubernetesStore {
    pub(crate) async fn bind(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        let api = self.api.own::<Lease>();
        for _ in 0..ATTEMPTS {
            let found: Option<Lease> = get(&api, NAME).await?;
            let held = found.as_ref().and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
            let written = match (found, held) {
                (Some(_), Some(held)) if binding == Binding::First || held == driver.0 => {
                    return Ok(DriverIdentity(held));
                }
                (Some(lease), _) => replace(&api, &held_by(driver, lease)).await?,
                (None, _) => create(&api, &held_by(driver, Lease::default())).await?,
            };
            if let Written::Done(_) = written {
                return Ok(driver.clone());
            }
        }
        Err(contended())
    }
}

fn held_by(driver: &DriverIdentity, lease: Lease) -> Lease {
    let metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        labels: Some([(LEASE_LABEL.to_owned(), "driver".to_owned())].into()),
        ..lease.metadata
    };
    Lease { metadata, spec: Some(LeaseSpec { holder_identity: Some(driver.0.clone()), ..LeaseSpec::default() }) }
}
