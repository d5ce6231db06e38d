//! Release commands in real containers: they run once with the new image, whatever becomes of the server meanwhile.

use rollhook_testing::{App, beds::Bed, server, test_name};
use serde_json::{Value, json};

use crate::containers::{answers, push};

fn set_command(bed: &Bed, app: &App, tag: &str, how: &str) {
    let command = [&format!("/app-{tag}"), "migrate", how];
    bed.manage("PATCH", &app.path).json(&json!({ "policy": { "release_command": command } })).expect(200);
}

/// The log of a revision's release command; empty while there is none.
fn log(bed: &Bed, app: &App, revision: u64) -> String {
    let reply = bed.manage("GET", &format!("{}/deploys/{revision}/log?step=release", app.path)).send();
    if reply.status == 200 { reply.text() } else { String::new() }
}

/// The pods that have run a revision's release command.
fn runs(bed: &Bed, revision: u64) -> usize {
    let label = format!("rollhook.dev/release-revision={revision}");
    bed.kubectl.run(&["get", "pods", "--selector", &label, "--output", "name"]).lines().count()
}

fn roll_back(bed: &Bed, app: &App, body: &Value) -> rollhook_testing::Reply {
    bed.manage("POST", &format!("{}/rollback", app.path)).json(body).send()
}

#[test]
fn release_command_runs_once_before_the_rollout_and_a_failed_one_rolls_nothing_out() {
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| Vec::new()) else { return };
    let [(v1, _), (v2, second), (v3, _)] =
        ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")));
    bed.kubectl.make("Deployment", "api", &v1, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));

    set_command(&bed, &app, "v2", "succeeds");
    bed.succeeds(&app, &v2);
    assert_eq!(answers(&bed, "api"), ["version=v2"]);
    let entry = bed.entry(&app, 2);
    assert_eq!((&entry["release"], &entry["digest"]), (&json!("done"), &json!(second)));
    let said = log(&bed, &app, 2);
    assert!(said.contains("migrate v2 has begun") && said.contains("migrate v2 is done"), "{said}");

    set_command(&bed, &app, "v3", "fails");
    let failed = bed.fails(&app, &v3);
    assert_eq!(failed["reason"], "release-failed", "{failed}");
    assert!(bed.entry(&app, 3)["evidence"]["log"].to_string().contains("migrate v3 failed"));
    assert_eq!(answers(&bed, "api"), ["version=v2"], "nothing was rolled out");
    assert_eq!((runs(&bed, 2), runs(&bed, 3)), (1, 1));

    let refused = roll_back(&bed, &app, &json!({ "revision": 1 }));
    assert_eq!((refused.status, refused.problem().as_str()), (409, "release-between"));
    assert_eq!(roll_back(&bed, &app, &json!({ "revision": 1, "past_releases": true })).status, 202);
    assert_eq!(bed.await_revision(&app, 4)["status"], "succeeded");
    assert_eq!(answers(&bed, "api"), ["version=v1"]);
    assert_eq!(runs(&bed, 4), 0);
}
