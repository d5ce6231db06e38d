//! Rollbacks on a real Kubernetes: where they go, and that they stick.

use rollhook_testing::{
    beds::{Bed, FIRST},
    server, test_name, until,
};
use serde_json::json;

const V2: &str = "r.example.com/api:v2";

#[test]
fn rolled_back_image_is_held_until_released() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    let cli = bed.cli();
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s", "hold": "all" }));
    bed.succeeds(&app, V2);
    let told = cli.run("app rollback api --wait").ok().out;
    assert!(told.contains("to revision 1"), "{told}");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);

    let refused = bed.post(&app, V2).expect(409);
    assert_eq!(refused.problem(), "image-held");
    assert_eq!(refused.json()["held_by"], 3);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("rollback 3") && detail.contains("release-hold"), "{detail}");
    assert_eq!(bed.history(&app).len(), 3, "a refusal is not recorded");
    assert_eq!(bed.kubectl.running("api"), [FIRST]);

    cli.run("app release-hold api").ok();
    assert_eq!(bed.succeeds(&app, V2), 4);
    assert_eq!(bed.kubectl.running("api"), [V2]);
}

#[test]
fn by_default_a_call_of_ci_deploys_what_was_rolled_back_from() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    bed.succeeds(&app, V2);
    assert_eq!(bed.roll_back(&app)["to"]["revision"], 1);
    assert_eq!(bed.succeeds(&app, V2), 4);
    assert_eq!(bed.kubectl.running("api"), [V2]);
}

#[test]
fn from_a_failed_deploy_to_the_version_before_it_and_then_one_further() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s", "on_failure": "leave" }));
    bed.succeeds(&app, V2);
    let crash = "r.example.com/api:crash";
    bed.fails(&app, crash);
    assert_eq!(bed.kubectl.image("deployment/api"), crash, "it is left as it is");
    assert_eq!(bed.entry(&app, 3)["on_cluster"], true);
    assert_eq!(bed.entry(&app, 2)["current"], true);

    assert_eq!(bed.roll_back(&app)["to"], json!({ "revision": 2, "image": V2, "commit": "v2" }));
    assert_eq!(bed.kubectl.running("api"), [V2]);
    assert_eq!(bed.roll_back(&app)["to"]["revision"], 1);
    assert_eq!(bed.kubectl.running("api"), [FIRST]);
    let nowhere = bed.manage("POST", &format!("{}/rollback", app.path)).expect(409);
    assert_eq!(nowhere.problem(), "nothing-to-roll-back-to");
    assert_eq!(bed.history(&app).len(), 5);
}

#[test]
fn a_rollback_does_not_wait_for_a_rollout() {
    let Some(bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    bed.succeeds(&app, V2);
    let call = bed.post(&app, "r.example.com/api:gate").header("idempotency-key", "run-1");
    call.expect(202);
    until("the new image is there", || bed.kubectl.image("deployment/api").ends_with(":gate"));
    let answer = bed.roll_back(&app);
    assert_eq!((&answer["to"]["revision"], &answer["superseded"]), (&json!(2), &json!([3])));
    let told = call.header("prefer", "wait=50").expect(424);
    assert_eq!(told.problem(), "deploy-rolled-back");
    assert_eq!(bed.kubectl.image("deployment/api"), V2);
    until("only that runs", || bed.kubectl.running("api") == [V2]);
}
