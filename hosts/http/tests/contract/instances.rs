//! Instances of an app, and their logs: parts behind a place, also before a restart, for those who may read the app.

use rollhook_testing::{App, Reply, Server, image, server};
use serde_json::Value;

fn get(server: &Server, app: &App, call: &str) -> Reply {
    server.manage("GET", &format!("{}/instances{call}", app.path)).send()
}

fn texts(log: &Value) -> Vec<&str> {
    log["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect()
}

#[test]
fn log_of_an_instance_is_read_in_parts() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    let listed = get(&server, &app, "").json();
    let instance = &listed["instances"][0];
    assert_eq!(
        (&instance["revision"], &instance["ready"], &instance["restarts"]),
        (&2.into(), &true.into(), &0.into())
    );
    let name = instance["name"].as_str().unwrap();
    let log = |query: &str| get(&server, &app, &format!("/{name}/log?{query}"));

    let whole = log("").json();
    assert_eq!(texts(&whole)[..2], ["starting r.example.com/api:v2", "simulated: listening"]);
    let first = log("after=0.0&limit=1").json();
    assert_eq!((texts(&first), &first["more"]), (vec!["starting r.example.com/api:v2"], &true.into()));
    let rest = log(&format!("after={}", first["next"].as_str().unwrap())).json();
    assert_eq!((texts(&rest)[0], &rest["more"]), ("simulated: listening", &false.into()));
    assert_eq!(texts(&log("previous=true").json()), [""; 0], "it was not restarted");

    for (query, why) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("after=soon", "after"),
        ("after=-1.0", "after"),
        ("previous=maybe", "previous"),
        ("tail=3", "takes one of"),
    ] {
        let refused = log(query);
        assert_eq!((refused.status, refused.problem().as_str()), (400, "malformed"), "{query}: {}", refused.text());
        assert!(refused.json()["detail"].as_str().unwrap().contains(why), "{}", refused.text());
    }
    for name in ["nosuch", "no%20such", &"a".repeat(400)] {
        let missing = get(&server, &app, &format!("/{name}/log"));
        assert_eq!((missing.status, missing.problem().as_str()), (404, "no-such-instance"), "{}", missing.text());
    }
    let other = server.app("web");
    let missing = get(&server, &other, &format!("/{name}/log"));
    assert_eq!((missing.status, missing.problem().as_str()), (404, "no-such-instance"), "it is another app's");
}

#[test]
fn instance_that_crashes_shows_its_last_words() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("crash")).expect(202);
    let crashed = || {
        let listed = get(&server, &app, "").json();
        let instances = listed["instances"].as_array().unwrap().clone();
        instances.into_iter().find(|it| it["revision"] == 2 && it["restarts"].as_u64() > Some(0))
    };
    rollhook_testing::until("an instance was restarted", || crashed().is_some());
    let instance = crashed().unwrap();
    assert_eq!((&instance["ready"], &instance["state"]), (&false.into(), &"waiting: CrashLoopBackOff".into()));
    let name = instance["name"].as_str().unwrap();
    let before = get(&server, &app, &format!("/{name}/log?previous=true&limit=1")).json();
    assert_eq!(texts(&before), ["simulated: exiting with code 1"]);
}

#[test]
fn instances_are_those_of_the_workload_that_is_named() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    let all = get(&server, &app, "").json();
    assert!(all.get("workloads").is_none() && all["instances"][0].get("workload").is_none(), "it has one: {all}");
    for name in ["Deployment/api", "Deployment%2Fapi", "api"] {
        assert_eq!(get(&server, &app, &format!("?workload={name}")).json(), all, "{name}");
    }
    for name in ["worker", "", "%1b%5b2J", &"a".repeat(400)] {
        let refused = get(&server, &app, &format!("?workload={name}"));
        assert_eq!((refused.status, refused.problem().as_str()), (404, "no-such-workload"), "{}", refused.text());
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.ends_with("it has: Deployment/api.") && !detail.contains('\u{1b}'), "{detail}");
    }
    let refused = get(&server, &app, "?workloads=api");
    assert_eq!((refused.status, refused.problem().as_str()), (400, "malformed"), "{}", refused.text());
}
