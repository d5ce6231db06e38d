//! The command line's words about a container that is made, or was there before.

use rollhook_testing::{server, test_name};
use serde_json::json;

use crate::bench::Bench;

#[test]
fn app_shows_what_its_container_was_made_with_and_which_flags_were_not_used() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (made, found, network) = (bench.name("made"), bench.name("found"), bench.docker.network());
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let flags =
        format!("--image app:v1 --network {network} --port 8080 --env TOKEN=hunter2 --memory 64m --settle 1s --wait");
    let created = cli.run(&format!("app create {made} {flags}")).ok();
    assert!(!created.err.contains("not used"), "{created:?}");
    let shown = cli.run(&format!("app show {made}")).ok().out;
    for line in ["Made with         env TOKEN\n", &format!("  network {network}\n"), "  port 8080\n", "  memory 64m\n"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let document = cli.run(&format!("app show {made} -o json")).ok();
    assert_eq!(document.json()["template"]["env"], json!(["TOKEN"]));
    assert!(!shown.contains("hunter2") && !document.out.contains("hunter2"), "{shown}");

    bench.start(&found, &[], "app:v1");
    let refused = cli.run(&format!("app create {found} {flags}")).exits(1);
    let words = ["runs app:v1", "without --env, --memory, --network, --port.", "--adopt"];
    assert!(words.iter().all(|word| refused.err.contains(word)), "{refused:?}");
    cli.run(&format!("app show {found}")).exits(1);
    let adopted = cli.run(&format!("app create {found} {flags} --adopt")).ok();
    let note =
        format!("note: container {found} exists, and stays as it is; not used: --env, --memory, --network, --port");
    assert!(adopted.err.contains(&note), "{adopted:?}");
    assert!(!cli.run(&format!("app show {found}")).ok().out.contains("Made with"), "nothing was made");

    let refused = cli.run(&format!("app create {found}-2 --image app:v1 --readiness-path healthz --port 80")).exits(1);
    assert!(refused.err.contains("error: --readiness-path: must be a path"), "{refused:?}");
}

#[test]
fn container_that_exists_is_asked_for_a_path_and_the_costs_are_told() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, port) = (bench.name("web"), rollhook_testing::free_address().port());
    let publish = format!("127.0.0.1:{port}:8080");
    let network = bench.docker.network();
    let run = ["run", "-d", "--name", &name, "--network", &network, "--no-healthcheck", "-p", &publish, "app:v1"];
    bench.docker.run(&run);
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let created = cli.run(&format!("app create {name} --settle 1s --rollout-deadline 20s --wait")).ok();
    for note in ["as port", "--publish 127.0.0.1:8081-8082:80", "has run for 5 s", "--readiness-path"] {
        assert!(created.err.contains(note), "{note}: {created:?}");
    }
    let failed = cli.run(&format!("app set {name} --readiness-path /nowhere --readiness-port 8080 --wait")).exits(3);
    assert!(format!("{}{}", failed.out, failed.err).contains("/nowhere"), "{failed:?}");
    cli.run(&format!("app set {name} --readiness-path /version --wait")).ok();
    let listed = cli.run(&format!("app config list {name}")).ok();
    assert!(
        listed.out.contains("readiness_port") && listed.out.contains("8080"),
        "the only one that it exposes: {listed:?}"
    );
    cli.run(&format!("app deploy {name} app:v2 --wait")).ok();
    assert_eq!(bench.version(&name), "v2");
    cli.run(&format!("app set {name} --readiness-path= --wait")).ok();
}

#[test]
fn app_whose_container_another_registration_took_takes_it_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    let other = bench.name("other");
    let settings = json!({ "workload": { "kind": "container", "name": name }, "take_over": true });
    let other = bench.register(&other, &settings);
    bench.succeeds(&other, "app:v1");
    let refused = bench.fails(&app, "app:v2");
    assert_eq!(refused["reason"], "foreign-target", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("app set --take-over"), "{refused}");
    bench.server.manage("PATCH", &app.path).json(&json!({ "take_over": true })).expect(200);
    bench.succeeds(&app, "app:v2");
    assert_eq!(bench.entry(&app, 1)["status"], "succeeded", "its history stays");
    // Both may replace the other by now; the last one to deploy runs.
    bench.succeeds(&other, "app:v1");
    bench.succeeds(&app, "app:v2");
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn settings_of_a_container_in_an_answer_are_in_the_description_of_the_api() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let document = bench.server.call("GET", "/api/v1/openapi.json").expect(200).json();
    let described = &document["components"]["schemas"]["App"]["properties"]["workload"]["properties"];
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let workload = json!({ "kind": "container", "name": name, "replace": "stop-first", "readiness_path": "/version", "readiness_port": 8080 });
    let app = bench.register(&name, &json!({ "workload": workload }));
    let shown = bench.server.manage("GET", &app.path).expect(200).json()["workload"].clone();
    assert_eq!(shown["replace_chosen"], true, "{shown}");
    let missing = shown.as_object().unwrap().keys().filter(|name| described.get(name).is_none());
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "{described}");
}
