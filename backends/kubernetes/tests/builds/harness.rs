//! A namespace of builds, and what tests do there.

use std::{num::NonZeroU16, time::Duration};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{Api, Config, api::ListParams};
use rollhook_conformance::samples;
use rollhook_core::{
    app::AppUid,
    deploy::Revision,
    ports::{BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, Started},
};
use rollhook_kubernetes::builds::{KubernetesBuilds, Profile, Settings};
pub(crate) use rollhook_testing::until_async as until;

use crate::{
    actor::{self, Actor},
    bed::{self, Bed},
};

/// A namespace whose pods are played.
pub(crate) struct Ground<'a> {
    pub(crate) bed: &'a Bed,
    _actor: Actor,
}

/// Runs a test on a namespace of its own, or says that it was skipped.
pub(crate) fn test(name: &str, body: impl AsyncFnOnce(&Ground<'_>)) {
    bed::test(name, async |bed| body(&Ground::on(bed)).await);
}

/// Settings for a namespace. The image's name has simulated nodes leave its pods to the [`actor`].
pub(crate) fn settings(namespace: &str) -> Settings {
    let image = format!("registry.example.com/hang/builder@{}", samples::digest(1));
    Settings {
        profile: Some(Profile::Rootless),
        patience: Duration::from_secs(3),
        ..Settings::new(image.parse().unwrap(), namespace.parse().unwrap())
    }
}

/// An order of an app's revision, for the commit that begins with this digit.
pub(crate) fn order(app: u128, revision: u64, begins: char) -> BuildSpec {
    let id = DeployId { app: AppUid::from_bits(app), revision: Revision::new(revision).unwrap() };
    let commit = actor::full(begins).parse().unwrap();
    BuildSpec::new(samples::app("shop", "test", "api").id, id, samples::git_source(), commit)
}

/// A handle on the builder.
pub(crate) async fn handle(bed: &Bed, settings: Settings) -> KubernetesBuilds {
    KubernetesBuilds::with_config(bed::config(&bed.state).await, settings).unwrap()
}

impl<'a> Ground<'a> {
    pub(crate) fn on(bed: &'a Bed) -> Self {
        Self { bed, _actor: Actor::start(bed.client.clone(), &bed.namespace, bed.state.clone()) }
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(&self.bed.namespace)
    }

    /// A handle as any replica would have it.
    pub(crate) async fn handle(&self) -> KubernetesBuilds {
        handle(self.bed, self.settings()).await
    }

    /// A handle with this many build slots.
    pub(crate) async fn handle_with_slots(&self, slots: u16) -> KubernetesBuilds {
        handle(self.bed, Settings { slots: NonZeroU16::new(slots).unwrap(), ..self.settings() }).await
    }

    /// One by another configuration.
    pub(crate) fn handle_by(&self, config: Config, settings: Settings) -> KubernetesBuilds {
        KubernetesBuilds::with_config(config, settings).unwrap()
    }

    pub(crate) async fn jobs(&self) -> Vec<Job> {
        Api::<Job>::namespaced(self.bed.client.clone(), &self.bed.namespace)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// The Jobs that have a build slot.
    pub(crate) async fn slots(&self) -> Vec<String> {
        let slots = Api::<ConfigMap>::namespaced(self.bed.client.clone(), &self.bed.namespace);
        let held = slots.get("rollhook-build-slots").await.unwrap().data.unwrap_or_default();
        held.into_keys().collect()
    }

    pub(crate) async fn secrets(&self) -> Vec<Secret> {
        let secrets = Api::<Secret>::namespaced(self.bed.client.clone(), &self.bed.namespace);
        secrets.list(&ListParams::default()).await.unwrap().items
    }

    /// The pods that may still do something.
    pub(crate) async fn active(&self) -> Vec<Pod> {
        let over = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            matches!(phase.as_str(), "Succeeded" | "Failed")
        };
        self.bed.pods().await.into_iter().filter(|pod| !over(pod)).collect()
    }
}

/// Starts, which must be taken.
pub(crate) async fn start(builds: &dyn BuildTrigger, order: &BuildSpec) {
    assert_eq!(builds.start(order).await.unwrap(), Started::Known);
}

/// Looks until the build has ended.
pub(crate) async fn ended(builds: &dyn BuildTrigger, order: &BuildSpec) -> BuildState {
    until("the build ends", async || {
        let state = builds.observe(order.id).await.unwrap();
        if state.is_under_way() { Err(state) } else { Ok(state) }
    })
    .await
}

/// Starts, and looks until it has failed.
pub(crate) async fn fails(builds: &dyn BuildTrigger, order: &BuildSpec) -> BuildFailure {
    start(builds, order).await;
    match ended(builds, order).await {
        BuildState::Failed(failure) => failure,
        other @ (BuildState::Waiting | BuildState::Running | BuildState::Built { .. } | BuildState::Unknown) => {
            panic!("no failure: {other:?}")
        }
    }
}
