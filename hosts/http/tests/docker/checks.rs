//! Checks by a command, which runs in a container of its own.

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
