//! Deploys that succeed, and that fail.

use rollhook_testing::{App, free_address, server, server::registration, test_name, until};
use serde_json::{Value, json};

use crate::bench::{Bench, fetch, push};

#[test]
fn container_is_adopted_deployed_put_right_and_rolled_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let given = ["-e", "MODE=test", "--restart", "unless-stopped", "--memory", "64m", "--label", "team=shop"];
    bench.start(&name, &given, "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({}));
    assert_eq!(bench.inspect(&name).unwrap()["Id"], before["Id"], "registering changes nothing");

    bench.succeeds(&app, "app:v2");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v2".to_owned(), vec![name.clone()]));
    let after = bench.inspect(&name).unwrap();
    assert_eq!(after["HostConfig"], before["HostConfig"]);
    assert_eq!(after["Config"]["Labels"]["team"], "shop");
    let env = |container: &Value| container["Config"]["Env"].as_array().unwrap().clone();
    assert!(env(&after).contains(&json!("MODE=test")) && env(&after).contains(&json!("VERSION=v2")), "{after}");

    let failed = bench.fails(&app, "app:crash");
    assert_eq!(
        (failed["reason"].as_str(), failed["revision"].as_u64()),
        (Some("container-exited"), Some(3)),
        "{failed}"
    );
    assert!(failed["message"].as_str().unwrap().contains(" exited"), "{failed}");
    assert!(failed["evidence"]["log"].as_array().unwrap().contains(&json!("no database")), "{failed}");
    let restored = bench.ended(&app, 4);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v2".to_owned(), vec![name.clone()]));

    let back = bench.roll_back(&app);
    assert!(back["image"].as_str().unwrap().starts_with("app:v1@sha256:"), "{back}");
    assert_eq!(bench.version(&name), "v1");
    let shown = bench.cli().run(&format!("app show {name}")).ok().out;
    assert!(shown.contains(&format!("container/{name}, the new container starts beside the old one")), "{shown}");
}

#[test]
fn failing_version_never_takes_the_place_of_one_that_serves() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let before = bench.inspect(&name).unwrap()["Id"].clone();
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "on_failure": "leave" } }));
    for (image, reason) in [("app:crash", "container-exited"), ("127.0.0.1:1/app:none", "image-pull-failed")] {
        let failed = bench.fails(&app, image);
        assert_eq!(failed["reason"], reason, "{failed}");
        let serving = bench.inspect(&name).unwrap();
        assert_eq!((&serving["Id"], &serving["State"]["Running"]), (&before, &json!(true)), "{failed}");
        assert_eq!(bench.version(&name), "v1");
    }
}

#[test]
fn container_with_a_fixed_port_is_created_replaced_and_put_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let port = free_address();
    let template = json!({
        "port": 8080, "publish": [format!("{port}:8080")], "readiness_path": "/version",
        "network": bench.docker.network(), "env": { "MODE": "test", "VERSION": "v1" },
    });
    let app = bench.register(&name, &json!({ "image": "app:v1", "template": template }));
    let url = format!("http://{port}/version");
    assert_eq!(fetch(&url).as_deref(), Some("v1"));
    let shown = bench.cli().run(&format!("app show {name}")).ok().out;
    assert!(shown.contains("the old container stops before the new one starts"), "{shown}");

    let deployed = bench.succeeds(&app, "app:v2");
    let entry = bench.entry(&app, deployed["revision"].as_u64().unwrap());
    assert!(entry.to_string().contains("the old container stopped before the new one started"), "{entry}");
    assert_eq!(fetch(&url).as_deref(), Some("v2"));
    let env = bench.inspect(&name).unwrap()["Config"]["Env"].clone();
    assert!(env.as_array().unwrap().contains(&json!("VERSION=v1")), "given, though the first image's own: {env}");
    bench.fails(&app, "app:crash");
    assert_eq!(bench.ended(&app, 4)["status"], "succeeded");
    assert_eq!(fetch(&url).as_deref(), Some("v2"));
    assert_eq!(bench.containers(&name), [name]);
}

#[test]
fn version_that_is_not_ready_in_time_is_put_back_where_the_old_one_had_to_stop() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["-p", &format!("{}:8080", free_address())], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "patience": "10m", "ready_within": "5s" } }));
    let failed = bench.fails(&app, "app:hang");
    assert!(["not-ready", "container-unhealthy"].contains(&failed["reason"].as_str().unwrap()), "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("not ready within 5 s"), "{failed}");
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v1".to_owned(), vec![name]));
}

#[test]
fn container_that_is_ready_between_its_ends_is_no_success() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    // Its first life is ready for up to 4 s, and each further one for longer than it settles.
    let script = "test -e /tmp/ready || sleep 4; touch /tmp/ready; sleep 8; exit 7";
    let network = bench.docker.network();
    let run =
        ["run", "-d", "--name", &name, "--network", &network, "--restart", "always", "app:v1", "sh", "-c", script];
    bench.docker.run(&run);
    let app = bench
        .server
        .register(&name, &json!({ "policy": { "settle": "6s", "patience": "10m", "on_failure": "leave" } }));
    let failed = bench.fails(&app, "app:v2");
    assert!(["containers-restarting", "container-exited"].contains(&failed["reason"].as_str().unwrap()), "{failed}");
}

#[test]
fn first_version_that_failed_by_its_settings_is_registered_anew_with_others() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let network = bench.docker.network();
    let start = json!({ "settle": "1s" });
    // One is made and cannot be started; one runs, and never gets ready.
    let wrong = [
        (json!({ "network": "nowhere" }), start.clone()),
        (json!({ "network": network, "readiness_path": "/no" }), json!({ "settle": "1s", "rollout_deadline": "10s" })),
    ];
    for (mut template, policy) in wrong {
        template["port"] = 8080.into();
        let app = bench.server.register(&name, &json!({ "image": "app:v1", "template": template, "policy": policy }));
        assert_eq!(bench.ended(&app, 1)["status"], "failed");
        bench.server.manage("DELETE", &app.path).expect(204);

        let template = json!({ "port": 8080, "network": network, "env": { "MODE": "right" } });
        let right = json!({ "image": "app:v1", "template": template, "policy": start });
        let refused = bench.server.manage("POST", "/api/v1/apps").json(&registration(&name, &right)).expect(409).text();
        assert!(refused.contains("--take-over"), "{refused}");
        let take_over = json!({ "image": "app:v1", "template": template, "policy": start, "take_over": true });
        let app = bench.register(&name, &take_over);
        assert_eq!(bench.containers(&name), std::slice::from_ref(&name), "what failed is gone");
        let env = bench.inspect(&name).unwrap()["Config"]["Env"].clone();
        assert!(env.as_array().unwrap().contains(&json!("MODE=right")), "{env}");
        bench.server.manage("DELETE", &app.path).expect(204);
        bench.docker.run(&["rm", "-f", &name]);
    }
}

#[test]
fn container_that_was_made_anew_is_the_model_of_the_next_deploy() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["-e", "MODE=test"], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    bench.docker.run(&["rm", "-f", &name]);
    let port = free_address();
    bench.start(&name, &["-e", "MODE=production", "-p", &format!("{port}:8080")], "app:v2");
    let deployed = bench.succeeds(&app, "app:v1");
    let entry = bench.entry(&app, deployed["revision"].as_u64().unwrap());
    assert!(entry.to_string().contains("the old container stopped before the new one started"), "{entry}");
    assert_eq!(fetch(&format!("http://{port}/version")).as_deref(), Some("v1"));
    let env = bench.inspect(&name).unwrap()["Config"]["Env"].clone();
    assert!(env.as_array().unwrap().contains(&json!("MODE=production")), "{env}");
    assert_eq!(bench.containers(&name), [name]);
}

#[test]
fn image_that_cannot_be_pulled_costs_no_gap_where_the_old_container_would_stop_first() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["-v", &format!("{name}:/data"), "--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    let claims = || bench.docker.run(&["volume", "ls", "-q", "--filter", &format!("name=rollhook.{name}")]);
    // First the container is a person's, then one of ours.
    for deploy in ["app:v2", "app:v1"] {
        let before = bench.inspect(&name).unwrap();
        let failed = bench.fails(&app, "127.0.0.1:1/app:none");
        let restored = bench.ended(&app, failed["revision"].as_u64().unwrap() + 1);
        assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
        assert!(restored.to_string().contains("was never replaced, and runs on"), "{restored}");
        let after = bench.inspect(&name).unwrap();
        for part in ["/Id", "/State/StartedAt", "/Name"] {
            assert_eq!(after.pointer(part), before.pointer(part), "the container was touched");
        }
        assert_eq!(bench.server.manage("GET", &app.path).expect(200).json()["drift"], json!(null));
        assert_eq!(claims().lines().count(), 1, "the restore's own says which container it keeps");
        bench.succeeds(&app, deploy);
        assert_eq!((claims().as_str(), bench.containers(&name)), ("", vec![name.clone()]));
    }
    assert_eq!(bench.version(&name), "v1");

    // So also by an app that has taken the container over.
    let keeps = |app: &App| {
        let before = bench.inspect(&name).unwrap()["Id"].clone();
        let failed = bench.fails(app, "127.0.0.1:1/app:none");
        assert_eq!(bench.ended(app, failed["revision"].as_u64().unwrap() + 1)["status"], "succeeded");
        assert_eq!(bench.inspect(&name).unwrap()["Id"], before, "the container was replaced");
    };
    bench.server.manage("DELETE", &app.path).expect(204);
    let app = bench.register(&name, &json!({ "take_over": true }));
    keeps(&app);
    // What the restore left ends with the container: another one of the name is registered as it is.
    bench.server.manage("DELETE", &app.path).expect(204);
    bench.docker.run(&["rm", "-f", &name]);
    bench.start(&name, &[], "app:v2");
    let app = bench.register(&name, &json!({}));
    assert_eq!(bench.entry(&app, 1)["image"], "app:v2");
    bench.succeeds(&app, "app:v1");
    assert_eq!((claims().as_str(), bench.version(&name)), ("", "v1".to_owned()));
}

#[test]
fn container_that_does_not_get_ready_by_its_path_says_what_it_answers() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    for (port, answer) in [(8080, "/nowhere answers 404"), (9, "/nowhere gives no answer: Connection refused")] {
        let name = bench.name(&format!("web-{port}"));
        let template = json!({ "port": port, "readiness_path": "/nowhere", "network": bench.docker.network() });
        let policy = json!({ "settle": "1s", "rollout_deadline": "10s" });
        let document = json!({ "image": "app:v1", "template": template, "policy": policy });
        let app = bench.server.register(&name, &document);
        let failed = bench.ended(&app, 1);
        assert!(failed["status"] == "failed" && failed.to_string().contains(answer), "{failed}");
    }
}

#[test]
fn container_that_runs_out_of_memory_says_so() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, image) = (bench.name("web"), format!("{}:eats", bench.name("app")));
    bench.start(&name, &["--memory", "32m", "--memory-swap", "32m"], "app:v1");
    let command = json!(["/bin/sh", "-c", "rm -f /tmp/ready; all=$(busybox yes); exit 1"]);
    bench.docker.run(&["commit", "--change", &format!("CMD {command}"), &name, &image]);
    let app = bench.register(&name, &json!({}));
    let failed = bench.fails(&app, &image);
    assert_eq!(failed["reason"], "container-out-of-memory", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("ran out of memory and was killed"), "{failed}");
    assert!(failed["evidence"]["state"].as_str().unwrap().contains("ran out of memory"), "{failed}");
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    assert_eq!(bench.version(&name), "v1");
    bench.docker.try_run(&["rmi", &image]);
}

#[test]
fn moved_tag_is_rolled_back_by_its_digest() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let image = push(&bench.docker, "app:v1", &format!("{name}:latest"));
    let template = json!({ "port": 8080, "network": bench.docker.network() });
    let app = bench.register(&name, &json!({ "image": image, "template": template }));
    assert_eq!(bench.version(&name), "v1");
    push(&bench.docker, "app:v2", &format!("{name}:latest"));
    bench.succeeds(&app, &image);
    assert_eq!(bench.version(&name), "v2", "a tag that moved is pulled anew");
    // Only the registry has the bits of the first one.
    let back = bench.roll_back(&app);
    assert!(back["image"].as_str().unwrap().contains("@sha256:"), "{back}");
    assert_eq!(bench.version(&name), "v1");
}

#[test]
fn service_of_a_compose_project_keeps_its_labels() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, project) = (bench.name("web"), bench.name("shop"));
    let container = format!("{project}-web-1");
    let labels = [
        format!("com.docker.compose.project={project}"),
        format!("com.docker.compose.service={name}"),
        "com.docker.compose.config-hash=abc".to_owned(),
        "com.docker.compose.oneoff=False".to_owned(),
    ];
    let given: Vec<&str> =
        labels.iter().flat_map(|label| ["--label", label]).chain(["--network-alias", "web"]).collect();
    bench.start(&container, &given, "app:v1");
    let app = bench.register(&name, &json!({}));
    let shown = bench.server.manage("GET", &app.path).expect(200).json();
    assert_eq!(
        shown["workload"],
        json!({ "kind": "compose", "name": format!("{project}/{name}"), "replace": "start-first" })
    );

    bench.succeeds(&app, "app:v2");
    let after = bench.inspect(&container).unwrap();
    assert_eq!(bench.version(&container), "v2");
    for label in &labels {
        let (label, value) = label.split_once('=').unwrap();
        assert_eq!(after["Config"]["Labels"][label], value, "{label}");
    }
    let network = &after["NetworkSettings"]["Networks"][bench.docker.network()];
    assert!(network["Aliases"].as_array().unwrap().contains(&json!("web")), "{network}");
    assert_eq!(bench.containers(&container), [&*container]);

    // Compose puts the version of its file in place: its container is the next one's model, and drift until then.
    bench.docker.run(&["rm", "-f", &container]);
    bench.start(&container, &[&given[..], &["-e", "NEW=setting"]].concat(), "app:v1");
    until("the change is told", || {
        bench.server.manage("GET", &app.path).expect(200).json()["drift"]["image"] == "app:v1"
    });
    bench.succeeds(&app, "app:v2");
    let env = bench.inspect(&container).unwrap()["Config"]["Env"].clone();
    assert!(env.as_array().unwrap().contains(&json!("NEW=setting")), "{env}");
}

#[test]
fn volume_that_the_engine_named_goes_over_to_the_next_container() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    for (kind, given) in [("bind", ["-v", "/data"]), ("mount", ["--mount", "type=volume,dst=/data"])] {
        let name = bench.name(kind);
        bench.start(&name, &given, "app:v1");
        bench.docker.run(&["exec", &name, "sh", "-c", "echo kept > /data/file"]);
        let app = bench.register(&name, &json!({}));
        let shown = bench.server.manage("GET", &app.path).expect(200).json();
        assert_eq!(shown["workload"]["replace"], "stop-first", "two containers would write to one volume");
        for image in ["app:v2", "app:v1"] {
            bench.succeeds(&app, image);
            assert_eq!(bench.docker.run(&["exec", &name, "cat", "/data/file"]).trim(), "kept", "{kind}");
        }
    }
}

#[test]
fn volume_whose_place_ends_with_a_slash_goes_over_to_the_next_container() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["-v", &format!("{name}:/data/")], "app:v1");
    bench.docker.run(&["exec", &name, "sh", "-c", "echo kept > /data/file"]);
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    assert_eq!(bench.docker.run(&["exec", &name, "cat", "/data/file"]).trim(), "kept");
}

#[test]
fn container_of_a_registration_that_is_gone_is_taken_over() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let before = bench.register(&name, &json!({}));
    bench.succeeds(&before, "app:v2");
    bench.server.manage("DELETE", &before.path).expect(204);
    let app = bench.register(&name, &json!({ "take_over": true }));
    assert_eq!(bench.entry(&app, 1)["image"], "app:v2");
    bench.succeeds(&app, "app:v1");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v1".to_owned(), vec![name]));
}

#[test]
fn container_that_removes_itself_is_refused() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--rm"], "app:v1");
    let refused = bench.server.manage("POST", "/api/v1/apps").json(&registration(&name, &json!({}))).expect(422);
    assert!(refused.text().contains("start it without --rm"), "{}", refused.text());
}

#[test]
fn service_that_was_scaled_keeps_its_containers() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, project) = (bench.name("web"), bench.name("shop"));
    let labels = [("project", &project), ("service", &name)];
    let labels = labels.map(|(label, value)| format!("--label=com.docker.compose.{label}={value}"));
    let instance = |number: u32| {
        let container = format!("{project}-web-{number}");
        bench.start(&container, &[&*labels[0], &*labels[1]], "app:v1");
        container
    };
    let first = instance(1);
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    let second = instance(2);
    let failed = bench.fails(&app, "app:v1");
    assert_eq!(failed["reason"], "workload-unsupported", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("scaled to 2 containers"), "{failed}");
    assert_eq!((bench.version(&first), bench.version(&second)), ("v2".to_owned(), "v1".to_owned()));
    bench.docker.run(&["stop", "-t", "1", &second]);
    bench.succeeds(&app, "app:v1");
    assert_eq!(bench.version(&first), "v1");
    assert!(bench.inspect(&second).is_some(), "a container that ended is left alone");
}

#[test]
fn server_that_is_killed_in_a_deploy_ends_it_after_its_restart() {
    let Some(mut bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    for (revision, image) in [(2, "app:v2"), (3, "app:v1"), (4, "app:v2")] {
        bench.post(&app, image).expect(202);
        until("the deploy has its claim or container", || {
            bench.containers(&name).len() > 1 || bench.entry(&app, revision)["status"] == "succeeded"
        });
        bench.server.restart();
        assert_eq!(bench.ended(&app, revision)["status"], "succeeded");
        assert_eq!(bench.containers(&name), [&*name]);
    }
    assert_eq!(bench.version(&name), "v2");
    let volumes = bench.docker.run(&["volume", "ls", "-q", "--filter", &format!("name={name}")]);
    assert_eq!(volumes, "", "no claim is left");
}
