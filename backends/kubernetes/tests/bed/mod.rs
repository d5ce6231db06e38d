//! A namespace of a cluster for each test, which removes it, and the driver under test.

#![allow(dead_code, reason = "each test binary uses its own part of it")]

pub(crate) mod clusters;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Container, Namespace, Pod, Secret},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use rollhook_core::{
    app::{AppUid, Target},
    deploy::{Evidence, Revision},
    error::{Error, Result},
    ports::{Applied, DeployId, Observation, Phase, RolloutDriver, RolloutFailure, RolloutSpec, TargetRequest},
};
use rollhook_kubernetes::{KubernetesCluster, Workload, WorkloadKind};
use rollhook_testing::{
    beds::{Kubectl, merge, shared_cluster, workload},
    skip, until_async,
};
use serde_json::{Value, json};

/// The registration that the tests' orders belong to.
pub(crate) const OURS: AppUid = AppUid::from_bits(0xa11);

/// Runs a test on a bed of its own, or says that it was skipped.
pub(crate) fn test(name: &str, body: impl AsyncFnOnce(&Bed)) {
    match shared_cluster() {
        Err(reason) => skip(&format!("{}/{name}", env!("CARGO_PKG_NAME")), reason),
        Ok(state) => run(async {
            let bed = Bed::at(state).await;
            body(&bed).await;
        }),
    }
}

/// Drives a test's future to its end.
pub(crate) fn run<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(body)
}

/// A namespace of a cluster, and the driver under test.
pub(crate) struct Bed {
    owned: bool,
    pub(crate) state: PathBuf,
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) driver: Arc<KubernetesCluster>,
}

impl Bed {
    /// A new namespace of the cluster of this state directory.
    pub(crate) async fn at(state: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let namespace = format!("t-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let config = config(state).await;
        let client = Client::try_from(config.clone()).unwrap();
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let driver = Arc::new(KubernetesCluster::with_config(config).unwrap());
        Self { owned: true, state: state.to_owned(), namespace, client, driver }
    }

    /// The same namespace through another driver.
    pub(crate) fn with_driver(&self, driver: KubernetesCluster) -> Self {
        Self {
            owned: false,
            state: self.state.clone(),
            namespace: self.namespace.clone(),
            client: self.client.clone(),
            driver: Arc::new(driver),
        }
    }

    /// An order for the workload `api`, with the container `app`.
    pub(crate) fn order(&self, kind: WorkloadKind, revision: u64, image: &str) -> RolloutSpec {
        let workload = Workload { kind, name: "api".to_owned(), containers: vec!["app".to_owned()], template: None };
        let app = format!("{}/api", self.namespace).parse().unwrap();
        let id = DeployId { app: OURS, revision: Revision::new(revision).unwrap() };
        let target = Target { settings: workload.settings(), ..Target::default() };
        let spec = RolloutSpec::new(app, id, target, image.parse().unwrap());
        spec.with(|spec| spec.cause = format!("webhook: revision {revision}"))
    }

    /// The registration of the workload `api` of a kind.
    pub(crate) fn request(&self, kind: WorkloadKind) -> TargetRequest {
        TargetRequest {
            app: format!("{}/api", self.namespace).parse().unwrap(),
            settings: serde_json::from_value(json!({"kind": kind})).unwrap(),
            image: None,
            built: false,
            take_over: true,
            registered: None,
            others: Vec::new(),
        }
    }

    /// The objects of a kind in the namespace.
    pub(crate) fn objects(&self, kind: WorkloadKind) -> Api<DynamicObject> {
        let (group, version) = match kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => ("apps", "v1"),
            WorkloadKind::CronJob => ("batch", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// The environment of a container, as a kubelet reads it: of a name the last source's value, and before all the
    /// container's own.
    pub(crate) async fn environment(&self, container: &Container) -> BTreeMap<String, String> {
        let mut environment = BTreeMap::new();
        for source in container.env_from.iter().flatten() {
            let name = &source.secret_ref.as_ref().unwrap().name;
            let secret = Api::<Secret>::namespaced(self.client.clone(), &self.namespace).get(name).await.unwrap();
            let text = |value: ByteString| String::from_utf8(value.0).unwrap();
            environment.extend(secret.data.into_iter().flatten().map(|(name, value)| (name, text(value))));
        }
        let own = container.env.iter().flatten();
        environment.extend(own.map(|variable| (variable.name.clone(), variable.value.clone().unwrap_or_default())));
        environment
    }

    /// The pods of the namespace.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        Api::<Pod>::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await.unwrap().items
    }

    /// Makes the workload `api` with 2 replicas of this image, with a patch laid over its specification.
    pub(crate) async fn make(&self, kind: WorkloadKind, image: &str, spec: Value) {
        let mut patch = if kind == WorkloadKind::Deployment { json!({"replicas": 2}) } else { json!({}) };
        merge(&mut patch, spec);
        let object: DynamicObject = serde_json::from_value(workload(kind.as_str(), "api", image, patch)).unwrap();
        self.objects(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    /// The workload `api` as it is.
    pub(crate) async fn read(&self, kind: WorkloadKind) -> Value {
        serde_json::to_value(self.objects(kind).get("api").await.unwrap()).unwrap()
    }

    /// Merges a patch into the workload `api` as another field manager.
    pub(crate) async fn patch_as(&self, manager: &str, kind: WorkloadKind, patch: Value) {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.objects(kind).patch("api", &parameters, &Patch::Strategic(patch)).await.unwrap();
    }

    /// Runs kubectl in the namespace, as a person would.
    pub(crate) fn kubectl(&self, arguments: &[&str]) {
        Kubectl { state: self.state.clone(), namespace: self.namespace.clone() }.run(arguments);
    }

    /// Applies, which must succeed; a busy API server may need another call.
    pub(crate) async fn apply(&self, order: &RolloutSpec) {
        let applied = until_async("applied", async || answered(self.driver.apply(order).await)).await;
        assert_eq!(applied, Applied::Done);
    }

    /// The evidence of a failure, with a log; a busy kubelet may answer too late for it.
    pub(crate) async fn evidence_with_log(&self, order: &RolloutSpec, failure: Option<&RolloutFailure>) -> Evidence {
        until_async("evidence with a log", async || {
            let evidence = answered(self.driver.evidence(order, failure).await).map_err(|error| error.chain());
            evidence
                .and_then(|evidence| if evidence.log.is_empty() { Err(format!("{evidence:?}")) } else { Ok(evidence) })
        })
        .await
    }

    /// Looks until something is seen.
    pub(crate) async fn until(
        &self,
        order: &RolloutSpec,
        what: &str,
        seen: impl Fn(&Observation) -> bool,
    ) -> Observation {
        until_async(what, async || {
            let last = answered(self.driver.observe(order).await).map_err(|error| error.chain())?;
            if seen(&last) { Ok(last) } else { Err(format!("{last:?}")) }
        })
        .await
    }

    /// Looks until it is complete.
    pub(crate) async fn until_complete(&self, order: &RolloutSpec) -> Observation {
        self.until(order, "complete", is_complete).await
    }

    /// Applies, and looks until it is complete.
    pub(crate) async fn roll_out(&self, order: &RolloutSpec) -> Observation {
        self.apply(order).await;
        self.until_complete(order).await
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let (state, namespace) = (self.state.clone(), self.namespace.clone());
        // On a thread of its own: the test's runtime is busy here, and may be unwinding.
        let removed = std::thread::spawn(move || {
            run(async {
                let client = Client::try_from(config(&state).await).unwrap();
                let remove = async { Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await };
                // The cluster may be away, in a test about just that.
                let _ = tokio::time::timeout(Duration::from_secs(5), remove).await;
            });
        });
        let _ = removed.join();
    }
}

/// Returns an answer, or the failure of an API server that is busy; any other is the test's.
fn answered<T>(answer: Result<T>) -> Result<T> {
    assert!(
        answer.as_ref().err().is_none_or(Error::is_unavailable),
        "{}",
        answer.err().map_or_else(String::new, |error| error.chain())
    );
    answer
}

/// Whether the observation says that the rollout is over.
pub(crate) fn is_complete(seen: &Observation) -> bool {
    matches!(seen.phase, Phase::Complete { .. })
}

/// How tests connect to the cluster of this state directory.
pub(crate) async fn config(state: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(state.join("kubeconfig")).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}
