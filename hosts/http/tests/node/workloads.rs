//! A whole release in real containers: a release command, then web, worker and cron job under one deploy.

use rollhook_testing::{App, beds::Bed, server, test_name};
use serde_json::{Value, json};

use crate::{
    containers::{answers, push},
    migration::Database,
};

/// Makes the workloads of an app, of which the worker does not run version v3, and registers it.
pub(crate) fn release(bed: &Bed, image: &str) -> App {
    let env = json!([{ "name": "REFUSES", "value": "v3" }]);
    let worker = json!({ "name": "app", "image": image, "env": env });
    bed.kubectl.make("Deployment", "web", image, json!({}));
    bed.kubectl.make("Deployment", "worker", "-", json!({ "template": { "spec": { "containers": [worker] } } }));
    bed.kubectl.make("CronJob", "nightly", image, json!({}));
    let workload = json!({ "kind": "Deployment", "name": "web", "also": ["Deployment/worker", "CronJob/nightly"] });
    bed.register("api", json!({ "workload": workload, "policy": { "settle": "1s", "patience": "5s" } }))
}

/// The images of the three, by their tags.
pub(crate) fn images(bed: &Bed) -> Vec<String> {
    let tag = |workload: &&str| {
        let image = bed.kubectl.image(workload);
        let name = image.split('@').next().unwrap_or_default();
        name.rsplit(':').next().unwrap_or_default().to_owned()
    };
    ["deployment/web", "deployment/worker", "cronjob/nightly"].iter().map(tag).collect()
}

/// The deploy ids of the three.
pub(crate) fn stamps(bed: &Bed) -> Vec<Value> {
    let stamp = |workload: &&str| bed.kubectl.get(workload)["metadata"]["annotations"]["rollhook.dev/revision"].clone();
    ["deployment/web", "deployment/worker", "cronjob/nightly"].iter().map(stamp).collect()
}

/// The ReplicaSets of a workload's pods.
fn replica_sets(bed: &Bed, workload: &str) -> Vec<Value> {
    bed.kubectl.pods(workload).iter().map(|pod| pod["metadata"]["ownerReferences"][0]["name"].clone()).collect()
}

#[test]
fn web_worker_and_cron_job_are_released_and_restored_together() {
    let test = test_name!();
    let Some(database) = Database::own(&test) else { return };
    let Some(bed) = Bed::node(server!(), &test, |_| Vec::new()) else { return };
    let database = Database::reached_from(database, &bed);
    let [(v1, _), (v2, _), (v3, _)] =
        ["v1", "v2", "v3"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")));
    let app = release(&bed, &v1);

    database.migrates(&bed, &app, "v2", "2");
    bed.succeeds(&app, &v2);
    assert_eq!(images(&bed), ["v2", "v2", "v2"]);
    assert_eq!((answers(&bed, "web"), answers(&bed, "worker")), (vec!["version=v2".into()], vec!["version=v2".into()]));
    let stamped = stamps(&bed);
    assert!(stamped.iter().all(|stamp| *stamp == stamped[0] && stamp.as_str().unwrap().ends_with("/2")), "{stamped:?}");

    // A migration that the database refuses in its middle: nothing is touched.
    database.migrates(&bed, &app, "v3", "3");
    database.execute("ALTER TABLE app_migrations ADD CONSTRAINT refused CHECK (version <> 'v3' OR NOT done)");
    let failed = bed.fails(&app, &v3);
    assert_eq!(failed["reason"], "release-failed");
    assert!(failed["evidence"]["log"].to_string().contains("violates check constraint"), "{failed}");
    assert_eq!(database.migrations(), ["2 v2 true", "3 v3 false"]);
    database.execute("ALTER TABLE app_migrations DROP CONSTRAINT refused");
    assert_eq!((images(&bed), stamps(&bed)), (vec!["v2".to_owned(); 3], stamped));

    // A worker that crashes: all are restored, what was not touched runs on, and the migration is named.
    database.migrates(&bed, &app, "v3", "4");
    let worker = replica_sets(&bed, "worker");
    let failed = bed.fails(&app, &v3);
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with("Deployment/worker: "), "{failed}");
    // Without a readiness probe the worker was complete for a moment, in which the next one may have had its turn.
    assert!(message.contains("(Deployment/web is complete, CronJob/nightly is "), "{failed}");
    assert!(message.contains("The release commands of revisions 4, 3 ran"), "{failed}");
    assert!(bed.entry(&app, 4)["evidence"]["log"].to_string().contains("app v3 refuses to run here"));
    assert_eq!(bed.await_revision(&app, 5)["status"], "succeeded");
    assert_eq!(images(&bed), ["v2", "v2", "v2"]);
    assert_eq!(replica_sets(&bed, "worker"), worker, "the version of before, and no copy of it");
    assert_eq!(answers(&bed, "web"), ["version=v2"]);

    // A rollback past a migration asks first, and then takes all.
    let refused = bed.manage("POST", &format!("{}/rollback", app.path)).json(&json!({ "revision": 1 })).send();
    assert_eq!((refused.status, refused.problem().as_str()), (409, "release-between"));
    let confirmed = json!({ "revision": 1, "past_releases": true });
    bed.manage("POST", &format!("{}/rollback", app.path)).json(&confirmed).expect(202);
    assert_eq!(bed.await_revision(&app, 6)["status"], "succeeded");
    assert_eq!(images(&bed), ["v1", "v1", "v1"]);
    let migrated = ["2 v2 true", "3 v3 false", "4 v3 true"];
    assert_eq!(database.migrations(), migrated, "neither a restore nor a rollback migrates");

    let shown = bed.cli().run("app show api").ok().out;
    for workload in ["Deployment/web at 6", "Deployment/worker at 6", "CronJob/nightly at 6"] {
        assert!(shown.contains(workload), "{shown}");
    }
}
