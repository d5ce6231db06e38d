//! What a person changes on a workload behind rollhook's back, on a real API server.

use rollhook_testing::{
    beds::{Bed, FIRST},
    server, test_name, until,
};
use serde_json::{Value, json};

const DRIFTED: &str = "rollhook_apps_drifted";

#[test]
fn image_that_a_person_set_is_told_and_put_right_by_a_deploy_of_the_current_one() {
    let Some(mut bed) = Bed::cluster(server!(), &test_name!()) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({}));
    let app = bed.adopt("Deployment", "api", json!({ "settle": "0s" }));
    let current = "r.example.com/api:v2";
    bed.succeeds(&app, current);
    let path = app.path.clone();
    let listed = |bed: &Bed| bed.manage("GET", "/api/v1/apps?limit=200").expect(200).json()["apps"].clone();
    let drift = |bed: &Bed| -> [Value; 2] {
        let apps = listed(bed);
        let of_list = apps.as_array().unwrap().iter().find(|listed| listed["uid"] == shown(bed, &path)["uid"]).cloned();
        [of_list.unwrap()["drift"].clone(), shown(bed, &path)["drift"].clone()]
    };
    assert_eq!(drift(&bed), [Value::Null, Value::Null]);

    bed.kubectl.run(&["set", "image", "deployment/api", "app=r.example.com/api:hotfix"]);
    until("the watch tells the change", || bed.server().counted(DRIFTED) == 1);
    for told in drift(&bed) {
        assert_eq!(told["image"], "r.example.com/api:hotfix");
        assert!(told["message"].as_str().unwrap().contains("kubectl-set"), "{told}");
    }
    let told = bed.cli().run("app show api").ok().out;
    assert!(told.contains("hotfix"), "{told}");
    assert!(bed.cli().run("app list").ok().out.contains("hotfix runs instead"));
    assert_eq!(bed.server().log().matches("found drift").count(), 1, "one line");
    let generation = bed.kubectl.generation("deployment/api");
    // A process that was not there at the change finds it.
    bed.kill_and_restart();
    until("the change is found", || bed.server().counted(DRIFTED) == 1);
    assert_eq!(bed.kubectl.generation("deployment/api"), generation, "nothing is put right by itself");

    bed.succeeds(&app, current);
    assert_eq!(bed.kubectl.image("deployment/api"), current);
    until("all is well", || bed.server().counted(DRIFTED) == 0);
    assert_eq!(drift(&bed), [Value::Null, Value::Null]);
}

fn shown(bed: &Bed, path: &str) -> Value {
    bed.manage("GET", path).expect(200).json()
}
