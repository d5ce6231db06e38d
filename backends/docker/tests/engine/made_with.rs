//! What a configuration says that containers are made with, on a real engine.

use std::sync::Arc;

use rollhook_conformance::samples;
use rollhook_core::{
    deploy::Scale,
    ports::{Applied, CheckedSettings, InvalidTarget, Purpose, RolloutDriver, RolloutSpec, SettingsRequest},
};
use rollhook_docker::DockerMachine;
use serde_json::{Value, json};

use crate::{
    conformance::run,
    fence::{Deploys, Held, lent, patiently, pause, until_held},
};

impl Deploys {
    /// The deploy of a version of the configuration with these settings.
    fn made_with(&self, revision: u64, image: &str, settings: Value) -> RolloutSpec {
        let configuration = samples::configuration(u128::from(revision), &[("KEY", "value")]);
        let configuration = configuration.with(|configuration| {
            configuration.variables.settings = settings.as_object().unwrap().clone();
        });
        self.spec(revision, image).with(|spec| spec.configuration = Some(configuration))
    }

    async fn checked(&self, driver: &DockerMachine, settings: Value) -> CheckedSettings {
        let spec = self.spec(1, "app:v1");
        let settings = settings.as_object().unwrap().clone();
        let request = SettingsRequest { app: spec.app, target: spec.target, settings };
        patiently(async || driver.check_settings(&request).await).await
    }

    async fn refused(&self, driver: &DockerMachine, settings: Value) -> (String, String) {
        match self.checked(driver, settings).await {
            CheckedSettings::Invalid(InvalidTarget::Setting { name, rule }) => (name, rule),
            other @ (CheckedSettings::Valid(_) | CheckedSettings::Invalid(_) | CheckedSettings::Unsupported(_)) => {
                panic!("{other:?}")
            }
        }
    }
}

fn networks(found: &Value) -> Vec<String> {
    found["NetworkSettings"]["Networks"].as_object().unwrap().keys().cloned().collect()
}

/// The places at which volumes are mounted, with their names.
fn mounts(found: &Value) -> Vec<(String, String)> {
    let mounts = found["Mounts"].as_array().unwrap().iter();
    let text = |mount: &Value, name: &str| mount[name].as_str().unwrap_or_default().to_owned();
    let mut mounts: Vec<_> = mounts.map(|mount| (text(mount, "Destination"), text(mount, "Name"))).collect();
    mounts.sort_unstable();
    mounts
}

#[test]
fn container_is_made_with_the_settings_and_later_without_them() {
    let case =
        concat!(env!("CARGO_PKG_NAME"), "/made_with::container_is_made_with_the_settings_and_later_without_them");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let (other, volume) = (deploys.bed.name("other"), deploys.bed.name("data"));
        let before = docker.network();
        docker.run(&["network", "create", &other]);
        docker.run(&["volume", "create", &volume]);
        let settings = json!({
            "memory": "64m", "cpu": "500m", "publish": ["127.0.0.1:18081-18082:8080"], "network": other,
            "volumes": [format!("{volume}:/data")], "labels": {"team": "shop"},
        });
        let checked = deploys.checked(&driver, settings.clone()).await;
        assert_eq!(checked, CheckedSettings::Valid(settings.as_object().unwrap().clone()));
        for (revision, image) in [(1, "app:v1"), (2, "app:v2")] {
            deploys.completes(&driver, deploys.made_with(revision, image, settings.clone())).await;
            let found = deploys.only();
            let host = &found["HostConfig"];
            assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(64 << 20), &json!(500_000_000)), "{revision}");
            let port = &found["NetworkSettings"]["Ports"]["8080/tcp"][0]["HostPort"];
            assert!(["18081", "18082"].contains(&port.as_str().unwrap()), "{port}");
            assert_eq!(networks(&found), std::slice::from_ref(&other), "{revision}");
            assert_eq!(mounts(&found), [("/data".to_owned(), volume.clone())], "{revision}");
            assert_eq!(found["Config"]["Labels"]["team"], "shop");
        }
        // It is stopped, and changed meanwhile.
        let stop = deploys.made_with(3, "app:v2", settings).with(|spec| spec.scale = Scale::Stop);
        deploys.completes(&driver, stop).await;
        deploys.completes(&driver, deploys.made_with(4, "app:v2", json!({"memory": "", "network": before}))).await;
        let start = deploys.made_with(5, "app:v2", json!({"memory": "128m"})).with(|spec| spec.scale = Scale::Start);
        deploys.completes(&driver, start).await;
        let found = deploys.only();
        assert_eq!(found["HostConfig"]["Memory"], 128 << 20);
        assert_eq!((networks(&found), mounts(&found)), (vec![before.clone()], Vec::new()));
        // A version without a configuration.
        deploys.complete(&driver, 6, "app:v1").await;
        let found = deploys.only();
        let host = &found["HostConfig"];
        assert_eq!((&host["Memory"], &host["MemorySwap"], &host["NanoCpus"]), (&json!(0), &json!(0), &json!(0)));
        assert!(host["PortBindings"].as_object().is_none_or(serde_json::Map::is_empty), "{host}");
        assert_eq!((networks(&found), mounts(&found)), (vec![before], Vec::new()));
        assert_eq!(found["Config"]["Labels"].get("team"), None);
        docker.run(&["network", "rm", &other]);
        docker.run(&["volume", "rm", &volume]);
    });
}

#[test]
fn command_of_a_container_that_was_made_is_changed_and_comes_back() {
    let case =
        concat!(env!("CARGO_PKG_NAME"), "/made_with::command_of_a_container_that_was_made_is_changed_and_comes_back");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let sleeps = |seconds: &str| json!(["sh", "-c", format!("sleep {seconds}")]);
        let template =
            json!({"network": bed.docker.network(), "command": ["sh", "-c", "no-such-program"], "further": true});
        let deploys = Deploys::making(bed, &driver, template).await;
        let with_command = |revision, command: Value| {
            deploys.made_with(revision, "app:v1", json!({"commands": {&deploys.name: command, "another": ["gone"]}}))
        };
        // The first version fails, and the next one is made with another command.
        let first = deploys.spec(1, "app:v1");
        assert_eq!(patiently(async || driver.apply(&first).await).await, Applied::Done);
        let mut restarts = 0;
        for _ in 0..120 {
            let seen = patiently(async || driver.observe(&first).await).await;
            restarts = seen.restarts;
            if restarts > 0 || seen.failure.is_some() {
                break;
            }
            pause().await;
        }
        assert!(restarts > 0, "its command is wrong");
        for (revision, command) in [(2, sleeps("1000")), (3, sleeps("1001"))] {
            deploys.completes(&driver, with_command(revision, command.clone())).await;
            let found = deploys.only();
            assert_eq!(
                (&found["Config"]["Cmd"], &found["Config"]["Healthcheck"]["Test"]),
                (&command, &json!(["NONE"]))
            );
        }
        // A later version keeps it, also where the container is gone and made anew.
        deploys.bed.docker.run(&["rm", "-f", &deploys.name]);
        deploys.completes(&driver, with_command(4, sleeps("1001"))).await;
        assert_eq!(deploys.only()["Config"]["Cmd"], sleeps("1001"));
        // Without the setting, it is the one that the container was first made with.
        let plain = deploys.spec(5, "app:v1");
        assert_eq!(patiently(async || driver.apply(&plain).await).await, Applied::Done);
        let mut made = None;
        for _ in 0..120 {
            patiently(async || driver.observe(&plain).await).await;
            let all = deploys.bed.containers(&deploys.name, &[]);
            made = all.iter().filter_map(|id| deploys.bed.inspect(id)).find(|found| {
                found["Config"]["Labels"]["dev.rollhook.deploy"].as_str().is_some_and(|id| id.ends_with("/5"))
            });
            if made.is_some() {
                break;
            }
            pause().await;
        }
        assert_eq!(made.unwrap()["Config"]["Cmd"], json!(["sh", "-c", "no-such-program"]));
    });
}

#[test]
fn command_of_a_container_that_existed_is_its_own() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/made_with::command_of_a_container_that_existed_is_its_own");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let (name, rule) = deploys.refused(&driver, json!({"commands": {&deploys.name: ["serve"]}})).await;
        assert!(name == "settings.commands" && rule.contains("existed before"), "{name} {rule}");
        let (name, rule) = deploys.refused(&driver, json!({"commands": {"other": ["serve"]}})).await;
        assert!(name == "settings.commands" && rule.contains("none of them"), "{name} {rule}");
    });
}

#[test]
fn settings_that_the_machine_does_not_have_are_refused() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/made_with::settings_that_the_machine_does_not_have_are_refused");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let (name, rule) = deploys.refused(&driver, json!({"network": deploys.bed.name("missing")})).await;
        assert!(name == "settings.network" && rule.contains("docker network create"), "{name} {rule}");
        let other = deploys.bed.name("port");
        docker.run(&["run", "-d", "--name", &other, "-p", "127.0.0.1:18091:8080", "app:v1"]);
        for taken in ["18091:8080", "127.0.0.1:18091:80", "127.0.0.1:18091-18092:80"] {
            let (name, rule) = deploys.refused(&driver, json!({"publish": [taken]})).await;
            assert!(name == "settings.publish" && rule.contains("18091 leads to another container"), "{taken}: {rule}");
            assert!(!rule.contains(&other), "whose it is, is in the log: {rule}");
        }
        for free in ["127.0.0.2:18091:80", "127.0.0.1:18091:80/udp", "127.0.0.1:18091-18093:80"] {
            let checked = deploys.checked(&driver, json!({"publish": [free]})).await;
            assert!(matches!(checked, CheckedSettings::Valid(_)), "{free}: {checked:?}");
        }
        docker.run(&["rm", "-f", &other]);
        let own = json!({"publish": ["127.0.0.1:18091:8080"]});
        deploys.completes(&driver, deploys.made_with(1, "app:v1", own.clone())).await;
        assert!(matches!(deploys.checked(&driver, own).await, CheckedSettings::Valid(_)), "it is the app's own");
    });
}

#[test]
fn restore_of_what_the_engine_refused_has_the_settings_before() {
    let case =
        concat!(env!("CARGO_PKG_NAME"), "/made_with::restore_of_what_the_engine_refused_has_the_settings_before");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let other = deploys.bed.name("other");
        docker.run(&["run", "-d", "--name", &other, "-p", "127.0.0.1:18095:8080", "app:v1"]);
        deploys.completes(&driver, deploys.made_with(1, "app:v1", json!({"memory": "64m"}))).await;
        let before = deploys.only()["Id"].clone();
        // A network that went after the check, and a port that was taken after it, for which the old container stops first.
        for (revision, settings) in
            [(2, json!({"network": "gone"})), (4, json!({"memory": "96m", "publish": ["127.0.0.1:18095:8080"]}))]
        {
            let bad = deploys.made_with(revision, "app:v1", settings);
            assert_eq!(patiently(async || driver.apply(&bad).await).await, Applied::Done);
            let mut failure = None;
            for _ in 0..120 {
                failure = patiently(async || driver.observe(&bad).await).await.failure;
                if failure.is_some() {
                    break;
                }
                pause().await;
            }
            assert!(failure.is_some(), "revision {revision} does not fail");
            let restore = deploys.made_with(revision + 1, "app:v1", json!({"memory": "64m"}));
            let restore = restore.with(|spec| {
                spec.purpose = Purpose::Restore { to: samples::revision(1) };
                spec.configuration.as_mut().unwrap().id = samples::configuration(1, &[("KEY", "value")]).id;
            });
            deploys.completes(&driver, restore).await;
            let found = deploys.only();
            assert_eq!(found["HostConfig"]["Memory"], 64 << 20, "revision {revision}");
            assert!(found["HostConfig"]["PortBindings"].as_object().is_none_or(serde_json::Map::is_empty));
            assert_eq!(found["Id"] == before, revision == 2, "the old container was kept where it went on");
        }
        docker.run(&["rm", "-f", &other]);
    });
}

#[test]
fn process_that_takes_over_makes_the_container_with_the_settings() {
    let case =
        concat!(env!("CARGO_PKG_NAME"), "/made_with::process_that_takes_over_makes_the_container_with_the_settings");
    run(async {
        for step in ["/volumes/create", "/containers/create", "/start", "/stop", "/rename"] {
            let Some(bed) = lent(case) else { return };
            let held = Held::new(bed.socket(), step);
            let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
            let deploys = Deploys::of(bed, &other).await;
            deploys.completes(&other, deploys.made_with(1, "app:v1", json!({"memory": "64m"}))).await;
            let spec = deploys.made_with(2, "app:v1", json!({"memory": "96m", "labels": {"team": "shop"}}));
            until_held(stopped, spec.clone(), &held).await;
            deploys.completes(&other, spec).await;
            held.release.send_replace(true);
            deploys.completes(&other, deploys.made_with(3, "app:v1", json!({}))).await;
            let found = deploys.only();
            assert_eq!(
                (&found["HostConfig"]["Memory"], found["Config"]["Labels"].get("team")),
                (&json!(0), None),
                "{step}"
            );
        }
    });
}
