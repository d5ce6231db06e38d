//! Apps that follow their repository at the machine's registry.

use std::{thread, time::Instant};

use rollhook_testing::{
    App, Call,
    fixtures::{FailingRegistry, RegistryFault},
    server, test_name, until,
};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, push},
    resolving::push_labelled,
};

/// The number of callers that send events at once.
const SENDERS: usize = 10;

/// Returns the event of CNCF Distribution, the bed's registry, with the header that proves it.
fn proved_event(bench: &Bench, app: &App, tag: &str) -> Call {
    let media_type = "application/vnd.docker.distribution.manifest.v2+json";
    let target = json!({ "mediaType": media_type, "repository": app.name, "tag": tag });
    let body = json!({ "events": [{ "action": "push", "target": target }] }).to_string();
    let call = bench.server.call("POST", &app.hook).header("x-service-token", &app.token);
    call.header("content-type", "application/vnd.docker.distribution.events.v1+json").body(body.as_bytes())
}

/// Returns the event of Docker Hub, which can prove nothing.
fn unsigned_event(bench: &Bench, app: &App, tag: &str) -> Call {
    let event = json!({ "push_data": { "tag": tag }, "repository": { "repo_name": app.name } });
    bench.server.call("POST", &app.hook).json(&event)
}

/// Sends an event so many times; each call must be answered with this status.
fn flood(event: &Call, times: usize, status: u16) {
    thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| (0..times / SENDERS).for_each(|_| drop(event.expect(status))));
        }
    });
}

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

#[test]
fn event_flood_makes_one_poll() {
    let Some(bench) = Bench::lent(server!().unlimited(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let registry = FailingRegistry::before(bench.docker.registry().parse().unwrap(), RegistryFault::Sound);
    let pushed = push(&bench.docker, "app:v1", &format!("{name}:1.0.0"));
    bench.succeeds(&app, &pushed.replace(&bench.docker.registry(), &registry.server.address.to_string()));
    let follow = json!({ "policy": { "follow": "semver:^1", "follow_settle": "0s", "poll": "1h" } });
    bench.server.manage("PATCH", &app.path).json(&follow).expect(200);
    let polling = || bench.server.manage("GET", &app.path).expect(200).json()["polling"].clone();
    // The first poll comes within a minute, whatever the interval is.
    until("it knows what is there", || polling()["head"].as_str().is_some_and(|known| known.contains("1.0.0")));
    let listings = || registry.server.lines().iter().filter(|line| line.contains("/tags/list")).count();
    let (before, begun) = (listings(), Instant::now());
    // Events that come after a poll has begun cause another one, and so do those of each further 10 s.
    let most = |polls: usize| polls + usize::try_from(begun.elapsed().as_secs()).unwrap() / 10;

    push(&bench.docker, "app:v2", &format!("{name}:1.1.0"));
    flood(&proved_event(&bench, &app, "1.1.0"), 200, 200);
    let entry = bench.ended(&app, 3);
    assert_eq!((&entry["trigger"], &entry["status"]), (&json!("registry"), &json!("succeeded")), "{entry}");
    assert_eq!(bench.version(&name), "v2");
    assert!(listings() - before <= most(2), "{:?}", registry.server.lines());

    // Another image than those before: one that the history has would not be deployed.
    push_labelled(&bench, &format!("{name}:1.2.0"));
    flood(&unsigned_event(&bench, &app, "1.2.0"), 50, 202);
    let entry = bench.ended(&app, 4);
    assert_eq!((&entry["trigger"], &entry["status"]), (&json!("registry"), &json!("succeeded")), "{entry}");
    assert!(listings() - before <= most(3), "{:?}", registry.server.lines());
}
