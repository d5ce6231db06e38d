//! Checks by a command, which runs in a container of its own, and of the deploy's container.

use rollhook_testing::{server, test_name, until};
use serde_json::json;

use crate::bench::Bench;

#[test]
fn command_runs_with_the_new_image_and_brings_a_version_back_that_fails_it() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["-e", "MODE=test", "--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s" } }));
    let set = |script: &str| {
        let check = json!({ "kind": "command", "settings": { "command": ["sh", "-c", script] }, "failures": 1 });
        bench.server.manage("PUT", &format!("{}/checks/smoke", app.path)).json(&check).expect(200);
    };
    set("echo smoke of $VERSION in $MODE; test $VERSION = v2");
    bench.succeeds(&app, "app:v2");
    let done = bench.entry(&app, 2);
    let check = &done["checks"][0];
    assert_eq!((&check["verdict"], &check["condition"]), (&json!("pass"), &json!("exit code 0")), "{done}");
    let failed = bench.fails(&app, "app:v1");
    assert_eq!(failed["reason"], "check-failed", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("smoke of v1 in test"), "{failed}");
    bench.ended(&app, 4);
    assert_eq!(bench.version(&name), "v2");
    let tried = bench.server.manage("POST", &format!("{}/checks/smoke/test", app.path)).expect(200).json();
    assert_eq!(tried["verdict"], "pass", "{tried}");
    let unstarted = json!({ "kind": "command", "settings": { "command": ["bin/absent"] } });
    bench.server.manage("PUT", &format!("{}/checks/smoke", app.path)).json(&unstarted).expect(200);
    let tried = bench.server.manage("POST", &format!("{}/checks/smoke/test", app.path)).expect(200).json();
    assert_eq!(tried["verdict"], "none", "{tried}");
    assert!(tried["message"].as_str().unwrap().starts_with("Docker cannot start the command"), "{tried}");

    // A command that goes on is ended with the verification.
    set("exec sleep 1000");
    bench.post(&app, "app:v1").expect(202);
    let running = || {
        let containers = bench.docker.run(&["ps", "--format", "{{.Names}}"]);
        containers.lines().filter(|name| name.starts_with("rollhook.check.")).count()
    };
    until("the command runs", || (running() == 1).then_some(()));
    bench.server.manage("POST", &format!("{}/deploys/5/cancel", app.path)).expect(200);
    until("the command has ended", || (running() == 0).then_some(()));
}

#[test]
fn container_of_the_deploy_is_asked_at_its_own_address_and_named_if_it_fails() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s" } }));
    let check = json!({
        "kind": "http", "every": "1s", "failures": 2,
        "settings": { "url": "https://web.invalid/version", "each_instance": 8080, "contains": "v2" },
    });
    bench.server.manage("PUT", &format!("{}/checks/each", app.path)).json(&check).expect(200);
    let test = || bench.server.manage("POST", &format!("{}/checks/each/test", app.path)).expect(200).json();
    let adopted = test();
    let named = format!("200 from {name} (1 of 1 instances)");
    assert_eq!((&adopted["verdict"], &adopted["value"]), (&json!("fail"), &json!(named)), "{adopted}");

    bench.succeeds(&app, "app:v2");
    let passed = bench.entry(&app, 2)["checks"][0].clone();
    assert_eq!(passed["verdict"], "pass", "{passed}");
    assert_eq!(passed["measurements"][0]["value"], "1 of 1 instances", "{passed}");
    let failed = bench.fails(&app, "app:v1");
    assert_eq!(failed["reason"], "check-failed", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(&named) && message.contains("The check each failed 2 times"), "{message}");
    bench.ended(&app, 4);
    assert_eq!((bench.version(&name).as_str(), &test()["verdict"]), ("v2", &json!("pass")));
}
