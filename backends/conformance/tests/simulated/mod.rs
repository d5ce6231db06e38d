//! The simulated cluster, as the rollout suite wants it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Can, Clusters, Does, Environment, Instance, ManualClock, Releases, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    configuration::Configuration,
    image::{Digest, ImageRef},
    ports::{ReleaseRun, RolloutDriver},
};
use rollhook_memory::{Pod, Script, SimulatedCluster};
use serde_json::json;

/// A cluster whose rollouts take two seconds.
pub(crate) struct Simulated {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) cluster: Arc<SimulatedCluster>,
}

impl Simulated {
    pub(crate) fn fresh() -> Can<Self> {
        let clock = Arc::new(ManualClock::default());
        let cluster = Arc::new(SimulatedCluster::new(clock.clone(), Duration::from_secs(2)));
        cluster.take_settings();
        cluster.script(":dies", script(Sample::Dying));
        cluster.script(":heals", script(Sample::Healing));
        cluster.script(":hang", script(Sample::Hanging));
        Ok(Self { clock, cluster })
    }
}

fn variables(configuration: &Configuration) -> impl Iterator<Item = (String, String)> {
    let variables = configuration.variables.entries.iter();
    variables.map(|(name, variable)| (name.to_string(), variable.expose().to_owned()))
}

fn script(sample: Sample) -> Script {
    match sample {
        Sample::Good | Sample::Another => Script::completes(),
        Sample::Missing => Script::missing(),
        Sample::Crashing => Script::crashes(),
        Sample::Hanging => Script::hangs().stopping_first(),
        Sample::Dying => Script::dies_after(Duration::from_secs(3)),
        Sample::Healing => Script::crashes().healing_after(Duration::from_secs(5)),
    }
}

#[async_trait]
impl Clusters for Simulated {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.cluster.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        // A handle has nothing of its own.
        Ok(self.cluster.clone())
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        self.cluster.set_reachable(false);
        Ok(self.cluster.clone())
    }

    fn app(&self, name: &str) -> AppId {
        samples::app("shop", "test", name).id
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        Ok(samples::image(match sample {
            Sample::Good => "v1",
            Sample::Another => "v2",
            Sample::Missing => "missing",
            Sample::Crashing => "crash",
            Sample::Hanging => "hang",
            Sample::Dying => "dies",
            Sample::Healing => "heals",
        }))
    }

    fn settings(&self, _app: &AppId) -> Settings {
        samples::settings(json!({ "containers": ["app"], "template": { "replicas": 3 } }))
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        Ok((samples::settings(json!({ "kind": "Pod" })), "workload.kind"))
    }

    async fn prepare(&self, app: &AppId) -> Can {
        self.cluster.seed(app, &samples::target(app.name.as_str()), &self.image(Sample::Good)?);
        Ok(())
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        let digest = self.cluster.push(image);
        self.cluster.script(digest.as_str(), script(sample));
        Ok(())
    }

    async fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> Can {
        assert!(self.cluster.meddle(app, target, image));
        Ok(())
    }

    async fn remove(&self, app: &AppId, target: &Target) -> Can {
        assert!(self.cluster.delete(app, target));
        Ok(())
    }

    async fn fingerprint(&self, app: &AppId, target: &Target) -> String {
        format!("{:?} {}", self.cluster.pods(app, target), self.cluster.effects_on(app, target).len())
    }

    async fn configuration(&self, app: &AppId, target: &Target) -> Can<String> {
        Ok(format!("{:?} pods", self.cluster.pods(app, target)))
    }

    async fn instances(&self, app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        let pods = self.cluster.running(app, target).into_iter();
        Ok(pods.map(|pod| Instance { id: pod.id, image: pod.image, digest: Some(pod.digest) }).collect())
    }

    async fn environments(&self, app: &AppId, target: &Target) -> Can<Vec<Environment>> {
        let others = self.cluster.environment(app, target);
        let of = |pod: Pod| {
            // Of a name that both have set, the value of the others counts.
            let mut environment: Environment = pod.configuration.iter().flat_map(variables).collect();
            environment.extend(others.clone());
            environment
        };
        Ok(self.cluster.running(app, target).into_iter().map(of).collect())
    }

    async fn set_variable(&self, app: &AppId, target: &Target, name: &str, value: &str) -> Can {
        assert!(self.cluster.set_variable(app, target, name, value));
        Ok(())
    }

    fn made_with_settings(&self) -> Option<[Settings; 2]> {
        Some(["64m", "96m"].map(|amount| Settings::from_iter([("memory".to_owned(), amount.into())])))
    }

    async fn made_with(&self, app: &AppId, target: &Target) -> Can<Vec<String>> {
        let settings = |pod: Pod| {
            let settings = pod.configuration.map(|configuration| configuration.variables.settings).unwrap_or_default();
            format!("{:?}", settings.get("memory"))
        };
        Ok(self.cluster.running(app, target).into_iter().map(settings).collect())
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        Ok(self.cluster.digest(image))
    }

    async fn logged(&self, _app: &AppId, _target: &Target) -> Can<String> {
        Ok("simulated: exiting with code 1".to_owned())
    }

    fn container(&self) -> Option<&'static str> {
        Some("app")
    }

    async fn pause(&self) {
        self.clock.advance(Duration::from_millis(250));
    }
}

#[async_trait]
impl Releases for Simulated {
    fn command(&self, does: Does) -> Vec<String> {
        let word = match does {
            Does::Succeed => "migrate",
            Does::Fail => "fail",
            Does::Hang => "hang",
        };
        vec!["bin/release".to_owned(), word.to_owned()]
    }

    async fn environment_of(&self, run: &ReleaseRun) -> Can<Environment> {
        Ok(self.cluster.configuration_of(&run.id).iter().flat_map(variables).collect())
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        let begun = self.cluster.releases().into_iter().chain(self.cluster.commands_by_hand());
        let begun = begun.chain(self.cluster.commands_of_checks());
        Ok(begun.filter(|begun| begun.run == run.id).count())
    }
}
