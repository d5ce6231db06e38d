//! The suites of rollouts and of release commands on the simulated cluster below [`Workloads`]: of apps with one workload,
//! which are handed on, and of apps with two.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../conformance/tests/simulated/mod.rs"]
mod simulated;

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_conformance::{Can, Clusters, Does, Instance, Releases, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::{ReleaseRun, RolloutDriver},
};
use rollhook_workloads::Workloads;
use serde_json::json;

use crate::simulated::Simulated;

/// The cluster of apps with so many further workloads.
struct Several {
    inner: Simulated,
    further: bool,
}

impl Several {
    fn fresh(further: bool) -> Can<Self> {
        Ok(Self { inner: Simulated::fresh()?, further })
    }

    fn worker(app: &AppId) -> Target {
        let settings = json!({ "kind": "Deployment", "name": format!("{}-worker", app.name), "containers": ["app"] });
        Target { settings: samples::settings(settings), ..Target::default() }
    }
}

#[async_trait]
impl Clusters for Several {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        Arc::new(Workloads::over(self.inner.cluster.clone()))
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(self.rollouts())
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        self.inner.away().await?;
        Ok(self.rollouts())
    }

    fn app(&self, name: &str) -> AppId {
        let app = self.inner.app(name);
        if self.further && self.inner.cluster.pods(&app, &Self::worker(&app)).is_none() {
            // Further workloads exist before the app does.
            self.inner.cluster.seed(&app, &Self::worker(&app), &samples::image("v1"));
        }
        app
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        self.inner.image(sample)
    }

    fn settings(&self, app: &AppId) -> Settings {
        let mut settings = self.inner.settings(app);
        if self.further {
            settings.insert("also".to_owned(), json!([format!("+Deployment/{}-worker:app", app.name)]));
        }
        settings
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        if self.further {
            return Ok((samples::settings(json!({ "also": ["worker"] })), "workload.also"));
        }
        self.inner.invalid_settings()
    }

    async fn prepare(&self, app: &AppId) -> Can {
        self.inner.prepare(app).await
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        self.inner.push(image, sample).await
    }

    async fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> Can {
        self.inner.meddle(app, target, image).await
    }

    async fn remove(&self, app: &AppId, target: &Target) -> Can {
        self.inner.remove(app, target).await
    }

    async fn fingerprint(&self, app: &AppId, target: &Target) -> String {
        let worker = self.inner.fingerprint(app, &Self::worker(app)).await;
        self.inner.fingerprint(app, target).await + &worker
    }

    async fn configuration(&self, app: &AppId, target: &Target) -> Can<String> {
        self.inner.configuration(app, target).await
    }

    async fn instances(&self, app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        let mut instances = self.inner.instances(app, target).await?;
        if self.further {
            let workers = self.inner.instances(app, &Self::worker(app)).await?;
            instances.extend(workers.into_iter().map(|one| Instance { id: format!("worker {}", one.id), ..one }));
        }
        Ok(instances)
    }

    fn made_with_settings(&self) -> Option<[Settings; 2]> {
        self.inner.made_with_settings()
    }

    async fn made_with(&self, app: &AppId, target: &Target) -> Can<Vec<String>> {
        if self.further {
            let workers = self.inner.made_with(app, &Self::worker(app)).await?;
            assert!(workers.iter().all(|made| made == "None"), "settings are of the app's own workload: {workers:?}");
        }
        self.inner.made_with(app, target).await
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        self.inner.digest(image).await
    }

    async fn logged(&self, app: &AppId, target: &Target) -> Can<String> {
        self.inner.logged(app, target).await
    }

    fn container(&self) -> Option<&'static str> {
        self.inner.container()
    }

    async fn pause(&self) {
        self.inner.pause().await;
    }
}

#[async_trait]
impl Releases for Several {
    fn command(&self, does: Does) -> Vec<String> {
        self.inner.command(does)
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        self.inner.times_begun(run).await
    }
}

mod one {
    use rollhook_conformance::block_on;

    use super::Several;

    rollhook_conformance::rollouts!(block_on, Several::fresh(false));
    rollhook_conformance::releases!(block_on, Several::fresh(false));
}

mod two {
    use rollhook_conformance::block_on;

    use super::Several;

    rollhook_conformance::rollouts!(block_on, Several::fresh(true));
    rollhook_conformance::releases!(block_on, Several::fresh(true));
}
