//! The rollout suite, on the simulated cluster.

mod clock;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::ByHand;
use rollhook_conformance::{Can, Clusters, Sample, block_on, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::ImageRef,
    ports::RolloutDriver,
};
use rollhook_memory::SimulatedCluster;
use serde_json::json;

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

    fn settings(&self, _app: &AppId) -> Settings {
        samples::settings(json!({ "containers": ["app"], "template": { "replicas": 3 } }))
    }

    async fn prepare(&self, app: &AppId) {
        self.cluster.seed(app, &samples::target(app.name.as_str()), &self.image(Sample::Good));
    }

    async fn fingerprint(&self, app: &AppId, target: &Target) -> String {
        self.cluster.effects_on(app, target).len().to_string()
    }

    async fn pause(&self) {
        self.clock.advance(Duration::from_millis(250));
    }
}

rollhook_conformance::rollouts!(block_on, Simulated::fresh());
