//! The addresses of a deploy's container.

use async_trait::async_trait;
use rollhook_core::{
    Result,
    ports::{InstanceAddresses, ReadyInstances, RolloutSpec},
};

use crate::{DockerMachine, rules::addresses, settings::Rollout, target};

#[async_trait]
impl InstanceAddresses for DockerMachine {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let rollout = &Rollout::of(spec)?;
        self.in_turn(&spec.app.namespace, |engine| {
            Box::pin(async move {
                let seen = target::read(&engine, &rollout.workload).await?;
                Ok(addresses::of(&seen, rollout, port))
            })
        })
        .await
    }
}
