//! The suite of all cluster drivers.

use std::sync::Arc;

use async_trait::async_trait;
use kube::Config;
use rollhook_conformance::{Can, Clusters, Lack, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::ImageRef,
    ports::RolloutDriver,
};
use rollhook_kubernetes::{KubernetesCluster, WorkloadKind};
use serde_json::json;

use crate::bed::{self, Bed};

struct Harness {
    bed: Bed,
}

impl Harness {
    async fn fresh() -> Can<Self> {
        Ok(Self { bed: Bed::at(bed::cluster().map_err(Lack::Skip)?).await })
    }
}

#[async_trait]
impl Clusters for Harness {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.bed.driver.clone()
    }

    fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        // Nobody listens on port 1.
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        Ok(Arc::new(KubernetesCluster::with_config(config).unwrap()))
    }

    fn app(&self, name: &str) -> AppId {
        format!("{}/{name}", self.bed.namespace).parse().unwrap()
    }

    fn image(&self, sample: Sample) -> ImageRef {
        let tag = match sample {
            Sample::Good => "v1",
            Sample::Another => "v2",
            Sample::Missing => "missing",
            Sample::Crashing => "crash",
        };
        format!("registry.example.com/shop/api:{tag}").parse().unwrap()
    }

    fn settings(&self, _app: &AppId) -> Settings {
        samples::settings(json!({"containers": ["app"], "template": {"replicas": 2, "port": 8080}}))
    }

    async fn prepare(&self, app: &AppId) {
        let name = app.name.as_str();
        let labels = json!({"app": name});
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "app", "image": self.image(Sample::Good).to_string()}]},
                },
            },
        });
        let deployments = self.bed.objects(WorkloadKind::Deployment);
        deployments.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let mut adopted = self.bed.order(WorkloadKind::Deployment, 1, &self.image(Sample::Good).to_string());
        (adopted.app, adopted.adopted) = (app.clone(), true);
        adopted.target.settings["name"] = json!(name);
        self.bed.until_complete(&adopted).await;
    }

    async fn fingerprint(&self, _app: &AppId, target: &Target) -> String {
        let name = target.settings["name"].as_str().unwrap();
        let object = self.bed.objects(WorkloadKind::Deployment).get(name).await.unwrap();
        let mut annotations = object.metadata.annotations.unwrap_or_default();
        // The controller's own count, which follows a moment after the specification.
        annotations.remove("deployment.kubernetes.io/revision");
        format!("{:?} {annotations:?} {}", object.metadata.generation, object.data["spec"])
    }

    async fn pause(&self) {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}

rollhook_conformance::rollouts!(bed::run, Harness::fresh().await);
