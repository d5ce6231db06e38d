//! Apps with several containers, which change together.

use rollhook_testing::{App, server, test_name, until};
use serde_json::{Value, json};

use crate::bench::Bench;

/// Starts a web container and a worker, which may refuse versions, and registers both as one
/// app.
fn release(bench: &Bench, worker: &str, patience: &str) -> (String, String, App) {
    let [web, name] = ["web", "worker"].map(|name| bench.name(name));
    bench.start(&web, &["--restart", "unless-stopped"], "app:v1");
    let network = bench.docker.network();
    let run = ["run", "-d", "--name", &name, "--network", &network, "--restart", "unless-stopped", "app:v1"];
    bench.docker.run(&[&run[..], &["sh", "-c", worker]].concat());
    let workload = json!({ "kind": "container", "name": web, "also": [format!("container/{name}")] });
    let policy = json!({ "settle": "1s", "patience": patience });
    let app = bench.register(&web, &json!({ "workload": workload, "policy": policy }));
    (web, name, app)
}

/// The version that a container was made with.
fn made_with(bench: &Bench, name: &str) -> Value {
    let env = bench.inspect(name).unwrap()["Config"]["Env"].as_array().unwrap().clone();
    env.into_iter().find(|one| one.as_str().unwrap().starts_with("VERSION=")).unwrap_or_default()
}

const WORKS: &str = "touch /tmp/ready; sleep 1000";
const REFUSES: &str = "[ $VERSION = v1 ] || { echo no queue; exit 3; }; touch /tmp/ready; sleep 1000";

#[test]
fn containers_of_an_app_are_deployed_and_rolled_back_together() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, WORKS, "1m");
    bench.succeeds(&app, "app:v2");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v2".to_owned(), json!("VERSION=v2")));
    let shown = bench.cli().run(&format!("app show {web}")).ok().out;
    assert!(shown.contains(&format!("then container/{worker}")), "{shown}");
    bench.roll_back(&app);
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v1".to_owned(), json!("VERSION=v1")));
    assert_eq!((bench.containers(&web), bench.containers(&worker)), (vec![web.clone()], vec![worker.clone()]));
}

#[test]
fn worker_that_fails_is_named_and_the_web_container_is_put_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, REFUSES, "3s");
    let before = bench.inspect(&worker).unwrap()["Id"].clone();
    let failed = bench.fails(&app, "app:v2");
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("container/{worker}: ")), "{failed}");
    assert!(message.contains(&format!("container/{web} is complete")), "{failed}");
    assert!(failed["evidence"]["log"].to_string().contains("no queue"), "{failed}");
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v1".to_owned(), json!("VERSION=v1")));
    assert_eq!(bench.inspect(&worker).unwrap()["Id"], before, "the old worker serves on");
}

#[test]
fn engine_that_is_killed_between_the_two_is_waited_for() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, WORKS, "1m");
    bench.post(&app, "app:v2").expect(202);
    until("the worker's new container is there", || bench.containers(&worker).len() > 1);
    bench.docker.control("kill");
    bench.docker.control("start");
    let ended = bench.ended(&app, 2);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v2".to_owned(), json!("VERSION=v2")));
}
