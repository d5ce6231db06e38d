//! Apps that follow their repository at the machine's registry.

use rollhook_testing::{server, test_name, until};
use serde_json::{Value, json};

use crate::bench::{Bench, push};

#[test]
fn newer_version_is_deployed_once_and_one_that_was_rolled_back_from_is_left() {
    let Some(bench) = Bench::lent(server!().variable("ROLLHOOK_MIN_POLL", "1s"), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let first = push(&bench.docker, "app:v1", &format!("{name}:1.9.0"));
    bench.succeeds(&app, &first);
    let follow = json!({ "policy": { "follow": "semver:^1", "follow_settle": "2s", "poll": "1s" } });
    bench.server.manage("PATCH", &app.path).json(&follow).expect(200);
    let polling = || bench.server.manage("GET", &app.path).expect(200).json()["polling"].clone();
    until("it knows what is there", || polling()["head"].as_str().is_some_and(|known| known.contains("1.9.0")));
    push(&bench.docker, "app:v2", &format!("{name}:1.10.0"));
    push(&bench.docker, "app:v1", &format!("{name}:2.0.0"));
    until("the newer version is found", || {
        bench.server.manage("GET", &format!("{}/deploys/3", app.path)).send().status == 200
    });
    let entry = bench.ended(&app, 3);
    assert_eq!((&entry["trigger"], &entry["status"]), (&json!("registry"), &json!("succeeded")), "{entry}");
    assert_eq!(bench.version(&name), "v2");
    bench.roll_back(&app);
    for _ in 0..3 {
        let before = polling()["at"].clone();
        until("the repository is read again", || polling()["at"] != before);
    }
    assert_eq!(bench.version(&name), "v1");
    let explained: Value = bench.server.manage("GET", &format!("{}/follow", app.path)).expect(200).json();
    assert_eq!((&explained["deploys"], &explained["tags"][0]["tag"]), (&json!(false), &json!("1.10.0")), "{explained}");
    let answer = bench.server.manage("GET", &format!("{}/deploys/5", app.path)).send();
    assert_eq!(answer.status, 404, "{}", answer.text());
}
