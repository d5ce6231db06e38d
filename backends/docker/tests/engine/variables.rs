//! Variables on their way into a container: where their values are, and where they are not.

use std::sync::Arc;

use rollhook_conformance::samples;
use rollhook_core::{
    configuration::{Configuration, VARIABLE_BYTES_MAX, VARIABLES_BYTES_MAX, VARIABLES_MAX},
    deploy::{Reason, Scale},
    ports::{Applied, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutDriver, RolloutSpec},
};
use rollhook_docker::DockerMachine;

use crate::{
    conformance::{environment, run},
    fence::{Deploys, Held, lent, patiently, until_held},
};

const SECRET: &str = "hunter2 $HOME\nline two";

impl Deploys {
    fn configured(&self, revision: u64, image: &str, configuration: &Configuration) -> RolloutSpec {
        self.spec(revision, image).with(|spec| spec.configuration = Some(configuration.clone()))
    }

    /// The status of the only container, and its value of a variable.
    fn status_and(&self, variable: &str) -> (String, Option<String>) {
        let found = self.only();
        (found["State"]["Status"].as_str().unwrap().to_owned(), environment(&found).remove(variable))
    }
}

#[test]
fn values_are_in_the_environment_alone_also_of_a_stopped_app() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/variables::values_are_in_the_environment_alone_also_of_a_stopped_app");
    run(async {
        let Some(bed) = lent(case) else { return };
        let held = Held::new(bed.socket(), "/containers/create");
        let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
        let deploys = Deploys::of(bed, &other).await;
        let configuration = samples::configuration(7, &[("KEY", SECRET)]);
        let spec = deploys.configured(1, "app:v2", &configuration);
        until_held(stopped, spec.clone(), &held).await;
        let docker = &deploys.bed.docker;
        let claims = docker.run(&["volume", "ls", "-q", "--filter", &format!("name={}", deploys.name)]);
        assert_eq!(claims.lines().count(), 1, "{claims}");
        let claim = docker.run(&["volume", "inspect", claims.trim()]);
        assert!(!claim.contains("hunter2"), "{claim}");
        // Another process takes over.
        deploys.completes(&other, spec).await;
        let has = |status: &str| (status.to_owned(), Some(SECRET.to_owned()));
        assert_eq!(deploys.status_and("KEY"), has("running"));
        let labels = deploys.only()["Config"]["Labels"].to_string();
        assert!(labels.contains("KEY") && !labels.contains("hunter2"), "{labels}");

        for (revision, scale, status) in
            [(2, Scale::Stop, "created"), (3, Scale::Keep, "created"), (4, Scale::Start, "running")]
        {
            let spec = deploys.configured(revision, "app:v1", &configuration).with(|spec| spec.scale = scale);
            deploys.completes(&other, spec).await;
            assert_eq!(deploys.status_and("KEY"), has(status), "revision {revision}");
        }
        deploys.complete(&other, 5, "app:v1").await;
        assert_eq!(deploys.status_and("KEY"), ("running".to_owned(), None));
    });
}

#[test]
fn largest_configuration_is_set() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/variables::largest_configuration_is_set");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let long = "a".repeat(VARIABLE_BYTES_MAX - "LONG".len());
        let names: Vec<String> = (1..VARIABLES_MAX).map(|number| format!("NAME_{number:0>200}")).collect();
        // Each is written with 14 characters more as JSON.
        let rest = (VARIABLES_BYTES_MAX - VARIABLE_BYTES_MAX) / names.len() - names[0].len() - 15;
        let rest = "b".repeat(rest);
        let mut variables: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), rest.as_str())).collect();
        variables.push(("LONG", &long));
        let configuration = samples::configuration(7, &variables);
        for revision in [1, 2] {
            deploys.completes(&driver, deploys.configured(revision, "app:v2", &configuration)).await;
            let found = environment(&deploys.only());
            assert!(variables.iter().all(|(name, value)| found[*name] == *value), "revision {revision}");
        }
    });
}

#[test]
fn command_with_a_variable_of_another_never_begins() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/variables::command_with_a_variable_of_another_never_begins");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        // The image's own variable gives way, and the one of the container does not.
        deploys
            .completes(&driver, deploys.configured(1, "app:v1", &samples::configuration(1, &[("VERSION", "x")])))
            .await;
        assert_eq!(deploys.status_and("VERSION").1.as_deref(), Some("x"));
        let network = deploys.bed.docker.network();
        deploys.bed.docker.run(&["rm", "-f", &deploys.name]);
        deploys.bed.docker.run(&["run", "-d", "--name", &deploys.name, "--network", &network, "-e", "KEY=", "app:v1"]);
        let brought = samples::configuration(2, &[("KEY", SECRET)]).with(|brought| brought.is_new = true);
        let spec = deploys.configured(2, "app:v2", &brought);
        let run = ReleaseRun { app: spec.app.clone(), id: spec.id.into() };
        let command = vec!["/bin/sh".to_owned()];
        let release = ReleaseSpec::new(run, spec.target.clone(), spec.image.clone(), command)
            .with(|release| release.configuration.clone_from(&spec.configuration));
        let state = patiently(async || driver.prepare(&release).await).await;
        let ReleaseState::Failed(failure) = state else { panic!("{state:?}") };
        assert_eq!((failure.began, failure.reason.as_str()), (false, Reason::CONFIGURATION_CONFLICT));
        assert!(failure.message.contains("KEY") && !failure.message.contains("hunter2"), "{failure:?}");
        let refused = patiently(async || driver.apply(&spec).await).await;
        let Applied::Refused { message, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(message, failure.message);
    });
}
