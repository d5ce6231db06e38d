//! A cluster as the suite of all rollout drivers wants it.

use std::{fs, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Config,
    api::{DynamicObject, ListParams},
};
use rollhook_conformance::{Can, Clusters, Environment, Instance, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::RolloutDriver,
};
use rollhook_kubernetes::{KubernetesCluster, WorkloadKind::Deployment};
use serde_json::{Value, json};

use super::Bed;

/// What a bed's instances can do.
pub(crate) trait Instances: Send + Sync {
    /// An image, by its tag.
    fn image(&self, bed: &Bed, sample: Sample) -> Can<ImageRef>;

    /// The digest under which its instances run.
    fn digest(&self, bed: &Bed, image: &ImageRef) -> Can<Digest>;

    /// Makes a tag mean the bits of a sample.
    fn push(&self, bed: &Bed, image: &ImageRef, sample: Sample) -> Can;

    /// A line that crashing instances log; `None` if the test writes their logs.
    fn logs(&self) -> Option<&'static str>;
}

/// A namespace of a cluster.
pub(crate) struct Namespaced<I> {
    pub(crate) bed: Bed,
    pub(crate) instances: I,
}

impl<I: Instances> Namespaced<I> {
    async fn deployment(&self, target: &Target) -> Option<DynamicObject> {
        let name = target.settings["name"].as_str().unwrap();
        self.bed.objects(Deployment).get_opt(name).await.unwrap()
    }

    /// The pods of the target that were not told to end.
    async fn pods(&self, target: &Target) -> Vec<Pod> {
        let deployment = self.deployment(target).await.unwrap();
        let labels = deployment.data["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
        let selected = ListParams::default().labels(&labels.join(","));
        let pods = Api::<Pod>::namespaced(self.bed.client.clone(), &self.bed.namespace).list(&selected).await.unwrap();
        // Those that are being deleted run until they have ended.
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let is_over = |pod: &Pod| matches!(phase(pod).as_deref(), Some("Failed" | "Succeeded"));
        let is_left = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() || !is_over(pod);
        pods.items.into_iter().filter(is_left).collect()
    }
}

#[async_trait]
impl<I: Instances> Clusters for Namespaced<I> {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.bed.driver.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(KubernetesCluster::with_config(super::config(&self.bed.state).await).unwrap()))
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        // Nobody listens on port 1.
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        Ok(Arc::new(KubernetesCluster::with_config(config).unwrap()))
    }

    fn app(&self, name: &str) -> AppId {
        format!("{}/{name}", self.bed.namespace).parse().unwrap()
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        self.instances.image(&self.bed, sample)
    }

    fn settings(&self, _app: &AppId) -> Settings {
        let template = json!({"replicas": 2, "port": 8080, "env": {"MODE": "test"}, "readiness_path": "/healthz"});
        samples::settings(json!({"containers": ["app"], "template": template}))
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        Ok((samples::settings(json!({"name": "a/scale"})), "workload.name"))
    }

    async fn prepare(&self, app: &AppId) -> Can {
        let name = app.name.as_str();
        let labels = json!({"app": name});
        let image = self.image(Sample::Good)?.to_string();
        // Without the probe, a container that crashes is ready for a moment.
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1});
        let environment = json!([{"name": "MODE", "value": "test"}]);
        let container = json!({"name": "app", "image": image, "env": environment, "readinessProbe": probe});
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
                },
            },
        });
        let deployments = self.bed.objects(Deployment);
        deployments.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let mut adopted = self.bed.order(Deployment, 1, &image);
        (adopted.app, adopted.adopted) = (app.clone(), true);
        adopted.target.settings["name"] = json!(name);
        self.bed.until_complete(&adopted).await;
        Ok(())
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        self.instances.push(&self.bed, image, sample)
    }

    async fn meddle(&self, _app: &AppId, target: &Target, image: &ImageRef) -> Can {
        let workload = format!("deployment/{}", target.settings["name"].as_str().unwrap());
        self.bed.kubectl(&["set", "image", &workload, &format!("app={image}")]);
        Ok(())
    }

    async fn remove(&self, _app: &AppId, target: &Target) -> Can {
        let name = target.settings["name"].as_str().unwrap();
        self.bed.objects(Deployment).delete(name, &Default::default()).await.unwrap();
        Ok(())
    }

    async fn fingerprint(&self, _app: &AppId, target: &Target) -> String {
        let Some(object) = self.deployment(target).await else { return "there is none".to_owned() };
        let mut annotations = object.metadata.annotations.unwrap_or_default();
        // The controller's own count, which follows a moment after the specification.
        annotations.remove("deployment.kubernetes.io/revision");
        format!("{:?} {annotations:?} {}", object.metadata.generation, object.data["spec"])
    }

    async fn configuration(&self, _app: &AppId, target: &Target) -> Can<String> {
        let mut spec = self.deployment(target).await.unwrap().data["spec"].clone();
        spec["template"]["metadata"]["annotations"] = Value::Null;
        spec["template"]["spec"]["containers"][0]["image"] = Value::Null;
        Ok(spec.to_string())
    }

    async fn environments(&self, _app: &AppId, target: &Target) -> Can<Vec<Environment>> {
        let mut environments = Vec::new();
        for pod in self.pods(target).await {
            environments.push(self.bed.environment(&pod.spec.unwrap().containers[0]).await);
        }
        Ok(environments)
    }

    async fn set_variable(&self, _app: &AppId, target: &Target, name: &str, value: &str) -> Can {
        let workload = format!("deployment/{}", target.settings["name"].as_str().unwrap());
        self.bed.kubectl(&["set", "env", &workload, &format!("{name}={value}")]);
        Ok(())
    }

    async fn instances(&self, _app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        let instance = |pod: Pod| {
            let image = pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap().parse().unwrap();
            let container = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first().cloned());
            let digest = container.and_then(|container| container.image_id.split_once('@')?.1.parse().ok());
            Instance { id: pod.metadata.uid.unwrap(), image, digest }
        };
        Ok(self.pods(target).await.into_iter().map(instance).collect())
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        self.instances.digest(&self.bed, image)
    }

    async fn logged(&self, _app: &AppId, target: &Target) -> Can<String> {
        if let Some(line) = self.instances.logs() {
            return Ok(line.to_owned());
        }
        for pod in self.pods(target).await {
            let log = self.bed.state.join("logs").join(&self.bed.namespace).join(pod.metadata.name.unwrap());
            fs::create_dir_all(&log).unwrap();
            fs::write(log.join("app"), "starting\nno database\n").unwrap();
        }
        Ok("no database".to_owned())
    }

    fn container(&self) -> Option<&'static str> {
        Some("app")
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
