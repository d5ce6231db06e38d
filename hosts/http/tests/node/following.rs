//! Apps that follow their repository at a real registry, before a real kubelet.

use rollhook_testing::{server, test_name, until};
use serde_json::json;

use crate::{
    containers::{answers, push},
    resolving::bed_of,
};

#[test]
fn newest_of_several_tags_is_deployed_alone_and_a_restored_one_is_left() {
    let Some(bed) = bed_of(server!().variable("ROLLHOOK_MIN_POLL", "1s"), &test_name!()) else { return };
    // The registry keeps what earlier runs have pushed.
    let repository = format!("follows-{}", std::process::id());
    let push = |tag: &str, program: &str| push(&bed, &format!("{repository}:{tag}"), program);
    let (first, _) = push("1.9.0", "app-v1");
    bed.kubectl.make("Deployment", "api", &first, json!({ "replicas": 2 }));
    let follow = json!({ "settle": "1s", "follow": "semver:^1", "follow_settle": "3s", "poll": "1s" });
    let app = bed.adopt("Deployment", "api", follow);
    let polling = || bed.manage("GET", &app.path).expect(200).json()["polling"].clone();
    until("it knows what is there", || polling()["head"].as_str().is_some_and(|known| known.contains("1.9.0")));
    push("1.10.0", "app-v3");
    let (_, digest) = push("1.11.0", "app-v2");
    push("latest", "app-v3");
    until("a newer version is found", || bed.manage("GET", &format!("{}/deploys/2", app.path)).send().status == 200);
    let entry = bed.await_revision(&app, 2);
    assert_eq!((&entry["trigger"], &entry["digest"]), (&json!("registry"), &json!(digest)), "{entry}");
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
    push("1.12.0", "crash");
    until("the broken one is found", || bed.manage("GET", &format!("{}/deploys/4", app.path)).send().status == 200);
    let restore = bed.await_revision(&app, 4);
    assert_eq!((&restore["trigger"], &restore["status"]), (&json!("rollback"), &json!("succeeded")), "{restore}");
    for _ in 0..3 {
        let before = polling()["at"].clone();
        until("the repository is read again", || polling()["at"] != before);
    }
    let answer = bed.manage("GET", &format!("{}/deploys/5", app.path)).send();
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
}
