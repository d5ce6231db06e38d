//! The engine keeps every promise of the port: the suite of all rollout drivers, on real containers.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Can, Clusters, Does, Environment, Instance, Lack, Releases, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::{ReleaseRun, RolloutDriver},
};
use rollhook_docker::DockerMachine;
use serde_json::{Value, json};

use crate::bed::Bed;

/// How the app's container replaces the one before.
#[derive(Clone, Copy)]
enum Order {
    StartFirst,
    StopFirst,
}

struct OneMachine {
    bed: Bed,
    order: Order,
    driver: Arc<DockerMachine>,
}

fn fresh(order: Order) -> Can<OneMachine> {
    let bed = Bed::lent().map_err(Lack::Skip)?;
    let driver = Arc::new(DockerMachine::at(bed.socket()));
    Ok(OneMachine { bed, order, driver })
}

impl OneMachine {
    fn name(target: &Target) -> String {
        target.settings["name"].as_str().unwrap().to_owned()
    }

    /// The container that carries the newest deploy, or that another party made.
    fn newest(&self, target: &Target) -> Option<Value> {
        let ids = self.bed.containers(&Self::name(target), &["-a"]);
        let found = ids.iter().filter_map(|id| self.bed.inspect(id));
        found.max_by_key(|found| found["Created"].as_str().unwrap().to_owned())
    }

    /// The claims of deploys that have no container yet.
    fn claims(&self, target: &Target) -> String {
        let label = format!("label=dev.rollhook.target=container/{}", Self::name(target));
        let format = ["volume", "ls", "--filter", &label, "--format", "{{.Name}}"];
        self.bed.docker.run(&format).lines().last().unwrap_or_default().to_owned()
    }
}

#[async_trait]
impl Clusters for OneMachine {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.driver.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(DockerMachine::at(self.bed.socket())))
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(DockerMachine::at("/nowhere/docker.sock".into())))
    }

    fn app(&self, name: &str) -> AppId {
        format!("shop-test/{}", self.bed.name(name)).parse().unwrap()
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        let image = match sample {
            Sample::Good => "app:v1",
            Sample::Another => "app:v2",
            // No registry listens there.
            Sample::Missing => "127.0.0.1:1/app:missing",
            Sample::Crashing => "app:crash",
            Sample::Hanging => "app:hang",
            Sample::Dying => "app:dies",
            Sample::Healing => "app:heals",
        };
        Ok(image.parse().unwrap())
    }

    fn settings(&self, _app: &AppId) -> Settings {
        let order = match self.order {
            Order::StartFirst => "start-first",
            Order::StopFirst => "stop-first",
        };
        let template = json!({"port": 8080, "env": {"MODE": "test"}, "network": self.bed.docker.network()});
        samples::settings(json!({"replace": order, "template": template}))
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        Ok((samples::settings(json!({"name": "../etc"})), "workload.name"))
    }

    async fn prepare(&self, app: &AppId) -> Can {
        self.start(app.name.as_str(), "app:v1").await;
        Ok(())
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        // The image lies on the machine, and so does its tag.
        self.bed.docker.run(&["tag", &self.image(sample)?.to_string(), &image.to_string()]);
        Ok(())
    }

    async fn meddle(&self, _app: &AppId, target: &Target, image: &ImageRef) -> Can {
        let name = Self::name(target);
        self.bed.docker.run(&["rm", "-f", &name]);
        self.start(&name, &image.to_string()).await;
        Ok(())
    }

    async fn remove(&self, _app: &AppId, target: &Target) -> Can {
        self.bed.docker.run(&["rm", "-f", &Self::name(target)]);
        Ok(())
    }

    async fn fingerprint(&self, _app: &AppId, target: &Target) -> String {
        // Until a deploy has its container, its claim is what changed; afterwards, its container.
        let newest = self.newest(target);
        let stamp = newest.as_ref().and_then(|found| found["Config"]["Labels"]["dev.rollhook.deploy"].as_str());
        let claimed = self.claims(target);
        let uid_and_revision = |stamp: &str| {
            let (uid, revision) = stamp.split_once('/').unwrap();
            format!("rollhook.{}.{revision}-{}", Self::name(target), &uid[..6])
        };
        match (stamp, newest.as_ref()) {
            (Some(stamp), _) => uid_and_revision(stamp),
            (None, _) if !claimed.is_empty() => claimed,
            (None, Some(found)) => found["Id"].to_string(),
            (None, None) => "there is none".to_owned(),
        }
    }

    async fn configuration(&self, _app: &AppId, target: &Target) -> Can<String> {
        let mut found = self.newest(target).unwrap();
        let config = found["Config"].as_object_mut().unwrap();
        // The engine's own name for the container, and what the image brings along.
        config.retain(|name, _| !matches!(name.as_str(), "Hostname" | "Image" | "Labels"));
        let env = config["Env"].as_array_mut().unwrap();
        env.retain(|entry| !entry.as_str().unwrap().starts_with("VERSION="));
        let networks: Vec<_> = found["NetworkSettings"]["Networks"].as_object().unwrap().keys().cloned().collect();
        Ok(format!("{} {} {networks:?}", found["Config"], found["HostConfig"]))
    }

    async fn environments(&self, _app: &AppId, target: &Target) -> Can<Vec<Environment>> {
        let ids = self.bed.containers(&Self::name(target), &[]);
        Ok(ids.iter().filter_map(|id| self.bed.inspect(id)).map(|found| environment(&found)).collect())
    }

    async fn set_variable(&self, _app: &AppId, target: &Target, name: &str, value: &str) -> Can {
        // The environment of a container is set once: another one takes its place.
        let image = self.newest(target).unwrap()["Config"]["Image"].as_str().unwrap().to_owned();
        let of = Self::name(target);
        self.bed.docker.run(&["rm", "-f", &of]);
        self.start_with(&of, &image, &format!("{name}={value}")).await;
        Ok(())
    }

    fn made_with_settings(&self) -> Option<[Settings; 2]> {
        Some(["64m", "96m"].map(|amount| Settings::from_iter([("memory".to_owned(), amount.into())])))
    }

    async fn made_with(&self, _app: &AppId, target: &Target) -> Can<Vec<String>> {
        let ids = self.bed.containers(&Self::name(target), &[]);
        let memory = |found: Value| found["HostConfig"]["Memory"].to_string();
        Ok(ids.iter().filter_map(|id| self.bed.inspect(id)).map(memory).collect())
    }

    async fn instances(&self, _app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        // Containers that are restarted again and again are among them.
        let ids = self.bed.containers(&Self::name(target), &[]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let instance = |found: Value| Instance {
            id: text(&found["Id"]),
            image: text(&found["Config"]["Image"]).parse().unwrap(),
            digest: text(&found["Image"]).parse().ok(),
        };
        Ok(ids.iter().filter_map(|id| self.bed.inspect(id)).map(instance).collect())
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        let id = self.bed.docker.run(&["image", "inspect", "--format", "{{.Id}}", &image.to_string()]);
        Ok(id.trim().parse().unwrap())
    }

    async fn logged(&self, _app: &AppId, _target: &Target) -> Can<String> {
        Ok("no database".to_owned())
    }

    fn container(&self) -> Option<&'static str> {
        None
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[async_trait]
impl Releases for OneMachine {
    fn command(&self, does: Does) -> Vec<String> {
        let script = match does {
            Does::Succeed => "echo begun; sleep 1",
            Does::Fail => "echo begun; echo no database >&2; exit 1",
            Does::Hang => "echo begun; trap 'exit 0' TERM; sleep 100000 & wait",
        };
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        let log = self.driver.release_runner().unwrap().log(run, 0).await.unwrap().unwrap_or_default();
        Ok(String::from_utf8(log).unwrap().lines().filter(|line| *line == "begun").count())
    }

    async fn environment_of(&self, run: &ReleaseRun) -> Can<Environment> {
        let label = format!("label=dev.rollhook.release={}", run.id);
        let found =
            self.bed.docker.run(&["ps", "-aq", "--filter", &label, "--filter", &format!("name={}", run.app.name)]);
        Ok(environment(&self.bed.inspect(found.trim()).unwrap()))
    }
}

/// The environment of a container that was inspected.
pub(crate) fn environment(found: &Value) -> Environment {
    let entries = found["Config"]["Env"].as_array().unwrap().iter();
    let entries = entries.map(|entry| entry.as_str().unwrap().split_once('=').unwrap());
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl OneMachine {
    /// Starts a container as a person does, and waits until it is healthy.
    async fn start(&self, name: &str, image: &str) {
        self.start_with(name, image, "MODE=test").await;
    }

    /// The same, with another variable beside the one that all have.
    async fn start_with(&self, name: &str, image: &str, variable: &str) {
        let docker = &self.bed.docker;
        let network = docker.network();
        let run = ["run", "-d", "--name", name, "--network", &network, "--restart", "unless-stopped"];
        docker.run(&[&run[..], &["-e", "MODE=test", "-e", variable, image]].concat());
        for _ in 0..80 {
            if self.bed.inspect(name).is_some_and(|found| found["State"]["Health"]["Status"] == "healthy") {
                return;
            }
            self.pause().await;
        }
        panic!("{name} does not get healthy");
    }
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

mod start_first {
    use super::{Order, fresh, run};

    rollhook_conformance::rollouts!(run, fresh(Order::StartFirst));
}

mod releases {
    use super::{Order, fresh, run};

    rollhook_conformance::releases!(run, fresh(Order::StartFirst));
}

mod instances {
    use super::{Order, fresh, run};

    rollhook_conformance::instances!(run, fresh(Order::StartFirst));
}

mod addresses {
    use super::{Order, fresh, run};

    rollhook_conformance::addresses!(run, fresh(Order::StartFirst));
}

mod stop_first {
    use super::{Order, fresh, run};

    rollhook_conformance::cases! { run, fresh(Order::StopFirst), rollouts:
        apply_then_observe_complete,
        apply_race_ends_at_the_newest,
        apply_dropped_is_made_good,
        apply_keeps_the_configuration,
        apply_sets_the_variables,
        restore_brings_the_variables_back,
        variable_of_another_is_refused,
        variable_of_another_refuses_no_return,
        apply_same_image_rolls_again,
        apply_stops_and_starts,
        apply_leaves_a_stopped_target_stopped,
        apply_takes_the_digest_and_not_the_tag,
        observe_complete_leaves_no_old_instance,
        observe_dead_is_not_complete,
        observe_reports_failing_image,
        observe_reports_crash,
        observe_failure_ends_with_recovery,
        evidence_is_of_its_own_deploy,
        calls_answer_in_time,
    }
}
