//! Images that cannot be had from their registry: it dies or stalls in the middle of a layer, wants a login, or others
//! use up the room for pulls.

use std::{fs, process::Command};

use rollhook_testing::{App, free_address, process::Running, server, test_name, until};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, fetch, push},
    registry::{Faulty, Mode},
};

/// Pushes an image with a layer of its own, of 1 MB, which the engine does not have afterwards. Returns its name.
pub(crate) fn push_large(bench: &Bench, name: &str) -> String {
    let (made_in, image) = (bench.name("large"), format!("{}/{name}:large", bench.docker.registry()));
    let write = "busybox head -c 1000000 /dev/urandom > /large";
    bench.docker.run(&["run", "--name", &made_in, "app:v1", "sh", "-c", write]);
    bench.docker.run(&["commit", "--change", "CMD [\"/app\"]", &made_in, &image]);
    bench.docker.run(&["push", "-q", &image]);
    bench.docker.run(&["rm", &made_in]);
    bench.docker.run(&["rmi", &image]);
    format!("{name}:large")
}

fn half_pulled_image_fails_and_the_old_version_serves_on(bench: &Bench, fault: Mode, words: &str) {
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({}));
    let registry = Faulty::before(&bench.docker.registry(), fault);
    let image = format!("{}/{}", registry.address, push_large(bench, &name));
    let failed = bench.fails(&app, &image);
    assert_eq!(failed["reason"], "image-pull-failed", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains(words), "{failed}");
    bench.ended(&app, 3);
    let after = bench.inspect(&name).unwrap();
    assert_eq!(after["Id"], before["Id"]);
    assert_eq!(after["State"]["StartedAt"], before["State"]["StartedAt"]);
    registry.set(Mode::Sound);
    bench.succeeds(&app, &image);
    assert_eq!(bench.containers(&name), [&*name]);
}

#[test]
fn registry_that_dies_in_the_middle_of_a_layer_fails_the_deploy_alone() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    half_pulled_image_fails_and_the_old_version_serves_on(&bench, Mode::Breaks, "EOF");
}

#[test]
fn registry_that_stalls_in_the_middle_of_a_layer_fails_the_deploy_alone() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    half_pulled_image_fails_and_the_old_version_serves_on(&bench, Mode::Stalls, "the registry sent nothing for 60 s");
}

/// The condition that an entry's rollout waits for.
fn waits_for(bench: &Bench, app: &App, revision: u64) -> String {
    bench.entry(app, revision)["progress"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Registers apps whose images come so slowly that they never end, until their pulls take all the room of their environment.
fn use_up_all_room(bench: &Bench, slow: &str, policy: &Value) -> Vec<App> {
    let template = json!({ "network": bench.docker.network() });
    let document = json!({ "image": slow, "template": template, "policy": policy });
    let apps: Vec<App> =
        (1..=2).map(|number| bench.server.register(&bench.name(&format!("slow-{number}")), &document)).collect();
    for app in &apps {
        until("the image is being pulled", || waits_for(bench, app, 1).contains(" layers, "));
    }
    apps
}

/// Registers an app whose image, which is sound, waits for its turn.
fn register_waiting(bench: &Bench, name: &str, image: &str) -> App {
    let template = json!({ "network": bench.docker.network() });
    let document = json!({ "image": image, "template": template, "policy": { "settle": "1s" } });
    let app = bench.server.register(name, &document);
    until("it waits for its turn", || waits_for(bench, &app, 1).contains("waiting for its turn"));
    app
}

#[test]
fn deploy_that_supersedes_another_makes_room_for_its_pull() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let registry = Faulty::before(&bench.docker.registry(), Mode::Trickles);
    let slow = format!("{}/{}", registry.address, push_large(&bench, &bench.name("slow")));
    let name = bench.name("web");
    let image = push(&bench.docker, "app:v1", &format!("{name}:v1"));
    let apps = use_up_all_room(&bench, &slow, &json!({ "settle": "1s" }));
    let waiting = register_waiting(&bench, &name, &image);
    for app in &apps {
        bench.succeeds(app, "app:v2");
        assert_eq!(bench.entry(app, 1)["status"], "superseded");
    }
    assert_eq!(bench.ended(&waiting, 1)["status"], "succeeded");
    assert_eq!(bench.version(&name), "v1");
}

#[test]
fn first_deploys_that_fail_make_room_for_their_pulls() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let registry = Faulty::before(&bench.docker.registry(), Mode::Trickles);
    let slow = format!("{}/{}", registry.address, push_large(&bench, &bench.name("slow")));
    let name = bench.name("web");
    let image = push(&bench.docker, "app:v1", &format!("{name}:v1"));
    let apps = use_up_all_room(&bench, &slow, &json!({ "settle": "1s", "rollout_deadline": "60s" }));
    let waiting = register_waiting(&bench, &name, &image);
    for app in &apps {
        let failed = bench.ended(app, 1);
        assert_eq!(
            (&failed["status"], &failed["reason"]),
            (&json!("failed"), &json!("rollout-deadline-exceeded")),
            "{failed}"
        );
    }
    assert_eq!(bench.ended(&waiting, 1)["status"], "succeeded");
    assert_eq!(bench.version(&name), "v1");
}

/// A registry with the images of the bed's, which one user may pull: `ci`, with the password `hunter2`.
fn private_registry(bench: &Bench) -> (Running, String) {
    let (config, users) = (bench.server.file("registry.yml"), bench.server.file("htpasswd"));
    fs::write(&users, "ci:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n").unwrap();
    let (address, images) = (free_address(), bench.docker.state.join("registry"));
    let storage = format!("storage: {{filesystem: {{rootdirectory: {}}}}}", images.display());
    let http = format!("http: {{addr: \"{address}\", secret: s, debug: {{addr: \"\"}}}}");
    let auth = format!("auth: {{htpasswd: {{realm: r, path: {}}}}}", users.display());
    fs::write(&config, format!("version: 0.1\n{storage}\n{http}\n{auth}\n")).unwrap();
    let log = || fs::File::options().create(true).append(true).open(bench.server.file("registry.log")).unwrap();
    let mut command = Command::new("docker-registry");
    let registry = command.arg("serve").arg(&config).stdout(log()).stderr(log()).spawn().unwrap();
    let registry = Running(registry);
    until("the registry serves", || fetch(&format!("http://ci:hunter2@{address}/v2/")).is_some());
    (registry, address.to_string())
}

#[test]
fn private_image_is_pulled_with_the_login_of_the_servers_configuration() {
    let start = server!();
    let logins = start.file("docker");
    fs::create_dir(&logins).unwrap();
    let Some(bench) = Bench::lent(start.variable("DOCKER_CONFIG", &logins), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    let image = format!("{}/{name}", bench.docker.registry());
    push(&bench.docker, "app:v2", &format!("{name}:v2"));
    let (_registry, address) = private_registry(&bench);
    let image = format!("{}:v2", image.replace(&bench.docker.registry(), &address));
    let log_in = |auth: &str| {
        fs::write(logins.join("config.json"), json!({ "auths": { &address: { "auth": auth } } }).to_string()).unwrap();
    };
    // Without a login, with `ci:wrong`, and with `ci:hunter2`.
    for auth in [None, Some("Y2k6d3Jvbmc=")] {
        auth.into_iter().for_each(log_in);
        let failed = bench.fails(&app, &image);
        assert_eq!(failed["reason"], "image-pull-failed", "{failed}");
        let message = failed["message"].as_str().unwrap();
        assert!(message.contains("auth") && !message.contains("wrong"), "{failed}");
        assert_eq!(bench.version(&name), "v1");
    }
    log_in("Y2k6aHVudGVyMg==");
    bench.succeeds(&app, &image);
    assert_eq!(bench.version(&name), "v2");
}
