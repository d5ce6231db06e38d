//! What becomes of a workload after its deploy, on a real API server.

use rollhook_testing::{
    beds::{Bed, FIRST},
    server, test_name, until,
};
use serde_json::{Value, json};

const DEGRADED: &str = "rollhook_apps_degraded";

#[test]
fn restore_that_failed_for_a_full_quota_recovers_once_there_is_room_and_the_history_says_so() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    // No old pod is left: the restore needs room too.
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "strategy": { "type": "Recreate", "rollingUpdate": null } }));
    let policy = json!({ "settle": "1s", "rollout_deadline": "10s", "patience": "2s" });
    let app = bed.adopt("Deployment", "api", policy);
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "full" },
                        "spec": { "hard": { "pods": "0" } } });
    bed.kubectl.create(&quota);
    until("the quota counts", || bed.kubectl.get("resourcequota/full")["status"]["hard"]["pods"] == "0");

    assert_eq!(bed.fails(&app, "r.example.com/api:v2")["reason"], "FailedCreate");
    let restore = bed.await_revision(&app, 3);
    assert_eq!((&restore["status"], &restore["actor"]), (&json!("failed"), &json!("auto")), "{restore}");
    let shown = || bed.manage("GET", &app.path).expect(200).json();
    let listed = || bed.cli().run("app list").ok().out;
    assert!(listed().contains("3 failed, on cluster"), "{}", listed());
    // Its failure tells of it, and not a trouble beside it.
    assert_eq!((bed.server().counted(DEGRADED), &shown()["degraded"]), (0, &json!(null)), "{}", shown());

    bed.kubectl.run(&["delete", "resourcequota/full"]);
    let recovered = |entry: &Value| entry["recovered_at"].is_string();
    until("it has recovered", || recovered(&bed.entry(&app, 3)));
    let entry = bed.entry(&app, 3);
    assert_eq!((&entry["status"], &entry["updated_at"]), (&json!("failed"), &restore["updated_at"]), "its end stays");
    assert_eq!(shown()["current"]["revision"], 1, "what runs");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
    assert!(!listed().contains("failed"), "{}", listed());
    let history = bed.cli().run("app history api").ok().out;
    let line = |revision: &str| history.lines().find(|line| line.starts_with(revision)).unwrap_or_default();
    assert!(line("1 ").contains("(current)") && line("3 ").contains("(failed, recovered)"), "{history}");
    // A process that was not there says the same.
    let mut bed = bed;
    bed.kill_and_restart();
    assert!(recovered(&bed.entry(&app, 3)));
}
