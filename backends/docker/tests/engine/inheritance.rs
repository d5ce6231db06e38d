//! What an image brings along by its labels and volumes, which is its own and no later version's.

use rollhook_core::{
    deploy::Reason,
    ports::{Applied, RolloutDriver},
};
use rollhook_docker::DockerMachine;
use serde_json::{Value, json};

use crate::{
    bed::Bed,
    conformance::run,
    fence::{Deploys, lent, patiently},
};

/// Makes an image of another one, with these instructions of a Dockerfile, and returns its name.
fn image(bed: &Bed, tag: &str, from: &str, instructions: &[&str]) -> String {
    let (image, model) = (format!("app:{}", bed.name(tag)), bed.name(&format!("{tag}-model")));
    bed.docker.run(&["create", "--name", &model, from]);
    let mut commit = vec!["commit"];
    commit.extend(instructions.iter().flat_map(|instruction| ["--change", instruction]));
    commit.extend([model.as_str(), image.as_str()]);
    bed.docker.run(&commit);
    bed.docker.run(&["rm", &model]);
    image
}

impl Deploys {
    /// The only container.
    pub(crate) fn only(&self) -> Value {
        let ids = self.bed.containers(&self.name, &["-a"]);
        let [id] = &ids[..] else { panic!("{ids:?}") };
        self.bed.inspect(id).unwrap()
    }

    /// The places of its volumes, with their names.
    fn volumes(&self) -> Vec<(String, String)> {
        let found = self.only();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mounts = found["Mounts"].as_array().unwrap().iter();
        let mut volumes: Vec<_> = mounts.map(|mount| (text(&mount["Destination"]), text(&mount["Name"]))).collect();
        volumes.sort();
        volumes
    }
}

#[test]
fn labels_of_an_image_are_of_no_container() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/inheritance::labels_of_an_image_are_of_no_container");
    run(async {
        let Some(bed) = lent(case) else { return };
        let label = |name: &str, value: &str| format!("LABEL dev.rollhook.{name}={value}");
        let other = "00000000000000000000000000000b0b";
        let labels = [
            label("given", r#"'["Entrypoint","Env EVIL"]'"#),
            label("volumes", r#"'{"/www":"evil"}'"#),
            label("took-over", other),
            label("deploy", &format!("{other}/99")),
            label("target", "container/other"),
            label("name", "other"),
        ];
        let mut instructions: Vec<&str> = labels.iter().map(String::as_str).collect();
        instructions.extend([r#"ENTRYPOINT ["/bin/sh"]"#, r#"CMD ["/app"]"#, "ENV EVIL=1"]);
        let bad = image(&bed, "bad", "app:v2", &instructions);
        let driver = DockerMachine::at(bed.socket());
        // The container that is adopted is of such an image too.
        let deploys = Deploys::over(bed, &driver, &bad).await;
        deploys.complete(&driver, 1, &bad).await;
        let labels = deploys.only()["Config"]["Labels"].clone();
        for (name, value) in [("given", "[]"), ("volumes", "{}"), ("took-over", ""), ("name", deploys.name.as_str())] {
            assert_eq!(labels[format!("dev.rollhook.{name}")], value);
        }
        deploys.complete(&driver, 2, "app:v1").await;
        let config = deploys.only()["Config"].clone();
        assert!(config["Entrypoint"].is_null() && config["Cmd"] == json!(["/app"]), "{config}");
        assert!(!config["Env"].to_string().contains("EVIL"), "{config}");
    });
}

#[test]
fn volume_of_an_image_goes_over_to_images_that_ask_for_it() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/inheritance::volume_of_an_image_goes_over_to_images_that_ask_for_it");
    run(async {
        let Some(bed) = lent(case) else { return };
        let good = image(&bed, "good", "app:v1", &["VOLUME /data"]);
        let bad = image(&bed, "bad", "app:v2", &["VOLUME /data", "VOLUME /www"]);
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::over(bed, &driver, &good).await;
        let data = deploys.volumes();
        assert_eq!(data.len(), 1, "{data:?}");
        for (revision, image, volumes) in [(1, &good, 1), (2, &bad, 2), (3, &bad, 2), (4, &good, 1)] {
            deploys.complete(&driver, revision, image).await;
            let found = deploys.volumes();
            assert!(found.len() == volumes && found[0] == data[0], "{revision}: {found:?}, {data:?}");
        }
        let version = deploys.bed.docker.run(&["exec", &deploys.name, "cat", "/www/version"]);
        assert_eq!(version.trim(), "v1", "the bad version's files stay");
        // A version in between that asks for none costs no data.
        deploys.complete(&driver, 5, "app:v1").await;
        assert_eq!(deploys.volumes(), []);
        deploys.complete(&driver, 6, &good).await;
        assert_eq!(deploys.volumes(), data);
    });
}

#[test]
fn container_whose_image_was_removed_by_force_is_no_model() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/inheritance::container_whose_image_was_removed_by_force_is_no_model");
    run(async {
        let Some(bed) = lent(case) else { return };
        let instructions = ["LABEL traefik.enable=true", "LABEL dev.rollhook.given='[\"Env EVIL\"]'", "ENV EVIL=1"];
        let bad = image(&bed, "bad", "app:v2", &instructions);
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::over(bed, &driver, &bad).await;
        for revision in [0, 1] {
            if revision > 0 {
                // Now the container is of a deploy.
                deploys.complete(&driver, revision, &bad).await;
            }
            let directory = tempfile::tempdir().unwrap();
            let archive = directory.path().join("image.tar").display().to_string();
            deploys.bed.docker.run(&["save", "--output", &archive, &bad]);
            let (before, id) = (deploys.only(), deploys.only()["Image"].as_str().unwrap().to_owned());
            deploys.bed.docker.run(&["stop", "--time", "1", &deploys.name]);
            deploys.bed.docker.run(&["rmi", "--force", &id]);
            deploys.bed.docker.run(&["start", &deploys.name]);
            let spec = deploys.spec(revision + 1, "app:v1");
            let refused = patiently(async || driver.apply(&spec).await).await;
            let Applied::Refused { reason, message } = refused else { panic!("{refused:?}") };
            assert_eq!(reason.as_str(), Reason::UNSUPPORTED);
            assert!(message.contains(&deploys.name) && message.contains(&id), "{message}");
            assert_eq!(deploys.only()["Id"], before["Id"], "nothing was touched");
            deploys.bed.docker.run(&["load", "--input", &archive]);
        }
        deploys.complete(&driver, 2, "app:v1").await;
        let config = deploys.only()["Config"].clone();
        assert!(
            !config["Env"].to_string().contains("EVIL") && config["Labels"]["traefik.enable"] != "true",
            "{config}"
        );
    });
}
