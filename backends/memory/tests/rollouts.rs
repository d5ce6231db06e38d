//! The rollout suite, on the simulated cluster.

mod clock;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::ByHand;
use rollhook_conformance::{Can, Clusters, Sample, block_on, samples};
use rollhook_core::{
    app::{AppId, Template, Workload},
    image::ImageRef,
    ports::RolloutDriver,
};
use rollhook_memory::SimulatedCluster;

struct Simulated {
    clock: Arc<ByHand>,
    cluster: Arc<SimulatedCluster>,
}

impl Simulated {
    fn fresh() -> Can<Self> {
        let clock = Arc::new(ByHand::default());
        let cluster = Arc::new(SimulatedCluster::new(clock.clone(), Duration::from_secs(2)));
        Ok(Self { clock, cluster })
    }
}

#[async_trait]
impl Clusters for Simulated {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.cluster.clone()
    }

    fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        self.cluster.set_reachable(false);
        Ok(self.cluster.clone())
    }

    fn app(&self, name: &str) -> AppId {
        samples::app("shop", "test", name).id
    }

    fn image(&self, sample: Sample) -> ImageRef {
        samples::image(match sample {
            Sample::Good => "v1",
            Sample::Another => "v2",
            Sample::Missing => "missing",
            Sample::Crashing => "crash",
        })
    }

    fn template(&self) -> Template {
        Template { replicas: 3, port: None, env: Default::default(), pull_secret: None, readiness_path: None }
    }

    async fn prepare(&self, app: &AppId) -> Workload {
        let workload = samples::workload(app.name.as_str());
        self.cluster.seed(app, &workload, &self.image(Sample::Good));
        workload
    }

    async fn fingerprint(&self, app: &AppId, workload: &Workload) -> String {
        self.cluster.effects_on(app, workload).len().to_string()
    }

    async fn pause(&self) {
        self.clock.advance(Duration::from_millis(250));
    }
}

rollhook_conformance::rollouts!(block_on, Simulated::fresh());
