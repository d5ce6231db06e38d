//! Engines that stop and come back in the middle of deploys.

use std::fs;

use rollhook_testing::{free_address, server, test_name, until};
use serde_json::json;

use crate::{bench::Bench, disk::fill, pulls::push_large};

#[test]
fn engine_that_is_killed_in_a_deploy_is_waited_for() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.post(&app, "app:v2").expect(202);
    until("the new container is there", || bench.containers(&name).len() > 1);
    bench.docker.control("kill");
    // It is recorded all the same: the engine's being away is no reason to refuse.
    bench.post(&app, "app:v1").expect(202);
    bench.docker.control("start");
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    let second = bench.ended(&app, 2);
    assert!(["succeeded", "superseded"].contains(&second["status"].as_str().unwrap()), "{second}");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v1".to_owned(), vec![name]));
}

#[test]
fn engine_that_is_killed_is_no_end_of_the_version() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let port = free_address();
    let given = ["--restart", "unless-stopped", "-p", &format!("{port}:8080")];
    // The second one has to stop before the new one starts, where the first end of a version fails its deploy.
    for (name, given) in [(bench.name("web"), &given[..2]), (bench.name("port"), &given[..])] {
        bench.start(&name, given, "app:v1");
        let app = bench.register(&name, &json!({ "policy": { "settle": "3s", "ready_within": "30s" } }));
        bench.post(&app, "app:v2").expect(202);
        let is_there = || bench.containers(&name).iter().any(|container| container != &name && bench.runs(container));
        until("the new container runs", is_there);
        bench.docker.control("kill");
        bench.docker.control("start");
        let ended = bench.ended(&app, 2);
        assert_eq!(ended["status"], "succeeded", "{ended}");
        assert_eq!((bench.version(&name), bench.containers(&name)), ("v2".to_owned(), vec![name.clone()]));
    }
}

#[test]
fn machine_that_reboots_comes_up_with_what_the_history_says() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let template = json!({ "port": 8080, "readiness_path": "/version", "network": bench.docker.network() });
    let app = bench.register(&name, &json!({ "image": "app:v1", "template": template }));
    bench.succeeds(&app, "app:v2");
    bench.docker.control("stop");
    bench.docker.control("start");
    until("it serves again", || bench.inspect(&name).is_some_and(|found| found["State"]["Running"] == true));
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v2".to_owned(), vec![name]));
    assert_eq!(bench.server.manage("GET", &app.path).expect(200).json()["drift"], json!(null));
}

#[test]
fn engine_that_does_not_answer_is_unavailable_and_not_a_failure() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.docker.control("pause");
    bench.post(&app, "app:v2").header("prefer", "wait=12").expect(202);
    bench.docker.control("resume");
    assert_eq!(bench.ended(&app, 2)["status"], "succeeded");
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn disk_that_is_full_fails_the_deploy_alone() {
    // Nothing is refused beforehand: the disk is full in the middle of the pull.
    let start = server!().variable("ROLLHOOK_LOW_DISK", "0");
    let Some(bench) = Bench::small_disk(start, &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({}));
    let image = format!("{}/{}", bench.docker.registry(), push_large(&bench, &name));
    // Less than an image takes.
    let rest = fill(&bench.docker.state.join("data"), 512 << 10);
    let failed = bench.fails(&app, &image);
    assert!(failed["message"].as_str().unwrap().contains("no space left on device"), "{failed}");
    let restored = bench.ended(&app, 3);
    assert_eq!(restored["status"], "succeeded", "{restored}");
    let after = bench.inspect(&name).unwrap();
    assert_eq!((&after["Id"], &after["State"]["StartedAt"]), (&before["Id"], &before["State"]["StartedAt"]));
    assert_eq!(bench.version(&name), "v1");
    fs::remove_file(rest).unwrap();
    bench.succeeds(&app, &image);
    assert_eq!(bench.containers(&name), [&*name]);
}
