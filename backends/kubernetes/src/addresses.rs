//! The addresses of a deploy's pods.

use async_trait::async_trait;
use rollhook_core::{
    Result,
    ports::{InstanceAddresses, ReadyInstances, RolloutSpec},
};

use crate::{KubernetesCluster, for_app, rules::addresses, workload::Rollout};

#[async_trait]
impl InstanceAddresses for KubernetesCluster {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        for_app(async {
            let rollout = Rollout::of(spec)?;
            let Some(object) = self.cluster.observed_target(&rollout).await? else {
                return Ok(ReadyInstances::default());
            };
            let pods = self.cluster.pods(&rollout, &object).await?;
            Ok(addresses::of(&rollout, &object, &pods, port))
        })
        .await
    }
}
