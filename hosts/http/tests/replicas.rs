//! Two servers on one store: one drives, both answer, and each takes the other's place.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

use std::{net::SocketAddr, thread};

use rollhook_testing::{
    App, Call, Server,
    beds::{Fleet, Shared},
    events, image, server, until,
};
use serde_json::{Value, json};

/// Stamps a test for each store that replicas can share.
macro_rules! on_each_store {
    ($($case:ident),+ $(,)?) => {
        on_each_store! { @ postgres Postgres $($case)+ }
        on_each_store! { @ kubernetes Kubernetes $($case)+ }
    };
    (@ $store:ident $shared:ident $($case:ident)+) => {
        mod $store {
            $(#[test]
            fn $case() {
                super::$case(super::Shared::$shared, &rollhook_testing::test_name!());
            })+
        }
    };
}

on_each_store! {
    a_replica_keeps_what_it_drives_for_as_long_as_it_lives,
    a_dead_replicas_deploys_are_ended_by_another,
    a_replica_that_stops_leaves_its_deploys_to_another,
    a_paused_replica_that_wakes_up_changes_nothing,
    a_key_makes_one_deploy_whichever_replica_it_meets,
    the_old_token_is_refused_by_all_once_enable_returns,
    api_token_counts_on_all_replicas_until_it_is_revoked_on_one,
    session_counts_on_all_replicas_until_it_is_ended_on_one,
    lock_counts_on_all_replicas_at_once_and_so_does_its_end,
    every_replica_reports_each_change,
}

const HEARTBEATS: &str = r#"rollhook_store_call_duration_seconds_count{call="heartbeat",outcome="ok"}"#;

fn a_replica_keeps_what_it_drives_for_as_long_as_it_lives(shared: Shared, test: &str) {
    // Longer than a claim lasts without a sign of life.
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "20s") else { return };
    let first = fleet.replica("first").run();
    let app = fleet.register(first.address, "api");
    let second = fleet.replica("second").run();
    let entry = fleet.manage(second.address, "GET", &format!("{app}/deploys/1")).header("prefer", "wait=50");
    assert_eq!(entry.expect(200).json()["status"], "succeeded");
    drove([&first, &second], [1, 0]);
}

fn a_dead_replicas_deploys_are_ended_by_another(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "2s") else { return };
    let first = fleet.replica("first").run();
    let app = fleet.app(first.address, "api");
    let second = fleet.replica("second").run();
    post(first.address, &app, "v2").expect(202);
    rolls_out(&fleet, second.address, &app, 2);
    first.kill();
    assert_eq!(ended(&fleet, second.address, &app, 2)["status"], "succeeded");
    // The next one is the survivor's own.
    post(second.address, &app, "v3").header("prefer", "wait=50").expect(200);
    drove([&second], [2]);
    assert_eq!(fleet.history(second.address, &app).unwrap().len(), 3);
}

fn a_replica_that_stops_leaves_its_deploys_to_another(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "3s") else { return };
    let first = fleet.replica("first").run();
    let app = fleet.app(first.address, "api");
    let second = fleet.replica("second").run();
    post(first.address, &app, "v2").expect(202);
    rolls_out(&fleet, second.address, &app, 2);
    // A wait on the one that goes is answered with what is known, and goes on at the other one.
    let waiting = post(first.address, &app, "v3").header("prefer", "wait=50").header("idempotency-key", "run-1");
    let answer = thread::spawn({
        let waiting = waiting.clone();
        move || waiting.send()
    });
    until("it is accepted", || fleet.history(second.address, &app).is_some_and(|history| history.len() == 3));
    first.signal("TERM");
    assert_eq!(answer.join().unwrap().status, 202);
    let again = post(second.address, &app, "v3").header("prefer", "wait=50").header("idempotency-key", "run-1");
    let again = again.expect(200);
    assert_eq!((&again.json()["revision"], again.header("idempotent-replayed")), (&json!(3), Some("true")));
    assert!(succeeded(&second) > 0);
    drop(first);
}

fn a_paused_replica_that_wakes_up_changes_nothing(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "3s") else { return };
    let first = fleet.replica("first").run();
    let app = fleet.app(first.address, "api");
    let second = fleet.replica("second").run();
    post(first.address, &app, "v2").expect(202);
    rolls_out(&fleet, second.address, &app, 2);
    first.signal("STOP");
    assert_eq!(ended(&fleet, second.address, &app, 2)["status"], "succeeded");
    post(second.address, &app, "v3").header("prefer", "wait=50").expect(200);
    let before = fleet.history(second.address, &app).unwrap();
    drove([&second], [2]);
    first.signal("CONT");
    // Its own rollout ended while it slept, by its own belief; it has every chance to write that.
    let awake = first.counted(HEARTBEATS);
    until("it is at work again", || first.counted(HEARTBEATS) >= awake + 2);
    assert_eq!(fleet.history(first.address, &app).unwrap(), before, "by the one that woke up");
    assert_eq!(fleet.history(second.address, &app).unwrap(), before);
    // It is of use again: an app at rest is driven by whoever accepts its next deploy.
    post(first.address, &app, "v4").header("prefer", "wait=50").expect(200);
    drove([&first, &second], [2, 2]);
}

fn a_key_makes_one_deploy_whichever_replica_it_meets(shared: Shared, test: &str) {
    const ROUNDS: usize = 10;
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "0ms") else { return };
    let servers = [fleet.replica("first").run(), fleet.replica("second").run()];
    let app = fleet.app(servers[0].address, "api");
    for round in 0..ROUNDS {
        let key = format!("run-{round}");
        let calls = servers.iter().chain(&servers).map(|server| {
            let call = post(server.address, &app, &format!("v{round}")).header("idempotency-key", &key);
            thread::spawn(move || call.expect(202))
        });
        let replies: Vec<_> = calls.collect::<Vec<_>>().into_iter().map(|call| call.join().unwrap()).collect();
        let revisions: Vec<Value> = replies.iter().map(|reply| reply.json()["revision"].clone()).collect();
        assert!(revisions.iter().all(|revision| *revision == revisions[0]), "{revisions:?}");
        let first = replies.iter().filter(|reply| reply.header("idempotent-replayed").is_none());
        assert_eq!(first.count(), 1, "{replies:?}");
        for server in &servers {
            let other = post(server.address, &app, "other").header("idempotency-key", &key);
            assert_eq!(other.expect(422).problem(), "idempotency-key-reused");
        }
    }
    for server in &servers {
        assert_eq!(fleet.history(server.address, &app).unwrap().len(), 1 + ROUNDS);
    }
}

fn the_old_token_is_refused_by_all_once_enable_returns(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "0ms") else { return };
    let servers = [fleet.replica("first").run(), fleet.replica("second").run()];
    let mut app = fleet.app(servers[0].address, "api");
    for round in 0..10 {
        let call = |server: &Server, token: &str| {
            let call = Call::to(server.address, "POST", &app.hook).header("x-service-token", token);
            call.header("idempotency-key", "once").json(&image("v2")).send().status
        };
        // Both have just let it in, and might remember that.
        assert_eq!(servers.each_ref().map(|server| call(server, &app.token)), [202, 202]);
        let old = app.token.clone();
        app.token = fleet.enable(servers[round % 2].address, &app.path);
        assert_eq!(servers.each_ref().map(|server| call(server, &old)), [401, 401], "round {round}");
        assert_eq!(servers.each_ref().map(|server| call(server, &app.token)), [202, 202], "round {round}");
    }
    fleet.manage(servers[1].address, "DELETE", &format!("{}/webhook", app.path)).expect(204);
    assert_eq!(post(servers[0].address, &app, "v3").send().status, 401);
}

fn api_token_counts_on_all_replicas_until_it_is_revoked_on_one(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "10ms") else { return };
    let servers = ["first", "second"].map(|name| fleet.replica(name).run());
    for round in 1..=5 {
        let name = format!("ci-{round}");
        let body = json!({ "name": name, "role": "viewer" });
        let made = fleet.manage(servers[0].address, "POST", "/api/v1/tokens").json(&body).expect(201).json();
        let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
        let call = |server: &Server| {
            Call::to(server.address, "GET", "/api/v1/apps").header("authorization", &bearer).send().status
        };
        // A replica may learn of a token that another one has just made a moment later.
        until("the token is known to both", || servers.iter().all(|server| call(server) == 200));
        fleet.manage(servers[1].address, "DELETE", &format!("/api/v1/tokens/{name}")).expect(204);
        assert_eq!(servers.each_ref().map(call), [401, 401], "round {round}");
    }
}

fn session_counts_on_all_replicas_until_it_is_ended_on_one(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "10ms") else { return };
    let servers = ["first", "second"].map(|name| fleet.replica(name).run());
    let form = |server: &Server, path: &str| {
        let call = server.call("POST", path).header("sec-fetch-site", "same-origin");
        call.header("content-type", "application/x-www-form-urlencoded")
    };
    for (round, end) in ["/sign-out", "/sign-out-everywhere"].into_iter().cycle().take(6).enumerate() {
        let token = format!("token={}", servers[0].admin);
        let begun = form(&servers[0], "/sign-in").body(token.as_bytes()).expect(303);
        let cookie = begun.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let page = |server: &Server| server.call("GET", "/").header("cookie", &cookie).send().status;
        until("the session is known to both", || servers.iter().all(|server| page(server) == 200));
        form(&servers[1], end).header("cookie", &cookie).expect(303);
        assert_eq!(servers.each_ref().map(page), [303, 303], "round {round}");
    }
}

fn lock_counts_on_all_replicas_at_once_and_so_does_its_end(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "0ms") else { return };
    let servers = ["first", "second"].map(|name| fleet.replica(name).run());
    let app = fleet.app(servers[0].address, "api");
    let known = fleet.manage(servers[0].address, "GET", &app.path).expect(200).json();
    let [project, environment] = ["project", "environment"].map(|name| known[name].as_str().unwrap());
    let (of_app, of_environment) = (format!("{}/lock", app.path), format!("/api/v1/locks/{project}/{environment}"));
    let answers = || servers.each_ref().map(|server| post(server.address, &app, "v2").send().status);
    for round in 0..3 {
        let [one, other] = [&servers[round % 2], &servers[(round + 1) % 2]].map(|server| server.address);
        for lock in [&of_app, &of_environment] {
            assert_eq!(answers(), [202, 202], "round {round}");
            fleet.manage(one, "PUT", lock).json(&json!({ "reason": "a freeze" })).expect(200);
            assert_eq!(answers(), [423, 423], "round {round} {lock}");
            let ended = fleet.manage(other, "DELETE", lock).send().status;
            assert!([200, 204].contains(&ended), "{ended}");
        }
    }
}

fn every_replica_reports_each_change(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::simulated(server!(), shared, test, "3s") else { return };
    let first = fleet.replica("first").run();
    let app = fleet.app(first.address, "api");
    let second = fleet.replica("second").run();
    post(first.address, &app, "v2").header("idempotency-key", "run-1").expect(202);
    let entry = format!("{}/deploys/2", app.path);
    let stream = fleet.manage(second.address, "GET", &format!("{entry}/events")).open();
    let wait = post(second.address, &app, "v2").header("idempotency-key", "run-1").header("prefer", "wait=50");
    let answer = thread::spawn(move || wait.expect(200).json());
    let seen = events(stream);
    let statuses: Vec<&str> = seen.iter().map(|(_, entry)| entry["status"].as_str().unwrap()).collect();
    assert!(statuses.ends_with(&["rolling_out", "succeeded"]), "{statuses:?}");
    assert_eq!(answer.join().unwrap()["status"], "succeeded");
    drove([&first, &second], [2, 0]);
    // A stream that one began, the other resumes.
    let resumed = fleet.manage(first.address, "GET", &format!("{entry}/events")).header("last-event-id", &seen[0].0);
    let resumed = events(resumed.open());
    assert_eq!(resumed.last().map(|(id, _)| id), seen.last().map(|(id, _)| id));
}

/// How many deploys a server has brought to their success.
fn succeeded(server: &Server) -> u64 {
    let series = |trigger| format!(r#"rollhook_deploys_ended_total{{trigger="{trigger}",status="succeeded"}}"#);
    ["webhook", "manual", "promotion", "rollback", "git"].map(|trigger| server.counted(&series(trigger))).iter().sum()
}

/// How many deploys each has brought to their success. A waiting call may be answered before that is counted.
fn drove<const N: usize>(servers: [&Server; N], deploys: [u64; N]) {
    let counted = || servers.map(succeeded);
    until(&format!("{deploys:?} are counted"), || counted().iter().zip(deploys).all(|(counted, due)| *counted >= due));
    assert_eq!(counted(), deploys);
}

fn post(address: SocketAddr, app: &App, tag: &str) -> Call {
    let call = Call::to(address, "POST", &app.hook).header("x-service-token", &app.token);
    call.json(&image(tag))
}

fn rolls_out(fleet: &Fleet, address: SocketAddr, app: &App, revision: u64) {
    let entry = fleet.manage(address, "GET", &format!("{}/deploys/{revision}", app.path));
    until("it rolls out", || entry.send().json()["status"] == "rolling_out");
}

fn ended(fleet: &Fleet, address: SocketAddr, app: &App, revision: u64) -> Value {
    let entry = fleet.manage(address, "GET", &format!("{}/deploys/{revision}", app.path));
    entry.header("prefer", "wait=50").expect(200).json()
}
